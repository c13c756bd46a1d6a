//! Pushes against real SQL and agents in memory: from a request's bytes to the report and what is left.

use super::pktline::{Packet, decode, encode, flush};
use super::testing::{Fleet, fleet, name, oid};
use super::{Answer, Pushed, advertise, receive_pack};
use crate::database::pushes;
use crate::database::scratch::Scratch;
use crate::model::checksum::Target;
use crate::model::wire::push::Command;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use std::sync::Arc;

/// Runs a test on SQLite, and on PostgreSQL where `TRUED_TEST_POSTGRES_URL` names a server.
macro_rules! on_each_engine {
    ($(async fn $name:ident($scratch:ident) $body:block)+) => { $(
        mod $name {
            use super::*;

            async fn body($scratch: Scratch) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                body(Scratch::sqlite().await.unwrap()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                if let Ok(url) = std::env::var("TRUED_TEST_POSTGRES_URL") {
                    body(Scratch::postgres(&url).await.unwrap()).await;
                }
            }
        }
    )+ };
}

mod clients;
mod settling;

const ALL: &str = "report-status side-band-64k";

fn none() -> String {
    oid('0')
}

/// The bytes of a push: commands as `old new name`, and a pack.
fn request(capabilities: &str, commands: &[(String, String, &str)], pack: &[u8]) -> Bytes {
    let mut text = BytesMut::new();
    for (index, (old, new, name)) in commands.iter().enumerate() {
        let words = if index == 0 { format!("\0{capabilities}") } else { String::new() };
        encode(&mut text, format!("{old} {new} {name}{words}").as_bytes());
    }
    flush(&mut text);
    text.extend_from_slice(pack);
    text.freeze()
}

fn create(name: &str) -> (String, String, &str) {
    (none(), oid('b'), name)
}

async fn send(fleet: &Fleet, body: Bytes) -> Answer {
    let pushed = Pushed { repository: fleet.repository.id, pusher: "p".to_owned() };
    receive_pack(&fleet.pushing, &pushed, futures::stream::iter([Ok(body)]).boxed()).await
}

async fn read(answer: Answer) -> (u16, Vec<u8>) {
    let chunks: Vec<Bytes> = answer.body.map(Result::unwrap).collect().await;
    assert!(!chunks.concat().is_empty(), "never an empty answer");
    (answer.status, chunks.concat())
}

/// The lines of a report in band 1; what is said in band 2 begins with `!`.
fn lines(text: &[u8]) -> Vec<String> {
    let packets = |text: &[u8]| {
        let mut buffer = BytesMut::from(text);
        std::iter::from_fn(move || decode(&mut buffer).unwrap()).collect::<Vec<_>>()
    };
    let (mut report, mut said) = (Vec::new(), Vec::new());
    for packet in packets(text) {
        match packet {
            Packet::Data(bytes) if bytes[0] == 1 => report.extend_from_slice(&bytes[1..]),
            Packet::Data(bytes) => said.push(format!("!{}", String::from_utf8_lossy(&bytes[1..]).trim())),
            Packet::Flush => {}
        }
    }
    for packet in packets(&report) {
        if let Packet::Data(bytes) = packet {
            said.push(String::from_utf8_lossy(&bytes).trim().to_owned());
        }
    }
    said
}

async fn push(fleet: &Fleet, commands: &[(String, String, &str)]) -> Vec<String> {
    let (status, text) = read(send(fleet, request(ALL, commands, b"PACKx")).await).await;
    assert_eq!(status, 200);
    lines(&text)
}

fn change(old: char, new: char) -> Vec<Command> {
    let target = |digit| Some(Target::Object(oid(digit)));
    vec![Command { name: name("refs/heads/main"), old: target(old), new: target(new) }]
}

