//! The configuration service in etcd: one key, read linearizably, changed if its revision is still the one that was read.
//!
//! It speaks the JSON form of etcd's interface, one request after the other, and needs no leases and no
//! watches. A request without an answer goes to the next member: if the first one made the change after all,
//! its repetition fails, and the register is read afterwards anyway.

use super::RegisterError;
use crate::fresh::fresh_name;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use highwire_txn::{Configuration, ConfigurationService};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a member of etcd may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The register in etcd.
#[derive(Debug)]
pub struct EtcdRegister {
    agent: ureq::Agent,
    members: Vec<String>,
    /// In base64, as etcd's JSON wants it.
    key: String,
    secret_key: String,
    /// The member that answered last.
    current: usize,
}

impl EtcdRegister {
    /// The register at `HOST:PORT,…/NAME`. This sends no request yet.
    ///
    /// # Errors
    /// [`RegisterError::Address`]: the address has another form.
    pub fn open(address: &str) -> Result<EtcdRegister, RegisterError> {
        let wrong = || RegisterError::Address(format!("etcd://{address}"));
        let (members, name) = address.split_once('/').ok_or_else(wrong)?;
        let is_member = |member: &str| {
            let port = member.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
        };
        if name.is_empty() || !members.split(',').all(is_member) {
            return Err(wrong());
        }
        let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false);
        Ok(EtcdRegister {
            agent: config.build().into(),
            members: members.split(',').map(str::to_string).collect(),
            key: STANDARD.encode(format!("highwire/{name}/configuration")),
            secret_key: STANDARD.encode(format!("highwire/{name}/secret")),
            current: 0,
        })
    }

    /// Writes the first configuration, unless there is one; returns the one in force.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn begin(&mut self, first: &Configuration) -> Result<Configuration, RegisterError> {
        self.put_if(0, first)?;
        self.read()
    }

    /// The configuration in force, if there is one.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn holds(&mut self) -> Result<Option<Configuration>, RegisterError> {
        Ok(self.latest()?.map(|(_, configuration)| configuration))
    }

    /// The configuration in force, and the revision of etcd in which it was written.
    fn latest(&mut self) -> Result<Option<(u64, Configuration)>, RegisterError> {
        // Etcd's reads are linearizable by default.
        let answer = self.ask("range", &json!({ "key": self.key }))?;
        let Some(found) = answer["kvs"].get(0) else { return Ok(None) };
        let damaged = || RegisterError::Etcd(format!("the key's value is no configuration: {found}"));
        let revision = found["mod_revision"].as_str().and_then(|text| text.parse().ok());
        let bytes = found["value"].as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
        let (sum, body) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let configuration = Configuration::from_bytes(body)
            .filter(|_| crc32fast::hash(body) == u32::from_le_bytes(*sum))
            .ok_or_else(damaged)?;
        Ok(Some((revision.ok_or_else(damaged)?, configuration)))
    }

    /// Changes the key if it was written in this revision, or with 0 if it does not exist.
    fn put_if(&mut self, revision: u64, new: &Configuration) -> Result<(), RegisterError> {
        let body = new.to_bytes();
        let value = [&crc32fast::hash(&body).to_le_bytes(), body.as_slice()].concat();
        let request = json!({
            "compare": [{ "key": self.key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() }],
            "success": [{ "request_put": { "key": self.key, "value": STANDARD.encode(value) } }],
        });
        self.ask("txn", &request).map(drop)
    }

    /// The number that all nodes of the cluster know, and others do not. The first node that asks draws it.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn secret(&mut self) -> Result<u64, RegisterError> {
        let fresh = fresh_name().map_err(|error| RegisterError::Etcd(error.to_string()))?;
        let key = self.secret_key.clone();
        // A key that is not there has the revision 0.
        let draw = json!({
            "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": "0" }],
            "success": [{ "request_put": { "key": key, "value": STANDARD.encode(&fresh[..16]) } }],
        });
        self.ask("txn", &draw)?;
        let answer = self.ask("range", &json!({ "key": key }))?;
        let value = answer["kvs"].get(0).and_then(|found| found["value"].as_str());
        let text =
            value.and_then(|text| STANDARD.decode(text).ok()).and_then(|text| String::from_utf8(text).ok());
        text.and_then(|text| u64::from_str_radix(&text, 16).ok())
            .ok_or_else(|| RegisterError::Etcd(format!("the cluster's secret is none: {answer}")))
    }

    fn ask(&mut self, verb: &str, request: &Value) -> Result<Value, RegisterError> {
        let mut last = String::new();
        for _ in 0..self.members.len() {
            let member = &self.members[self.current];
            match post(&self.agent, &format!("http://{member}/v3/kv/{verb}"), request) {
                Ok(answer) => return Ok(answer),
                Err(error) => last = format!("{member}: {error}"),
            }
            self.current = (self.current + 1) % self.members.len();
        }
        Err(RegisterError::Etcd(last))
    }
}

fn post(agent: &ureq::Agent, url: &str, request: &Value) -> Result<Value, String> {
    let mut response = agent.post(url).send(request.to_string()).map_err(|error| error.to_string())?;
    let text = response.body_mut().read_to_string().map_err(|error| error.to_string())?;
    if !response.status().is_success() {
        return Err(format!("{}: {}", response.status(), text.trim_end()));
    }
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

impl ConfigurationService for EtcdRegister {
    type Error = RegisterError;

    fn read(&mut self) -> Result<Configuration, RegisterError> {
        self.holds()?.ok_or_else(|| RegisterError::Etcd("the key is not there any more".into()))
    }

    fn compare_and_swap(
        &mut self,
        id: u32,
        revision: u32,
        new: Configuration,
    ) -> Result<Configuration, RegisterError> {
        let gone = || RegisterError::Etcd("the key is not there any more".into());
        let (written, now) = self.latest()?.ok_or_else(gone)?;
        if (now.id, now.revision) != (id, revision) {
            return Ok(now);
        }
        self.put_if(written, &new)?;
        self.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_etcd_has_members_and_a_name() {
        let register = EtcdRegister::open("a:2379,192.0.2.7:2380/bank").expect("an address");
        assert_eq!(register.members, ["a:2379", "192.0.2.7:2380"]);
        for wrong in ["a:2379", "a:2379/", "a/bank", ":1/bank", "a:2379,/bank", "a:0/bank", "/bank"] {
            let error = EtcdRegister::open(wrong).expect_err(wrong).to_string();
            assert!(error.contains("etcd://HOST:PORT,HOST:PORT/NAME"), "{error}");
        }
    }

    #[test]
    fn an_etcd_that_is_not_there_is_an_error_that_names_it() {
        // A port that was free a moment ago.
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let free = free.expect("a port");
        let mut register = EtcdRegister::open(&format!("{free}/bank")).expect("an address");
        let error = register.holds().expect_err("nobody is there").to_string();
        assert!(error.contains(&free.to_string()), "{error}");
    }
}
