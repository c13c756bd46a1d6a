//! `trued fileserver`: lists, one, a new one, intents.

use super::args::{Change, FileserverCommand, FileserverVerb, Global};
use super::client::Client;
use super::failure::{Exit, Failure};
use super::output::{self, moment, moment_or_dash, number, size, yes_no};
use super::{drain, enrolment, migrate, settings};
use crate::clock;
use crate::database::audit::{self, Change as Audited};
use crate::database::{fileservers, parts};
use crate::http::parts::check_name;
use crate::http::shapes::{
    AddFileserver, Changed, Enrolled, FileserverList, FileserverRow, FileserverShown, SetIntent,
};
use crate::model::fleet::Intent;
use crate::model::grant::Role;

/// Runs it.
///
/// # Errors
/// When nobody answers, or the answer is no.
pub async fn run(global: &Global, ask: FileserverCommand) -> anyhow::Result<Exit> {
    match ask.verb {
        FileserverVerb::List => list(global).await,
        FileserverVerb::Show { name } => show(global, &name).await,
        FileserverVerb::Add { name, rack, agent_url, api, database_url, change } => {
            let global = Global { url: api, ..global.clone() };
            let new = New { name, rack, url: agent_url.trim_end_matches('/').to_owned() };
            add(&global, new, database_url, change).await
        }
        FileserverVerb::Serve { name, change } => set_intent(global, &name, Intent::Serve, change).await,
        FileserverVerb::Retire { name, change } => set_intent(global, &name, Intent::Retire, change).await,
        FileserverVerb::Quiesce(ask) => drain::quiesce(global, ask).await,
        FileserverVerb::Evacuate(ask) => drain::evacuate(global, ask).await,
        FileserverVerb::Lost(ask) => drain::lost(global, ask).await,
        FileserverVerb::AcceptEmpty(ask) => drain::accept_empty(global, ask).await,
        FileserverVerb::OkToStop(ask) => drain::ok_to_stop(global, ask).await,
    }
}

async fn list(global: &Global) -> anyhow::Result<Exit> {
    let list: FileserverList = Client::new(global)?.get(&["fileservers"], &[]).await?;
    output::answer(global.output, &list, || {
        let columns = ["NAME", "RACK", "INTENT", "HEALTH", "COUNTS", "COPIES", "USED", "FREE"];
        output::table(&columns, list.fileservers.iter().map(cells))
    })?;
    Ok(Exit::Done)
}

fn cells(row: &FileserverRow) -> Vec<String> {
    vec![
        row.name.clone(),
        row.rack.clone(),
        row.intent.to_string(),
        row.health.to_string(),
        yes_no(row.counts).to_owned(),
        number(row.replicas),
        size(row.disk_used),
        size(row.disk_free),
    ]
}

async fn show(global: &Global, name: &str) -> anyhow::Result<Exit> {
    let one: FileserverShown = Client::new(global)?.get(&["fileservers", name], &[]).await?;
    let now = clock::now();
    output::answer(global.output, &one, || {
        let mut lines = vec![
            format!("name     {}", one.row.name),
            format!("rack     {}", one.row.rack),
            format!("agent    {}", one.url),
            format!("intent   {}", one.row.intent),
            format!("health   {} since {}", one.row.health, moment(one.health_since, now)),
            format!("seen     {}", moment_or_dash(one.seen_at, now)),
            format!("counts   {}", yes_no(one.row.counts)),
            format!("copies   {}", number(one.row.replicas)),
            format!(
                "disk     {} used, {} free, of {}",
                size(one.row.disk_used),
                size(one.row.disk_free),
                size(one.capacity)
            ),
            format!("git      {} processes", one.processes),
            format!(
                "versions trued {}, git {}",
                one.agent_version.as_deref().unwrap_or("-"),
                one.git_version.as_deref().unwrap_or("-")
            ),
        ];
        if let Some(since) = one.empty_since {
            let since = moment(since, now);
            lines.push(format!(
                "EMPTY    its root is another than the one that held its copies, since {since}"
            ));
        }
        lines.join("\n")
    })?;
    Ok(Exit::Done)
}

struct New {
    name: String,
    rack: String,
    url: String,
}

async fn add(
    global: &Global,
    new: New,
    database_url: Option<String>,
    change: Change,
) -> anyhow::Result<Exit> {
    let (part, secret) = enrolment::new_part(&new.name, Role::Agent)?;
    let database_url = database_url.map(|url| settings::database_url(global, Some(&url))).transpose()?;
    let enrolled: Enrolled = if let Some(url) = database_url {
        check_name("a fileserver", &new.name).map_err(|problem| Failure::usage(problem.message))?;
        let (db, fleet) = migrate::open_current(&url).await?;
        if !change.dry_run {
            fileservers::add(&db, &new.name, &new.rack, &new.url, &part).await?;
            let detail = serde_json::json!({ "rack": new.rack, "url": new.url });
            let (reason, subject) = (change.reason.as_deref(), new.name.as_str());
            let change = Audited { who: "local", what: "fileserver.add", subject, reason, detail };
            audit::append(&db, &change).await?;
        }
        let parts = parts::list(&db).await?;
        Enrolled { fleet: fleet.fleet_id, parts, checksum_key: Some(fleet.checksum_key) }
    } else {
        let ask = AddFileserver {
            name: new.name.clone(),
            rack: new.rack.clone(),
            url: new.url.clone(),
            public_key: part.public_key.clone(),
            reason: change.reason,
            dry_run: change.dry_run,
        };
        Client::new(global)?.post(&["fileservers"], &ask).await?
    };
    if change.dry_run {
        eprintln!("fileserver {} would be added in {}", new.name, new.rack);
        return Ok(Exit::Done);
    }
    let enrolment = enrolment::enrolment(enrolled.fleet, part, secret, enrolled.parts, enrolled.checksum_key);
    output::line(&serde_json::to_string_pretty(&enrolment)?);
    eprintln!("this is the enrolment of the agent of {}: keep it secret, it is shown once", new.name);
    Ok(Exit::Done)
}

async fn set_intent(global: &Global, name: &str, intent: Intent, change: Change) -> anyhow::Result<Exit> {
    let ask = SetIntent { intent, reason: change.reason, dry_run: change.dry_run };
    let changed: Changed = Client::new(global)?.put(&["fileservers", name, "intent"], &ask).await?;
    output::answer(global.output, &changed, || changed.message.clone())?;
    Ok(Exit::Done)
}
