use super::*;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};

const GOOD: &str = "-- goal: one\n-- summary: One.\n-- subject: repository\n-- repair: mend\n--\nSELECT id AS repository_id FROM racks\n";

struct Place {
    dir: tempfile::TempDir,
    source: Source,
}

async fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let options =
        sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path().join("db")).create_if_missing(true);
    let mut connection: SqliteConnection = options.connect().await.unwrap();
    sqlx::query("CREATE TABLE racks (id BIGINT, name TEXT)").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let source = Source::new(&format!("sqlite:{}", dir.path().join("db").display())).unwrap();
    std::fs::create_dir(dir.path().join("goals")).unwrap();
    Place { dir, source }
}

impl Place {
    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.goals().join(name), text).unwrap();
    }

    fn goals(&self) -> PathBuf {
        self.dir.path().join("goals")
    }

    async fn load(&self) -> Library {
        let repairs = BTreeMap::from([("mend".to_owned(), SubjectKind::Repository)]);
        Library::load(&self.goals(), self.source.clone(), repairs).await.unwrap()
    }
}

fn error<'a>(library: &'a Library, name: &str) -> &'a str {
    library.get(name).unwrap().error.as_deref().unwrap()
}

#[tokio::test]
async fn a_missing_directory_is_an_error() {
    let place = place().await;
    let nowhere = place.dir.path().join("nowhere");
    assert!(Library::load(&nowhere, place.source.clone(), Repairs::new()).await.is_err());
    place.put("one.sql", GOOD);
    let mut library = place.load().await;
    std::fs::rename(place.goals(), &nowhere).unwrap();
    assert!(library.reload().await.is_err());
    assert_eq!(library.running().count(), 1, "what runs goes on");
}

#[tokio::test]
async fn what_is_no_goal_file_is_passed_over() {
    let place = place().await;
    for name in
        ["one.sql~", ".one.sql.swp", ".#one.sql", "#one.sql", "README.md", "one.sql.bak", ".hidden.sql"]
    {
        place.put(name, "nonsense");
    }
    std::fs::create_dir(place.goals().join("tests.sql")).unwrap();
    assert_eq!(place.load().await.entries().count(), 0);
}

#[tokio::test]
async fn a_variant_takes_the_place_of_the_common_text_on_its_engine() {
    let place = place().await;
    place.put("one.sql", &GOOD.replace("One.", "Common."));
    place.put("one.sqlite.sql", &GOOD.replace("One.", "Of SQLite."));
    place.put("one.postgres.sql", "not for this engine");
    place.put("two.postgres.sql", "not for this engine");
    let library = place.load().await;
    assert_eq!(library.get("one").unwrap().running.as_ref().unwrap().summary, "Of SQLite.");
    assert!(error(&library, "two").contains("there is no text for sqlite"));
}

#[tokio::test]
async fn two_goals_of_one_name_are_refused() {
    let place = place().await;
    place.put("one.sql", GOOD);
    place.put("two.sql", GOOD);
    let library = place.load().await;
    assert!(library.get("one").unwrap().running.is_some());
    assert!(library.get("two").unwrap().running.is_none());
    assert!(error(&library, "two").contains("two.sql:1:10: goal \"one\" must have the name of its file"));
}

#[tokio::test]
async fn unknown_repairs_and_subjects_that_they_do_not_take_are_refused() {
    let place = place().await;
    place.put("one.sql", &GOOD.replace("mend", "mned"));
    place.put(
        "two.sql",
        &GOOD
            .replace("one", "two")
            .replace("SELECT id AS repository_id", "SELECT name AS key")
            .replace("repository", "key"),
    );
    let library = place.load().await;
    assert!(error(&library, "one").contains("one.sql:4:4: unknown repair \"mned\"; did you mean \"mend\"?"));
    assert!(
        error(&library, "two").contains("repair mend is done to a repository, and this goal is about a key")
    );
}

