//! The fleet of `trued up`: keys, ports and rows of its parts, made once and found again.

use super::super::enrolment;
use super::directory::{DataDirectory, write_whole};
use crate::database::fleet::Fleet;
use crate::database::{Database, fileservers, parts};
use crate::model::grant::{Enrolment, Part, Role};
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;

/// The router's name, and that of its port.
const ROUTER: &str = "router";

/// One fileserver of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its enrolment file.
    pub enrolment: PathBuf,
    /// Its root.
    pub root: PathBuf,
    /// Its agent's port on loopback.
    pub port: u16,
}

/// All parts.
#[derive(Debug)]
pub struct Members {
    /// The controller.
    pub controller: Enrolment,
    /// The worker.
    pub worker: Enrolment,
    /// The router.
    pub router: Enrolment,
    /// Its port on loopback.
    pub router_port: u16,
    /// The fileservers.
    pub agents: Vec<Member>,
}

/// Makes what is missing, finds what is there; more fileservers than asked for are kept if they were made before.
/// `taken`: the port that the router has already, by a flag or the configuration.
///
/// # Errors
/// When a key, row or file cannot be made, or keys are of another fleet.
pub async fn prepare(
    db: &Database,
    fleet: &Fleet,
    data: &DataDirectory,
    count: u16,
    taken: Option<u16>,
) -> anyhow::Result<Members> {
    let mut agents: Vec<Enrolment> = Vec::new();
    for number in 1.. {
        let name = format!("fs-{number}");
        if number > u32::from(count) && !data.key(&name).exists() {
            break;
        }
        let mut agent = part(data, fleet, &name, Role::Agent)?;
        agent.checksum_key = Some(fleet.checksum_key.clone());
        agents.push(agent);
    }
    let mut controller = part(data, fleet, "controller", Role::Controller)?;
    let mut worker = part(data, fleet, "worker", Role::Worker)?;
    parts::add(db, &controller.part).await?;
    let mut router = part(data, fleet, ROUTER, Role::Router)?;
    parts::add(db, &worker.part).await?;
    parts::add(db, &router.part).await?;
    let (members, router_port) = place(db, data, &agents, taken).await?;
    // All are known now: each is told of all.
    let known = parts::list(db).await?;
    for one in agents.iter_mut().chain([&mut controller, &mut worker, &mut router]) {
        tell(data, one, &known)?;
    }
    Ok(Members { controller, worker, router, router_port, agents: members })
}

fn tell(data: &DataDirectory, one: &mut Enrolment, known: &[Part]) -> anyhow::Result<()> {
    if one.parts != known {
        one.parts = known.to_vec();
        enrolment::write(&data.key(&one.part.id), one)?;
    }
    Ok(())
}

fn part(data: &DataDirectory, fleet: &Fleet, name: &str, role: Role) -> anyhow::Result<Enrolment> {
    let path = data.key(name);
    if path.exists() {
        let found = enrolment::read(&path, role)?;
        enrolment::belongs(&path, &found, fleet)?;
        return Ok(found);
    }
    let (part, secret) = enrolment::new_part(name, role)?;
    let new = enrolment::enrolment(fleet.fleet_id.clone(), part, secret, Vec::new(), None);
    // Before anybody hears of the key: it must not be lost once it is known.
    enrolment::write(&path, &new)?;
    Ok(new)
}

/// Gives each agent a port, the same as before where it is free, and its row; and the router one.
async fn place(
    db: &Database,
    data: &DataDirectory,
    agents: &[Enrolment],
    taken: Option<u16>,
) -> anyhow::Result<(Vec<Member>, u16)> {
    let remembered: BTreeMap<String, u16> = std::fs::read_to_string(data.ports())
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let mut members = Vec::new();
    // Held until all have one, so that no two get the same.
    let mut held = Vec::new();
    for (agent, number) in agents.iter().zip(1..) {
        let name = &agent.part.name;
        let listener = free(remembered.get(name).copied().unwrap_or(0))?;
        let port = listener.local_addr()?.port();
        held.push(listener);
        let url = format!("http://127.0.0.1:{port}");
        let id = fileservers::add(db, name, &format!("rack-{number}"), &url, &agent.part).await?;
        fileservers::set_url(db, id, &url).await?;
        let root = data.root(name);
        members.push(Member { name: name.clone(), enrolment: data.key(name), root, port });
    }
    // A port that is given for one start leaves the one of all others as it is.
    let before = remembered.get(ROUTER).copied();
    let router = match taken {
        Some(port) => before.unwrap_or(port),
        None => free(before.unwrap_or(0))?.local_addr()?.port(),
    };
    let agents = members.iter().map(|one| (one.name.as_str(), one.port));
    let ports: BTreeMap<_, _> = agents.chain([(ROUTER, router)]).collect();
    write_whole(&data.ports(), &serde_json::to_string_pretty(&ports)?)?;
    Ok((members, router))
}

fn free(port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port))
        .or_else(|_| TcpListener::bind(("127.0.0.1", 0)))
        .context("finding a free port for an agent")
}
