//! Packing a copy anew: everything in reach in one pack with a bitmap, what is out of reach in another that remembers
//! ages, an index over both, a commit-graph.
//!
//! New files are made and synced before an old one goes. Old packs go only when nobody reads the copy: no client's
//! git, no copy that is being made from it; else they stay, and the next packing takes them. What is out of reach is
//! kept for 14 days, loose or packed: a push that is under way may need it.

use super::objects::{At, LONG, broken, refused};
use super::packs::{self, Objects};
use super::{disk, hygiene, is_held, opened};
use crate::agent::git::Pace;
use crate::agent::store::{Store, Work};
use crate::clock;
use crate::model::fleet::ObjectFormat;
use crate::model::id::RepositoryId;
use crate::model::wire::{Progress, Refusal, RefusalCode, RepackAnswer};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How long what is out of reach is kept.
const KEPT: &str = "14.days.ago";
/// So many packs are few enough: one, and one of what is out of reach.
const FEW_PACKS: usize = 2;
/// So many loose objects are few enough.
const FEW_LOOSE: i64 = 100;
/// How long the end of all reads is waited for.
const READS_END: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_mins(2) };

/// Packs one copy.
pub(super) async fn repack(store: &Store, id: RepositoryId, work: &Work) -> Result<RepackAnswer, Refusal> {
    let copy = opened::open(store, id).await?;
    let lock = store.layout.lock(id);
    let at = At { git: &store.git, repository: &copy.path, lock: Some(&lock), cancel: &work.cancel };
    let packing = Packing { store, id, at, work, format: copy.format };
    let done = packing.run().await;
    // Whatever was done was the agent's own doing, also when it was cut short.
    store.touched(id).await;
    done
}

struct Packing<'a> {
    store: &'a Store,
    id: RepositoryId,
    at: At<'a>,
    work: &'a Work,
    format: ObjectFormat,
}