#[tokio::test]
async fn the_last_good_version_stays_until_a_better_one_or_none_is_there() {
    let place = place().await;
    place.put("one.sql", GOOD);
    let mut library = place.load().await;
    assert!(!library.reload().await.unwrap(), "nothing changed");
    place.put("one.sql", &GOOD.replace("id AS", "ident AS"));
    assert!(library.reload().await.unwrap());
    assert!(
        error(&library, "one").contains("one.sql:6:8: no such column: ident"),
        "{}",
        error(&library, "one")
    );
    assert_eq!(library.get("one").unwrap().running.as_ref().unwrap().summary, "One.");
    assert!(!library.reload().await.unwrap(), "the same error is no change");
    place.put("one.sql", &GOOD.replace("One.", "Better."));
    assert!(library.reload().await.unwrap());
    assert_eq!(library.get("one").unwrap().error, None);
    assert_eq!(library.get("one").unwrap().running.as_ref().unwrap().summary, "Better.");
}

/// Removing a goal closes its findings: a slip, or half of an edit, must not.
#[tokio::test]
async fn a_goal_whose_file_is_gone_runs_on_for_a_while_and_says_so() {
    let place = place().await;
    place.put("one.sql", GOOD);
    place.put("bad.sql", "nonsense");
    let mut library = place.load().await;
    std::fs::remove_file(place.goals().join("one.sql")).unwrap();
    std::fs::remove_file(place.goals().join("bad.sql")).unwrap();
    assert!(library.reload().await.unwrap());
    assert!(
        error(&library, "one")
            .contains("one.sql: the file is gone; the goal itself goes 10 minutes after it")
    );
    assert_eq!(library.running().count(), 1);
    assert!(library.get("bad").is_none(), "what never ran goes at once");
    assert!(!library.reload().await.unwrap(), "said once");
    place.put("one.sql", GOOD);
    assert!(library.reload().await.unwrap());
    assert_eq!(library.get("one").unwrap().error, None);
    std::fs::remove_file(place.goals().join("one.sql")).unwrap();
    library.reload().await.unwrap();
    library.gone_after = Duration::ZERO;
    assert!(library.reload().await.unwrap());
    assert!(library.get("one").is_none());
}

#[tokio::test]
async fn a_renamed_file_and_a_swapped_link_keep_the_last_good_version() {
    let place = place().await;
    place.put("one.sql", GOOD);
    let mut library = place.load().await;
    std::fs::rename(place.goals().join("one.sql"), place.goals().join("other.sql")).unwrap();
    library.reload().await.unwrap();
    assert!(error(&library, "one").contains("the file is gone"));
    assert!(error(&library, "other").contains("must have the name of its file"));
    assert_eq!(library.running().count(), 1);
    std::fs::remove_file(place.goals().join("other.sql")).unwrap();
    // As those do it that swap a link to a directory of a whole configuration.
    let (first, second) = (place.dir.path().join("first.sql"), place.dir.path().join("second.sql"));
    std::fs::write(&first, GOOD.replace("One.", "First.")).unwrap();
    std::fs::write(&second, GOOD.replace("id AS", "ident AS")).unwrap();
    let link = place.goals().join("one.sql");
    let swap = |target: &Path| {
        let fresh = place.goals().join(".one.new");
        std::os::unix::fs::symlink(target, &fresh).unwrap();
        std::fs::rename(&fresh, &link).unwrap();
    };
    swap(&first);
    library.reload().await.unwrap();
    assert_eq!(library.get("one").unwrap().running.as_ref().unwrap().summary, "First.");
    for (target, said) in
        [(second.as_path(), "no such column: ident"), (Path::new("nowhere.sql"), "No such file")]
    {
        swap(target);
        assert!(library.reload().await.unwrap());
        assert!(error(&library, "one").contains(said), "{}", error(&library, "one"));
        assert_eq!(library.get("one").unwrap().running.as_ref().unwrap().summary, "First.");
    }
    place.put("one.sql~", "nonsense");
    assert!(!library.reload().await.unwrap(), "an editor's backup is no goal");
}

