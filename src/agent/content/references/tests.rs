use super::*;
use crate::agent::content::references::References;
use std::fs;

const ONE: &str = "1111111111111111111111111111111111111111";

fn parse(text: &str) -> Result<References, String> {
    References::parse(text.as_bytes(), ObjectFormat::Sha1)
}

#[test]
fn the_text_form_is_sorted_and_reads_back_as_it_was_written() {
    let text = format!("HEAD ref:refs/heads/main\n{ONE} refs/heads/b\nref:refs/heads/b refs/heads/a\n");
    let references = parse(&text).unwrap();
    let sorted = format!("HEAD ref:refs/heads/main\nref:refs/heads/b refs/heads/a\n{ONE} refs/heads/b\n");
    assert_eq!(references.to_text(), sorted.as_bytes());
    assert_eq!(parse(&sorted).unwrap(), references);
    assert_eq!(references.tips(), [ONE]);
}

#[test]
fn lists_that_no_repository_can_have_are_refused() {
    let zero = "0".repeat(40);
    let bad = [
        String::new(),
        "HEAD ref:refs/heads/main".to_owned(),
        format!("{ONE} refs/heads/a\n"),
        "HEAD ref:../config\n".to_owned(),
        "HEAD ref:FETCH_HEAD\n".to_owned(),
        format!("HEAD {ONE}0\n"),
        format!("HEAD {ONE}\n{ONE} ../x\n"),
        format!("HEAD {ONE}\n{ONE} refs/heads/../../config\n"),
        format!("HEAD {ONE}\n{zero} refs/heads/a\n"),
        format!("HEAD {ONE}\n{ONE} refs/heads/a\n{ONE} refs/heads/a\n"),
        format!("HEAD {ONE}\n{ONE} refs/heads/a\n{ONE} refs/heads/a-b\n{ONE} refs/heads/a/b\n"),
        format!("HEAD {ONE}\nref:/etc/passwd refs/heads/a\n"),
        format!("HEAD {ONE}\n{ONE}\n"),
    ];
    for text in bad {
        assert!(parse(&text).is_err(), "{text:?}");
    }
}

fn repository() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("refs/heads")).unwrap();
    fs::write(place.path().join("HEAD"), "ref: refs/heads/main\n").unwrap();
    place
}

fn read(place: &tempfile::TempDir) -> Result<References, crate::model::wire::Refusal> {
    References::read(place.path(), ObjectFormat::Sha1)
}

#[test]
fn a_loose_reference_hides_a_packed_one_and_locks_are_none() {
    let place = repository();
    let two = "2".repeat(40);
    fs::write(
        place.path().join("packed-refs"),
        format!(
            "# pack-refs with: peeled fully-peeled sorted \n{ONE} refs/heads/a\n^{two}\n{ONE} refs/heads/b\n"
        ),
    )
    .unwrap();
    fs::write(place.path().join("refs/heads/b"), format!("{two}\n")).unwrap();
    fs::write(place.path().join("refs/heads/c.lock"), "").unwrap();
    let found = read(&place).unwrap();
    let expected = format!("HEAD ref:refs/heads/main\n{ONE} refs/heads/a\n{two} refs/heads/b\n");
    assert_eq!(String::from_utf8(found.to_text()).unwrap(), expected);
}

#[test]
fn packed_references_that_git_would_misread_are_damage() {
    let place = repository();
    let bad = [
        format!("{ONE} refs/heads/a\n{ONE} refs/heads"),
        format!("{ONE} refs/heads/b\n{ONE} refs/heads/a\n"),
        format!("{ONE} refs/heads/a\n{ONE} refs/heads/a\n"),
        format!("{ONE}  refs/heads/a\n"),
        format!("^{ONE}\n"),
        format!("{} refs/heads/a\n", "0".repeat(40)),
        format!("{ONE} refs/heads/a\n\n"),
        "\0\0\0\0".to_owned(),
    ];
    for text in bad {
        fs::write(place.path().join("packed-refs"), &text).unwrap();
        let refusal = read(&place).unwrap_err();
        assert_eq!(refusal.code, crate::model::wire::RefusalCode::Damaged, "{text:?}");
    }
}
