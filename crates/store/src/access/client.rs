//! What a client shows of itself when it connects.

use super::proof::NodeKey;
use crate::config::ClusterConfig;
use crate::engine::node_key;
use crate::register::Register;
use std::fmt;

/// What a client shows of itself when it connects: a user's name and password, or that it belongs to the cluster.
#[derive(Clone, Default)]
pub struct Access {
    pub(crate) user: Option<(String, String)>,
    pub(crate) node: Option<NodeKey>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| &user.0);
        f.debug_struct("Access").field("user", &user).field("node", &self.node).finish()
    }
}

impl Access {
    /// Nothing: for a cluster without users.
    pub fn anonymous() -> Access {
        Access::default()
    }

    /// A user.
    pub fn user(name: impl Into<String>, password: impl Into<String>) -> Access {
        Access { user: Some((name.into(), password.into())), node: None }
    }

    /// That of the cluster's own programs: who reads its register and its key may do everything.
    ///
    /// # Errors
    /// The register or the key cannot be read.
    pub fn member(config: &ClusterConfig) -> Result<Access, String> {
        let mut register =
            Register::open(&config.register).map_err(|error| format!("the register: {error}"))?;
        let secret = register.secret().map_err(|error| format!("the register: {error}"))?;
        Ok(Access { user: None, node: Some(node_key(secret, config)?) })
    }

    pub(crate) fn node(key: &NodeKey) -> Access {
        Access { user: None, node: Some(key.clone()) }
    }
}