#[tokio::test]
async fn an_engine_that_is_away_is_asked_again() {
    let place = place().await;
    place.put("one.sql", GOOD);
    let (db, away) = (place.dir.path().join("db"), place.dir.path().join("away"));
    std::fs::rename(&db, &away).unwrap();
    let mut library = place.load().await;
    assert!(library.get("one").unwrap().running.is_none());
    std::fs::rename(&away, &db).unwrap();
    assert!(library.reload().await.unwrap());
    assert_eq!(library.get("one").unwrap().error, None);
    assert!(library.get("one").unwrap().running.is_some());
}

#[tokio::test]
async fn a_file_that_is_not_text_or_endless_is_an_error_and_nothing_else() {
    let place = place().await;
    std::fs::write(place.goals().join("one.sql"), [0xff, 0xfe, 0]).unwrap();
    place.put("two.sql", &"-".repeat(MAX_FILE_BYTES + 1));
    place.put("three.sql", "");
    let library = place.load().await;
    assert!(error(&library, "one").contains("not UTF-8"));
    assert!(error(&library, "two").contains("longer than"));
    assert!(error(&library, "three").contains("the file is empty"));
}

#[tokio::test]
async fn a_file_in_the_middle_of_being_saved_is_not_taken() {
    let place = place().await;
    let whole = format!("{GOOD} WHERE id < 7\n");
    place.put("one.sql", &whole);
    let mut library = place.load().await;
    // The first half is a good query of its own, and would return everything.
    place.put("one.sql", GOOD);
    let saving = async {
        tokio::time::sleep(SETTLING / 2).await;
        place.put("one.sql", &whole.replace("One.", "Saved."));
    };
    let ((), reloaded) = tokio::join!(saving, library.reload());
    reloaded.unwrap();
    assert!(library.get("one").unwrap().running.as_ref().unwrap().sql.contains("WHERE id < 7"));
    library.reload().await.unwrap();
    assert_eq!(library.get("one").unwrap().running.as_ref().unwrap().summary, "Saved.");
}

fn known(ended: &str) -> GoalStatus {
    GoalStatus {
        goal: "one".into(),
        state: crate::model::goal::GoalState::Met,
        findings: 0,
        at_least: false,
        evaluated_at: Some(1),
        finished_at: Some(1),
        took_ms: None,
        error: None,
        failures: 0,
        file_error: None,
        digest: None,
        ended: Some(ended.into()),
        gave_way: None,
        gave_way_at: None,
    }
}

#[tokio::test]
async fn what_other_controllers_found_out_of_an_edit_counts_here() {
    let place = place().await;
    place.put("one.sql", GOOD);
    let mut library = place.load().await;
    let digest = |library: &Library| library.get("one").unwrap().running.as_ref().unwrap().digest.clone();
    let first = digest(&library);
    assert!(!library.is_open());
    place.put("one.sql", &GOOD.replace("One.", "Two."));
    library.reload().await.unwrap();
    let second = digest(&library);
    library.heed(&[known(&first)]);
    assert!(library.is_open() && library.before("one").is_some(), "nothing is known of it");
    let other = GoalStatus { gave_way: Some(second.clone()), digest: Some("x".into()), ..known(&first) };
    library.heed(&[other]);
    assert_eq!(digest(&library), second, "to another version than the one that is known here");
    let why = Some("one.sql:6:1: timed out".to_owned());
    let gave_way = GoalStatus {
        gave_way: Some(second.clone()),
        digest: Some(first.clone()),
        file_error: why.clone(),
        ..known(&first)
    };
    library.heed(std::slice::from_ref(&gave_way));
    let entry = library.get("one").unwrap();
    assert_eq!((digest(&library), &entry.error, &entry.gave_way), (first.clone(), &why, &Some(second)));

    place.put("one.sql", &GOOD.replace("One.", "Three."));
    library.reload().await.unwrap();
    let entry = library.get("one").unwrap();
    assert_eq!((&entry.error, &entry.gave_way), (&None, &None));
    library.heed(&[gave_way]);
    let third = digest(&library);
    assert_ne!(third, first, "that was another edit");
    library.heed(&[known(&third)]);
    assert!(!library.give_way("one", &third, "timed out"), "it came to its end elsewhere");
}

