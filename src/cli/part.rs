//! `trued part`: who belongs to the fleet.

use super::args::{AddedRole, Change, Global, PartCommand, PartVerb};
use super::client::Client;
use super::failure::{Exit, Failure};
use super::{enrolment, migrate, output, settings};
use crate::database::audit::{self, Change as Audited};
use crate::database::parts;
use crate::http::parts::check_name;
use crate::http::shapes::{AddPart, Enrolled};
use crate::model::grant::Role;

/// Runs it.
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn run(global: &Global, ask: PartCommand) -> anyhow::Result<Exit> {
    match ask.verb {
        PartVerb::Add { role, name, database_url, change } => {
            add(global, role, &name, database_url, change).await
        }
        PartVerb::List => list(global).await,
    }
}

async fn add(
    global: &Global,
    role: AddedRole,
    name: &str,
    database_url: Option<String>,
    change: Change,
) -> anyhow::Result<Exit> {
    let role = match role {
        AddedRole::Worker => Role::Worker,
        AddedRole::Controller => Role::Controller,
        AddedRole::Router => Role::Router,
    };
    let (part, secret) = enrolment::new_part(name, role)?;
    let database_url = database_url.map(|url| settings::database_url(global, Some(&url))).transpose()?;
    let enrolled: Enrolled = if let Some(url) = database_url {
        check_name("a part", name).map_err(|problem| Failure::usage(problem.message))?;
        let (db, fleet) = migrate::open_current(&url).await?;
        if !change.dry_run {
            parts::add(&db, &part).await?;
            let detail = serde_json::json!({ "role": role });
            let reason = change.reason.as_deref();
            audit::append(&db, &Audited { who: "local", what: "part.add", subject: name, reason, detail })
                .await?;
        }
        Enrolled { fleet: fleet.fleet_id, parts: parts::list(&db).await?, checksum_key: None }
    } else {
        let ask = AddPart {
            name: name.to_owned(),
            role,
            public_key: part.public_key.clone(),
            reason: change.reason,
            dry_run: change.dry_run,
        };
        Client::new(global)?.post(&["parts"], &ask).await?
    };
    if change.dry_run {
        eprintln!("{role} {name} would be added");
        return Ok(Exit::Done);
    }
    let enrolment = enrolment::enrolment(enrolled.fleet, part, secret, enrolled.parts, None);
    output::line(&serde_json::to_string_pretty(&enrolment)?);
    eprintln!("this is the enrolment of {role} {name}: keep it secret, it is shown once");
    Ok(Exit::Done)
}

async fn list(global: &Global) -> anyhow::Result<Exit> {
    let enrolled: Enrolled = Client::new(global)?.get(&["parts"], &[]).await?;
    output::answer(global.output, &enrolled, || {
        let rows = enrolled
            .parts
            .iter()
            .map(|part| vec![part.id.clone(), part.role.to_string(), part.public_key.clone()]);
        output::table(&["NAME", "ROLE", "PUBLIC KEY"], rows)
    })?;
    Ok(Exit::Done)
}