impl Packing<'_> {
    async fn run(&self) -> Result<RepackAnswer, Refusal> {
        let before = self.look().await?;
        let _room = self.store.reserve(before.bytes())?;
        let has_bitmap = before.files.iter().any(|file| file.path.ends_with(".bitmap"));
        let tidy = before.packs.len() <= FEW_PACKS && before.loose <= FEW_LOOSE && has_bitmap;
        let left = if tidy { 0 } else { self.pack(&before).await? };
        self.index().await?;
        let after = self.look().await?;
        let path = self.path();
        let bytes = disk::blocking(move || Ok(disk::usage(&path))).await?;
        Ok(RepackAnswer {
            bytes,
            packs: i64::try_from(after.packs.len()).unwrap_or(i64::MAX),
            loose: after.loose,
            indexed: after.indexed || after.packs.is_empty(),
            message: sentence(&before, &after, left),
        })
    }

    /// Clears what dead gits left, checks what is there, and counts it.
    async fn look(&self) -> Result<Objects, Refusal> {
        let (path, format) = (self.path(), self.format);
        disk::blocking(move || {
            hygiene::remove_unfinished(&path)?;
            let objects = packs::scan(&path)?;
            packs::check_trailers(&path, &objects.packs, format)?;
            Ok(objects)
        })
        .await
    }

    /// Makes new packs and deletes the old ones; how many of those had to stay.
    async fn pack(&self, before: &Objects) -> Result<usize, Refusal> {
        let reach = self.in_reach().await?;
        let old: BTreeSet<String> = before.packs.difference(&reach).cloned().collect();
        let rest = self.out_of_reach(&reach, &old).await?;
        let new: BTreeSet<String> = reach.union(&rest).cloned().collect();
        self.sync().await?;
        let old: BTreeSet<String> = old.difference(&new).cloned().collect();
        let Some(_alone) = self.alone().await? else { return Ok(old.len()) };
        self.drop_index().await?;
        self.unlink(old).await?;
        self.loosen().await?;
        Ok(0)
    }

    /// Everything that references lead to, in one pack with a bitmap.
    async fn in_reach(&self) -> Result<BTreeSet<String>, Refusal> {
        let arguments =
            ["pack-objects", "--all", "--write-bitmap-index", "--non-empty", "--delta-base-offset", "-q"];
        self.pack_objects(&arguments, b"", "packing what is in reach").await
    }

    /// What no reference leads to, and is not too old yet, with the age of each object.
    async fn out_of_reach(
        &self,
        reach: &BTreeSet<String>,
        old: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, Refusal> {
        let kept = format!("--cruft-expiration={KEPT}");
        let arguments =
            ["pack-objects", "--cruft", &kept, "--non-empty", "--delta-base-offset", "--no-progress", "-q"];
        let stay = reach.iter().map(|stem| format!("{stem}.pack\n"));
        let go = old.iter().map(|stem| format!("-{stem}.pack\n"));
        let input: String = stay.chain(go).collect();
        self.pack_objects(&arguments, input.as_bytes(), "packing what is out of reach").await
    }

    async fn pack_objects(
        &self,
        arguments: &[&str],
        input: &[u8],
        doing: &str,
    ) -> Result<BTreeSet<String>, Refusal> {
        let mut arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        arguments.push("objects/pack/pack".into());
        let command = self.at.git.command(Some(self.at.repository), arguments);
        let command = match self.at.lock {
            Some(lock) => command.holding(lock.to_path_buf()),
            None => command,
        };
        let told = |how: &str, worked: Duration| self.say(format!("{doing}, {how}: {} s", worked.as_secs()));
        let mut git = command.spawn().map_err(|error| broken(&error))?;
        if let Some(mut stdin) = git.stdin.take() {
            use tokio::io::AsyncWriteExt as _;
            // A git that reads no more says why by its exit.
            let _ = stdin.write_all(input).await;
            let _ = stdin.shutdown().await;
        }
        let answer = git.finish_at(Pace::default(), LONG, self.at.cancel, told).await;
        let answer = answer.map_err(|error| broken(&error))?;
        if !answer.ok() {
            return Err(refused(RefusalCode::Damaged, &answer));
        }
        let text = String::from_utf8_lossy(&answer.stdout);
        Ok(text.split_whitespace().map(|hash| format!("pack-{hash}")).collect())
    }

    /// An index over all packs, and a commit-graph.
    async fn index(&self) -> Result<(), Refusal> {
        self.say("writing indexes".to_owned());
        let objects = self.look().await?;
        if objects.packs.is_empty() {
            return Ok(());
        }
        let all: Vec<String> = objects.packs.iter().map(|stem| format!("{stem}.idx\n")).collect();
        let arguments = ["multi-pack-index", "write", "--no-progress", "--stdin-packs"].map(OsString::from);
        self.at.demand(arguments.to_vec(), all.concat().as_bytes(), RefusalCode::Damaged).await?;
        let arguments = ["commit-graph", "write", "--reachable", "--no-progress"].map(OsString::from);
        self.at.demand(arguments.to_vec(), b"", RefusalCode::Damaged).await?;
        self.sync().await
    }

    /// Takes the copy whole, once nobody reads it; none: somebody does, all the while.
    async fn alone(&self) -> Result<Option<crate::agent::holds::Hold>, Refusal> {
        let until = Instant::now() + READS_END;
        loop {
            if let Some(hold) = self.store.holds.delete(self.id)
                && !is_held(self.store, self.id, clock::now())
            {
                return Ok(Some(hold));
            }
            if Instant::now() > until {
                return Ok(None);
            }
            self.say("waiting for reads to end".to_owned());
            tokio::select! {
                () = self.at.cancel.cancelled() => return Err(super::peer::cancelled()),
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
        }
    }

    /// The index over packs names those that go: it goes first, and is written anew.
    async fn drop_index(&self) -> Result<(), Refusal> {
        let directory = self.path().join("objects/pack");
        disk::blocking(move || {
            remove_if(&directory, |name| name.starts_with("multi-pack-index"))?;
            disk::sync_directory(&directory)
        })
        .await
    }

    /// Unlinks packs: what names objects goes first, so that no git that begins now looks for one in a pack without.
    async fn unlink(&self, old: BTreeSet<String>) -> Result<(), Refusal> {
        let directory = self.path().join("objects/pack");
        disk::blocking(move || {
            for ending in ["idx", "bitmap", "rev", "mtimes", "keep", "pack"] {
                remove_if(&directory, |name| {
                    name.rsplit_once('.').is_some_and(|(stem, end)| end == ending && old.contains(stem))
                })?;
            }
            disk::sync_directory(&directory)
        })
        .await
    }

    /// Loose objects that are packed now go, and those that nobody has needed for 14 days.
    async fn loosen(&self) -> Result<(), Refusal> {
        let arguments = ["prune-packed", "-q"].map(OsString::from).to_vec();
        self.at.demand(arguments, b"", RefusalCode::Damaged).await?;
        let expire = format!("--expire={KEPT}");
        let arguments = ["prune", "--no-progress", &expire].map(OsString::from).to_vec();
        self.at.demand(arguments, b"", RefusalCode::Damaged).await
    }

    async fn sync(&self) -> Result<(), Refusal> {
        let objects = self.path().join("objects");
        disk::blocking(move || {
            disk::sync_tree(&objects.join("pack"))?;
            let info = objects.join("info");
            if info.is_dir() { disk::sync_tree(&info) } else { Ok(()) }
        })
        .await
    }

    fn path(&self) -> PathBuf {
        self.at.repository.to_path_buf()
    }

    fn say(&self, phase: String) {
        (self.work.progress)(Progress { phase, bytes: 0, total: 0 });
    }
}

fn remove_if(directory: &Path, goes: impl Fn(&str) -> bool) -> Result<(), Refusal> {
    let entries =
        std::fs::read_dir(directory).map_err(|error| disk::refusal("cannot list", directory, &error))?;
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(&goes) {
            let path = entry.path();
            std::fs::remove_file(&path).map_err(|error| disk::refusal("cannot remove", &path, &error))?;
        }
    }
    Ok(())
}

fn sentence(before: &Objects, after: &Objects, left: usize) -> String {
    let stay = match left {
        0 => String::new(),
        left => format!("; {left} old packs stay, the copy was read all the while"),
    };
    format!(
        "{} packs and {} loose objects became {} and {}{stay}",
        before.packs.len(),
        before.loose,
        after.packs.len(),
        after.loose
    )
}