#[tokio::test]
async fn a_library_that_never_saw_the_version_before_falls_back_on_it_too() {
    let place = place().await;
    place.put("one.sql", GOOD);
    let fallbacks = Fallbacks::default();
    let mut first = place.load().await.with(&fallbacks);
    place.put("one.sql", &GOOD.replace("One.", "Two."));
    let mut second = place.load().await.with(&fallbacks);
    first.reload().await.unwrap();
    let digest = |library: &Library| library.get("one").unwrap().running.as_ref().unwrap().digest.clone();
    let edit = digest(&first);
    assert!(!second.is_open());
    assert!(first.give_way("one", &edit, "timed out"));
    let running = digest(&first);
    let state = GoalStatus { digest: Some(running.clone()), gave_way: Some(edit), ..known(&running) };
    assert!(second.is_open());
    second.heed(&[state]);
    assert_eq!(digest(&second), running);
}

#[tokio::test]
async fn a_goal_that_never_came_to_an_end_goes_with_its_file() {
    let place = place().await;
    place.put("one.sql", GOOD);
    let mut library = place.load().await;
    library.heed(&[]);
    assert!(library.get("one").is_some(), "its file is there");
    std::fs::remove_file(place.goals().join("one.sql")).unwrap();
    library.reload().await.unwrap();
    library.heed(&[known("x")]);
    assert!(library.get("one").is_some(), "it may have findings");
    library.heed(&[GoalStatus { finished_at: None, ..known("x") }]);
    assert!(library.get("one").is_none());
}

#[tokio::test]
async fn a_database_that_nobody_configured_is_refused() {
    let place = place().await;
    place.put("one.sql", &GOOD.replace("repair: mend", "database: fleat"));
    assert!(
        error(&place.load().await, "one")
            .contains("one.sql:4:4: unknown database \"fleat\"; did you mean \"fleet\"? (databases: fleet)")
    );
}

#[tokio::test]
async fn a_version_that_never_ends_gives_way_to_the_one_before_and_one_that_did_once_does_not() {
    let place = place().await;
    place.put("one.sql", GOOD);
    let mut library = place.load().await;
    let digest = |library: &Library| library.get("one").unwrap().running.as_ref().unwrap().digest.clone();
    let why = format!("{}: timed out after 2s", place.goals().join("one.sql").display());
    let first = digest(&library);
    assert!(!library.give_way("one", &first, &why), "there is none before it");

    place.put("one.sql", &GOOD.replace("FROM racks", "FROM racks WHERE id > 1"));
    assert!(library.reload().await.unwrap());
    let second = digest(&library);
    assert!(!library.give_way("one", &first, &why), "it does not run any more");
    assert!(library.give_way("one", &second, &why));
    assert_eq!(digest(&library), first);
    assert!(
        error(&library, "one").contains("one.sql:6:1: timed out after 2s, and"),
        "{}",
        error(&library, "one")
    );
    assert!(!library.reload().await.unwrap(), "until the file has another text");

    place.put("one.sql", &GOOD.replace("FROM racks", "FROM racks WHERE id > 2"));
    assert!(library.reload().await.unwrap());
    let third = digest(&library);
    library.ended("one", &third);
    assert!(!library.give_way("one", &third, &why), "it is slow today");
    assert_eq!((digest(&library), library.get("one").unwrap().error.as_deref()), (third, None));
}