on_each_engine! {
    async fn a_push_is_on_every_copy_before_its_client_reads_ok(scratch) {
        let fleet = fleet(scratch, 3).await;
        let said = push(&fleet, &[create("refs/heads/x"), (oid('a'), oid('c'), "refs/heads/main")]).await;
        assert_eq!(said, ["unpack ok", "ok refs/heads/x", "ok refs/heads/main"]);
        assert_eq!(fleet.on_disks("refs/heads/main"), [Some('c'); 3]);
        let now = fleet.now().await;
        assert_eq!((now.version, fleet.in_sync().await), (2, vec![true; 3]));
        assert_eq!(*fleet.disks.lock().unwrap().bytes.values().next().unwrap(), 5, "the pack, and nothing else");
        assert!(pushes::standing(fleet.db(), now.id).await.unwrap().ahead.is_none());
        let said = push(&fleet, &[(oid('b'), none(), "refs/heads/x")]).await;
        assert_eq!((said, fleet.now().await.version), (vec!["unpack ok".into(), "ok refs/heads/x".into()], 3));
    }

    async fn each_reference_stands_or_falls_by_its_own_old_value_and_atomic_ones_together(scratch) {
        let fleet = fleet(scratch, 3).await;
        let mixed = [create("refs/heads/x"), (oid('9'), oid('c'), "refs/heads/main")];
        let said = push(&fleet, &mixed).await;
        assert_eq!(said, ["unpack ok", "ok refs/heads/x", "ng refs/heads/main incorrect old value provided"]);
        let mixed = [create("refs/heads/y"), (oid('9'), oid('c'), "refs/heads/main")];
        let (_, text) = read(send(&fleet, request(&format!("{ALL} atomic"), &mixed, b"PACK")).await).await;
        assert_eq!(lines(&text)[1], "ng refs/heads/y atomic push failure");
        assert_eq!((fleet.on_disks("refs/heads/y"), fleet.now().await.version), (vec![None; 3], 2));
        let stale = push(&fleet, &[(oid('9'), oid('c'), "refs/heads/main")]).await;
        assert_eq!((stale.len(), fleet.now().await.version), (2, 2), "nothing stands, nothing is opened");
    }

    async fn one_copy_that_fails_at_any_step_is_left_behind_and_found(scratch) {
        let fleet = fleet(scratch, 3).await;
        for (round, trouble) in
            ["ingest refused", "pack refused", "prepare refused", "prepare silent", "finish refused", "references silent"]
                .iter().enumerate()
        {
            fleet.disks.lock().unwrap().troubles = [format!("fs-2 {trouble}")].into();
            let name = format!("refs/heads/x{round}");
            let said = push(&fleet, &[create(&name)]).await;
            assert_eq!(said[1], format!("ok {name}"), "{trouble}");
            let good = fleet.on_disks(&name).iter().flatten().count();
            assert!(good >= 2, "{trouble}: {good}");
            let (now, ids) = (fleet.now().await, &fleet.ids);
            let all = crate::database::repositories::replicas_of(fleet.db(), &[now.id]).await.unwrap();
            for replica in &all {
                let at = ids.iter().position(|id| *id == replica.fileserver_id).unwrap();
                let has = fleet.on_disks(&name)[at].is_some();
                assert!(!replica.in_sync || has, "{trouble}: fs-{} is in sync without it", at + 1);
            }
            heal(&fleet).await;
        }
    }

    async fn two_of_three_copies_that_fail_end_a_push_with_a_sentence_and_nothing_half_done(scratch) {
        let fleet = fleet(scratch, 3).await;
        for trouble in ["ingest refused", "prepare refused"] {
            fleet.disks.lock().unwrap().troubles = [format!("fs-1 {trouble}"), format!("fs-2 {trouble}")].into();
            let said = push(&fleet, &[create("refs/heads/x")]).await;
            assert!(said[1].starts_with("ng refs/heads/x ") && said[1].contains("try again"), "{said:?}");
            assert_eq!((fleet.on_disks("refs/heads/x"), fleet.now().await.version), (vec![None; 3], 1));
            assert_eq!(fleet.in_sync().await, [true; 3]);
        }
        fleet.disks.lock().unwrap().troubles = ["fs-1 pack refused".to_owned(), "fs-2 pack refused".to_owned()].into();
        let said = push(&fleet, &[create("refs/heads/x")]).await;
        assert_eq!(said[1..], ["unpack refused: rejected", "ng refs/heads/x unpacker error"]);
        fleet.disks.lock().unwrap().troubles.clear();
        assert_eq!(push(&fleet, &[create("refs/heads/x")]).await[1], "ok refs/heads/x");
    }

    async fn commits_that_are_not_heard_are_settled_before_the_client_is_told(scratch) {
        let fleet = fleet(scratch, 3).await;
        fleet.disks.lock().unwrap().troubles = ["fs-1 finish unheard".to_owned(), "fs-2 finish unheard".to_owned()].into();
        let said = push(&fleet, &[create("refs/heads/x")]).await;
        assert_eq!(said[1], "ok refs/heads/x", "all have it, and said so behind the fence");
        assert_eq!((fleet.now().await.version, fleet.in_sync().await), (2, vec![true; 3]));
        fleet.disks.lock().unwrap().troubles = ["fs-1 finish refused".to_owned(), "fs-2 finish refused".to_owned()].into();
        let said = push(&fleet, &[create("refs/heads/y")]).await;
        assert_eq!(said[1], "ok refs/heads/y", "one has it: the others are brought to it");
        assert_eq!(fleet.on_disks("refs/heads/y"), [Some('b'); 3]);
    }

    async fn a_copy_that_came_back_from_a_snapshot_does_not_vote(scratch) {
        let fleet = fleet(scratch, 3).await;
        assert_eq!(push(&fleet, &[create("refs/heads/x")]).await[1], "ok refs/heads/x");
        for number in [1, 2] {
            let gone = vec![Command { name: name("refs/heads/x"), old: None, new: None }];
            fleet.done_on(number, &gone);
        }
        let said = push(&fleet, &[create("refs/heads/y")]).await;
        // The third may not have said so when it is clear that no two can agree.
        assert!(said[1].starts_with("ng refs/heads/y ") && said[1].contains("of 3 copies agreed"), "{said:?}");
        assert_eq!(fleet.in_sync().await, [false, false, true], "the third wins, both are found");
    }

    async fn a_push_waits_for_the_one_before_and_settles_it_where_its_router_is_gone(scratch) {
        let fleet = fleet(scratch, 3).await;
        let before = change('a', 'd');
        fleet.left_open(&before, true).await;
        fleet.done_on(3, &before);
        let said = push(&fleet, &[create("refs/heads/x")]).await;
        assert_eq!(said[1], "ok refs/heads/x");
        assert_eq!(fleet.on_disks("refs/heads/main"), [Some('d'); 3], "one had it, so it stands");
        assert_eq!((fleet.now().await.version, fleet.in_sync().await), (3, vec![true; 3]));
        fleet.left_open(&change('d', 'e'), false).await;
        let said = push(&fleet, &[create("refs/heads/y")]).await;
        assert!(said[1].contains("waited 4 s for the push before"), "{said:?}");
    }

    async fn a_write_lock_and_a_protected_name_are_told_in_a_sentence(scratch) {
        let mut fleet = fleet(scratch, 3).await;
        let locked = "UPDATE repositories SET write_lock_until = (SELECT now FROM clock) + 9000, write_lock_reason = 'its copies are compared'";
        crate::database::on_writer!(fleet.db(), p => sqlx::query(locked).execute(p).await.map(drop)).unwrap();
        let said = push(&fleet, &[create("refs/heads/x")]).await;
        assert!(said[1].contains("nobody can push") && said[1].contains("its copies are compared"), "{said:?}");
        let unlocked = "UPDATE repositories SET write_lock_until = NULL";
        crate::database::on_writer!(fleet.db(), p => sqlx::query(unlocked).execute(p).await.map(drop)).unwrap();
        Arc::get_mut(&mut fleet.pushing).unwrap().settings.protected = vec!["refs/heads/main".to_owned()];
        let said = push(&fleet, &[create("refs/heads/x"), (oid('a'), oid('c'), "refs/heads/main")]).await;
        assert!(said[1] == "ok refs/heads/x" && said[2].contains("protected"), "{said:?}");
    }

    async fn a_client_that_breaks_off_and_one_that_sends_too_much_leave_nothing_behind(scratch) {
        let fleet = fleet(scratch, 3).await;
        let head = request(ALL, &[create("refs/heads/x")], b"PACK");
        let broken = futures::stream::iter([Ok(head), Err(std::io::Error::other("gone"))]).boxed();
        let pushed = Pushed { repository: fleet.repository.id, pusher: "p".to_owned() };
        assert_eq!(receive_pack(&fleet.pushing, &pushed, broken).await.status, 400);
        let large = vec![0_u8; (1 << 20) + 1];
        let (_, text) = read(send(&fleet, request(ALL, &[create("refs/heads/x")], &large)).await).await;
        assert!(lines(&text)[0].contains("is larger than 1048576 bytes"), "{:?}", lines(&text));
        assert_eq!((fleet.on_disks("refs/heads/x"), fleet.now().await.version), (vec![None; 3], 1));
        assert_eq!(push(&fleet, &[create("refs/heads/x")]).await[1], "ok refs/heads/x");
    }

    async fn probes_nonsense_and_unknown_repositories_are_answered(scratch) {
        let fleet = fleet(scratch, 3).await;
        assert_eq!(read(send(&fleet, Bytes::from_static(b"0000")).await).await, (200, b"0000".to_vec()));
        for nonsense in ["", "xxxx", "0009hello0000", "0032"] {
            assert_eq!(read(send(&fleet, Bytes::from(nonsense)).await).await.0, 400, "{nonsense}");
        }
        let pushed = Pushed { repository: crate::model::id::RepositoryId(99), pusher: "p".to_owned() };
        let body = futures::stream::iter([Ok(Bytes::from_static(b"0000"))]).boxed();
        assert_eq!(receive_pack(&fleet.pushing, &pushed, body).await.status, 404);
        assert_eq!(advertise(&fleet.pushing, pushed.repository, 0).await.status, 404);
        let (status, text) = read(advertise(&fleet.pushing, fleet.repository.id, 2).await).await;
        assert!(status == 200 && String::from_utf8_lossy(&text).contains("refs/heads/main"));
    }

    async fn two_routers_that_push_at_once_lose_nothing(scratch) {
        let fleet = fleet(scratch, 3).await;
        for round in 0..5 {
            let names: Vec<String> = (0..4).map(|one| format!("refs/heads/r{round}-{one}")).collect();
            let all = names.iter().map(|name| {
                let body = request(ALL, &[(none(), oid('b'), name.as_str())], b"PACK");
                async { read(send(&fleet, body).await).await.1 }
            });
            for (name, text) in names.iter().zip(futures::future::join_all(all).await) {
                assert_eq!(lines(&text)[1], format!("ok {name}"));
                let have = fleet.on_disks(name).iter().flatten().count();
                assert!(have >= 2, "{name} is on {have} copies");
            }
            heal(&fleet).await;
        }
        assert_eq!(fleet.now().await.version, 21);
    }
}

/// Brings every copy to what is definitive, as resync does.
async fn heal(fleet: &Fleet) {
    let now = fleet.now().await;
    fleet.disks.lock().unwrap().heal(now.checksum);
    let text = "UPDATE replicas SET in_sync = TRUE, out_of_sync_since = NULL, \
                checksum = (SELECT checksum FROM repositories), version = (SELECT version FROM repositories)";
    crate::database::on_writer!(fleet.db(), p => sqlx::query(text).execute(p).await.map(drop)).unwrap();
}
