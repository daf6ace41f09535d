//! What a client shows of itself when it connects.

use super::proof::NodeKey;
use crate::config::ClusterConfig;
use crate::engine::node_key;
use crate::register::Register;
use crate::tls::{ClientTls, Tls};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// What a client shows of itself when it connects: a user's name and password, or that it belongs to the cluster.
#[derive(Clone, Default)]
pub struct Access {
    pub(crate) user: Option<(String, String)>,
    pub(crate) node: Option<NodeKey>,
    pub(crate) tls: Option<ClientTls>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| &user.0);
        f.debug_struct("Access")
            .field("user", &user)
            .field("node", &self.node)
            .field("tls", &self.tls)
            .finish()
    }
}

impl Access {
    /// Nothing: for a cluster without users.
    pub fn anonymous() -> Access {
        Access::default()
    }

    /// A user.
    pub fn user(name: impl Into<String>, password: impl Into<String>) -> Access {
        Access { user: Some((name.into(), password.into())), ..Access::default() }
    }

    /// The same over TLS, to nodes whose certificates are of the authority in this file of PEM.
    ///
    /// # Errors
    /// The file cannot be read, or what is wrong with it.
    pub fn with_tls(self, authority: &Path) -> Result<Access, String> {
        Ok(Access { tls: Some(ClientTls::open(authority, None)?), ..self })
    }

    /// The same, with a certificate of the client's own and its private key.
    ///
    /// # Errors
    /// As [`Access::with_tls`].
    pub fn with_certificate(
        self,
        authority: &Path,
        certificate: &Path,
        key: &Path,
    ) -> Result<Access, String> {
        Ok(Access { tls: Some(ClientTls::open(authority, Some((certificate, key)))?), ..self })
    }

    /// That of the cluster's own programs: who reads its register and its key may do everything.
    ///
    /// # Errors
    /// The register or the key cannot be read.
    pub fn member(config: &ClusterConfig) -> Result<Access, String> {
        let mut register =
            Register::open(&config.register).map_err(|error| format!("the register: {error}"))?;
        let secret = register.secret().map_err(|error| format!("the register: {error}"))?;
        let tls = config.tls.as_ref().map(Tls::open).transpose()?;
        Ok(Access::node(&node_key(secret, config)?, tls.map(Arc::new)))
    }

    pub(crate) fn node(key: &NodeKey, tls: Option<Arc<Tls>>) -> Access {
        Access { user: None, node: Some(key.clone()), tls: tls.map(ClientTls::Node) }
    }
}
