//! Limits, the backlog's verbs, and a backlog that stands still, as the commands ask for them.

use super::fixture;
use axum::http::StatusCode;
use serde_json::{Value, json};

// Elsewhere a limit of a hundred million once hung a store for eight hours.
#[tokio::test]
async fn a_limit_is_set_within_its_bounds_and_refused_beyond_them() {
    let fixture = fixture().await;
    let path = "/api/v1/limits/re-replicate.per_fileserver";
    let set = async |value: Option<&str>| {
        let ask = json!({ "value": value, "reason": "night shift" });
        fixture.ask("PUT", path, Some(ask)).await
    };
    let held = async || {
        let (_, list) = fixture.ask("GET", "/api/v1/limits", None).await;
        let rows = list["limits"].as_array().unwrap().clone();
        let one = rows.into_iter().find(|row| row["name"] == "re-replicate.per_fileserver").unwrap();
        (one["value"].as_i64().unwrap(), one["owner"].as_str().unwrap().to_owned())
    };
    assert_eq!(held().await, (4, "file".to_owned()));
    let (status, problem) = set(Some("100000000")).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::BAD_REQUEST, Some("bad-request")));
    let message = "re-replicate.per_fileserver: 100000000 is not within 1 to 1000; it stays 4";
    assert_eq!(problem["message"], message);
    assert_eq!(held().await, (4, "file".to_owned()));
    let (status, changed) = set(Some("9")).await;
    assert_eq!((status, changed["changed"].as_bool()), (StatusCode::OK, Some(true)));
    assert_eq!(changed["message"], "re-replicate.per_fileserver is 9 (run time); it was 4");
    assert_eq!(held().await, (9, "run time".to_owned()));
    let (_, row) = fixture.ask("GET", "/api/v1/repairs/re-replicate", None).await;
    assert_eq!(row["limits"][1]["value"], 9);
    set(None).await;
    assert_eq!(held().await, (4, "file".to_owned()));
    let ask = json!({ "value": "1", "reason": " " });
    assert_eq!(fixture.ask("PUT", path, Some(ask)).await.0, StatusCode::BAD_REQUEST);
    let ask = json!({ "value": "1", "reason": "x" });
    let (status, problem) = fixture.ask("PUT", "/api/v1/limits/re-replicate.per_rak", Some(ask)).await;
    assert_eq!(
        (status, problem["hint"].as_str()),
        (StatusCode::NOT_FOUND, Some("did you mean re-replicate.per_rack?"))
    );
}

#[tokio::test]
async fn the_backlogs_verbs_act_on_the_numbers_that_a_filter_gave() {
    let fixture = fixture().await;
    let crowd = crate::database::scratch::Crowd { fileservers: 9, open: 40, due: 3 };
    crowd.fill(&fixture.api.db).await.unwrap();
    let (_, page) =
        fixture.ask("GET", "/api/v1/backlog/ids?goal=copies-suffice&state=waiting&after=10", None).await;
    let ids = page["ids"].as_array().unwrap().clone();
    assert_eq!((ids.len(), &ids[0], page["next"].is_null()), (30, &json!(11), true));
    let ask = |more: Value| {
        let mut ask = json!({ "ids": ids, "reason": "the rack is back", "filter": "goal=copies-suffice" });
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Some(ask)
    };
    for (verb, more) in
        [("retry", json!({})), ("bump", json!({ "priority": 7 })), ("cancel", json!({ "wait_ms": 60_000 }))]
    {
        let (status, moved) = fixture.ask("POST", &format!("/api/v1/backlog/{verb}"), ask(more)).await;
        assert_eq!((status, moved["moved"].as_i64()), (StatusCode::OK, Some(30)), "{verb}: {moved}");
    }
    let (_, story) = fixture.ask("GET", "/api/v1/backlog/11", None).await;
    assert_eq!(story["open"]["priority"], 7);
    assert_eq!(story["open"]["waits"], "paused by local: the rack is back");
    assert_eq!(story["evidence"]["countable"], 2);
    assert_eq!(fixture.ask("GET", "/api/v1/backlog/999", None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        fixture.ask("POST", "/api/v1/backlog/bump", ask(json!({ "priority": 1_000 }))).await.0,
        StatusCode::BAD_REQUEST
    );
    let cancel = Some(json!({ "reason": "x" }));
    assert_eq!(fixture.ask("POST", "/api/v1/attempts/5/cancel", cancel).await.0, StatusCode::NOT_FOUND);
    let (_, list) = fixture.ask("GET", "/api/v1/attempts", None).await;
    assert_eq!(list["attempts"], json!([]));
}

#[tokio::test]
async fn work_that_could_go_on_and_does_not_is_named_with_what_binds_it() {
    let fixture = fixture().await;
    let crowd = crate::database::scratch::Crowd { fileservers: 9, open: 40, due: 30 };
    crowd.fill(&fixture.api.db).await.unwrap();
    let db = &fixture.api.db;
    crate::database::findings::promote_due(db, 100).await.unwrap();
    let said = async || {
        let (_, status) = fixture.ask("GET", "/api/v1/status", None).await;
        let details = status["health"]["details"].as_array().unwrap().clone();
        details
            .into_iter()
            .find(|one| one["code"] == "BACKLOG_STALLED")
            .map(|one| one["sentence"].to_string())
    };
    assert_eq!(said().await, None, "it could only now");
    fixture.scratch.age_ready(11 * 60_000).await.unwrap();
    let head = crate::database::findings::lane_head(db, crate::model::finding::Lane::from_sql(2), 9, 0)
        .await
        .unwrap();
    let limit = crate::model::finding::Deferral::RepairAtLimit { repair: "re-replicate".into(), limit: 400 };
    crate::database::findings::defer(db, &[(head[0].id, limit, None)]).await.unwrap();
    let sentence = said().await.unwrap();
    assert!(sentence.contains("30 findings could be repaired by re-replicate for 11 minutes"), "{sentence}");
    assert!(sentence.contains("repair re-replicate is at its limit of 400 attempts"), "{sentence}");
}
