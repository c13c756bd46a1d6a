//! `trued config`, and reading the configuration for every command that needs it.

use super::args::{ConfigCommand, ConfigVerb, Global};
use super::failure::{Exit, Failure};
use super::output;
use crate::config::value::mask_url;
use crate::config::{Config, GoalSetting, Layers};
use crate::goal::setting::Setting;
use std::path::{Path, PathBuf};
use std::sync::Once;

pub mod goals;

/// Where a system's own configuration is.
const SYSTEM: &str = "/etc/trued/trued.toml";

/// Some commands read the configuration more than once; what does nothing in it is told once.
static TOLD: Once = Once::new();

/// The layers below the flags.
///
/// # Errors
/// On the first thing that is wrong.
pub fn layers(global: &Global) -> anyhow::Result<Layers> {
    // A name or value that is not text cannot be a key of ours: it is passed over, not refused.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let layers = Layers::load(Path::new(SYSTEM), global.config.as_deref(), environment)?;
    TOLD.call_once(|| layers.strays().for_each(|(_, why)| tracing::warn!("{why}")));
    Ok(layers)
}

/// Layers with flags over them; those not given are passed over.
///
/// # Errors
/// On the first thing that is wrong.
pub fn with_flags(
    global: &Global,
    flags: &[(&str, &str, Option<String>)],
) -> anyhow::Result<(Layers, Config)> {
    let mut layers = layers(global)?;
    for (flag, key, value) in flags {
        if let Some(value) = value {
            layers.flag(flag, key, value)?;
        }
    }
    let config = Config::from_layers(&layers)?;
    Ok((layers, config))
}

/// The database that flags or the configuration name, for commands that need one.
///
/// # Errors
/// When none is named.
pub fn database_url(global: &Global, flag: Option<&str>) -> anyhow::Result<String> {
    let (_, config) = with_flags(global, &[("--database-url", "database.url", flag.map(ToOwned::to_owned))])?;
    required(config.database_url)
}

/// The URL, if it is one.
///
/// # Errors
/// When none is named.
pub fn required(url: String) -> anyhow::Result<String> {
    if url.is_empty() {
        return Err(Failure::usage("no database is named")
            .hint("give --database-url, TRUED_DATABASE__URL, or database.url in the configuration")
            .into());
    }
    Ok(url)
}

/// A directory of shipped files: as configured, else (for the default) beside the program's own sources or
/// where a package puts it.
#[must_use]
pub fn shipped(layers: &Layers, key: &str, configured: &Path) -> PathBuf {
    if !layers.is_default(key) || configured.is_dir() {
        return configured.to_owned();
    }
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.ancestors().skip(1).take(4).map(|above| above.join(configured));
    beside
        .chain([Path::new("/usr/share/trued").join(configured)])
        .find(|path| path.is_dir())
        .unwrap_or_else(|| configured.to_owned())
}

/// `trued config check` and `show`.
///
/// # Errors
/// When something is wrong.
pub fn run(global: &Global, ask: &ConfigCommand) -> anyhow::Result<Exit> {
    let layers = layers(global)?;
    let config = Config::from_layers(&layers)?;
    match &ask.verb {
        ConfigVerb::Check => {
            goals::check(global, &config)?;
            let given = layers.shown().iter().filter(|(key, ..)| !layers.is_default(key.name)).count();
            output::line(&format!("the configuration is good; {given} keys are not at their default"));
        }
        ConfigVerb::Show { origin } => show(global, &layers, *origin)?,
    }
    Ok(Exit::Done)
}

/// What the configuration sets over a goal.
#[must_use]
pub fn setting(one: GoalSetting) -> Setting {
    Setting { goal: one.goal, name: one.name, value: one.value, origin: one.origin }
}

fn show(global: &Global, layers: &Layers, origins: bool) -> anyhow::Result<()> {
    let keys = layers.shown().into_iter().map(|(key, value, origin)| (key.name.to_owned(), value, origin));
    let databases = layers
        .databases()
        .map(|(name, url, origin)| (format!("databases.{name}.url"), mask_url(url), origin.clone()));
    let shown: Vec<_> = keys.chain(databases).collect();
    let json: serde_json::Map<_, _> = shown
        .iter()
        .map(|(name, value, origin)| {
            let value = if origins {
                serde_json::json!({ "value": value, "origin": origin.to_string() })
            } else {
                serde_json::json!(value)
            };
            (name.clone(), value)
        })
        .collect();
    output::answer(global.output, &json, || {
        let lines = shown.iter().map(|(name, value, origin)| {
            let line = format!("{name} = {value:?}");
            if origins { format!("{line:<50} # {origin}") } else { line }
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}
