//! The scenarios.
use super::outcome::Outcome;
use super::agent::Agent;
use anyhow::Result;

pub(super) fn list() {}

pub(super) fn play(_only: Option<&str>) -> Result<Outcome> {
    let mut agent = Agent::connect()?;
    println!("{:?}", agent.ask("open")?);
    println!("{}", agent.shell("/usr/sbin/ip addr; ibv_devinfo -v | head -40; free")?);
    Ok(Outcome::default())
}
