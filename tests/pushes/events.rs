//! Everything that can happen next.

use super::copies::Content;
use super::state::{Push, Resync, Row, Rules, Settler, Slot, State, seats, with};
use trued::model::fleet::{Intent, ReplicaState};
use trued::model::id::{FileserverId, RackId};
use trued::model::push::{Ballot, Candidate, Fenced, Open, Settled, Verdict, choose, quorum, settle, tally};
use trued::model::wire::push::Vote;

/// An event, for people.
pub type Event = &'static str;

type Next = Vec<(Event, State)>;

/// All states that can follow.
pub fn successors(state: &State, rules: &Rules) -> Next {
    let mut next = Vec::new();
    for push in 0..2 {
        router(state, rules, push, &mut next);
    }
    for at in state.all() {
        if state.copies[at].prepared.is_some() {
            let given_up = with(state, |one| one.copies[at].prepared = None);
            next.push(("an agent gives up what it prepared", given_up));
        }
        resync(state, rules, at, &mut next);
    }
    take_over(state, rules, &mut next);
    for settler in 0..2 {
        settling(state, rules, settler, &mut next);
    }
    next
}

fn id(at: usize) -> FileserverId {
    FileserverId(i64::try_from(at).unwrap())
}

fn at(id: FileserverId) -> usize {
    usize::try_from(id.0).unwrap()
}

fn router(state: &State, rules: &Rules, push: usize, next: &mut Next) {
    match state.pushes[push] {
        Push::Idle => {
            let decided = Push::Decided { version: state.version, base: state.definitive };
            next.push(("a router reads the references", with(state, |one| one.pushes[push] = decided)));
        }
        Push::Decided { version, base } => {
            if version < state.version {
                let again = Push::Decided { version: state.version, base: state.definitive };
                next.push((
                    "a router reads the references again",
                    with(state, |one| one.pushes[push] = again),
                ));
            }
            if state.row.is_none() && (version == state.version || !rules.base) {
                open(state, rules, push, base, next);
            }
        }
        Push::Voting { version, base, epoch } => voting(state, rules, push, (version, base, epoch), next),
        Push::Committing { base, epoch, .. } => committing(state, rules, push, base, epoch, next),
        Push::Acknowledged | Push::Ended => {}
    }
}

/// Opens a push on every set of copies that may be ready.
fn open(state: &State, rules: &Rules, push: usize, base: Content, next: &mut Next) {
    for ready in 1_u8..1 << state.count {
        if state.all().any(|at| ready & 1 << at != 0 && !state.copies[at].in_sync) {
            continue;
        }
        let candidates: Vec<Candidate> =
            state.all().map(|at| candidate(state, at, ready & 1 << at != 0)).collect();
        let seats = if rules.seats { rules.initial_seats } else { ready.count_ones() };
        let Ok(chosen) = choose(&candidates, seats) else { continue };
        next.push((
            "a push is opened",
            with(state, |one| {
                one.epoch += 1;
                let new = base.with(push);
                let (version, epoch) = (one.version, one.epoch);
                one.row = Some(Row { push: u8::try_from(push).unwrap(), epoch, version, new });
                one.pushes[push] = Push::Voting { version, base, epoch };
                for voter in chosen.voters {
                    one.copies[at(voter)].votes = true;
                    one.copies[at(voter)].slots[push] = Slot::Asked;
                }
                for follower in chosen.followers {
                    one.copies[at(follower)].slots[push] = Slot::Follows;
                }
            }),
        ));
    }
}

fn candidate(state: &State, at: usize, ready: bool) -> Candidate {
    Candidate {
        fileserver: id(at),
        rack: RackId(i64::try_from(at).unwrap()),
        state: ReplicaState::Live,
        intent: Intent::Serve,
        counts: true,
        in_sync: state.copies[at].in_sync,
        ready,
    }
}

fn voting(
    state: &State,
    rules: &Rules,
    push: usize,
    (version, base, epoch): (u8, Content, u8),
    next: &mut Next,
) {
    let mine = u8::try_from(push).unwrap();
    for at in state.all() {
        let copy = &state.copies[at];
        // A vote that is lost is a prepare that is lost: what was prepared is given up.
        if copy.slots[push] == Slot::Asked && epoch > copy.fence && copy.prepared.is_none() {
            next.push((
                "a copy votes",
                with(state, |one| {
                    one.copies[at].prepared = Some((mine, epoch));
                    one.copies[at].slots[push] = Slot::Voted(one.copies[at].content);
                }),
            ));
        }
    }
    let new = base.with(push);
    let tally =
        tally(&ballots(state, rules, push, base), seats(state, rules), &base.checksum(), &new.checksum());
    if let Verdict::Commit { to } = tally.verdict {
        next.push((
            "a quorum agrees, and is told to commit",
            with(state, |one| {
                one.pushes[push] = Push::Committing { version, base, epoch };
                for copy in &mut one.copies {
                    copy.slots[push] = match copy.slots[push] {
                        Slot::Follows => Slot::Follows,
                        _ => Slot::Out,
                    };
                }
                for voter in to {
                    one.copies[at(voter)].slots[push] = Slot::Told;
                }
            }),
        ));
    }
    let ours = state.row.is_some_and(|row| row.epoch == epoch);
    next.push((
        "a router gives up its push",
        with(state, |one| {
            one.pushes[push] = Push::Ended;
            if ours {
                close(one);
                for stray in &tally.strayed {
                    one.copies[at(*stray)].in_sync = false;
                }
            }
            for copy in &mut one.copies {
                copy.slots[push] = Slot::Out;
            }
        }),
    ));
}

fn ballots(state: &State, rules: &Rules, push: usize, base: Content) -> Vec<(FileserverId, Ballot)> {
    let ballot = |at: usize| {
        let ballot = match state.copies[at].slots[push] {
            Slot::Asked => Ballot::Awaited,
            Slot::Voted(before) => {
                let before = if rules.base { before } else { base };
                let (after, before) = (before.with(push).checksum(), before.checksum());
                Ballot::Cast(Vote { before, after, journal_version: 0 })
            }
            _ => return None,
        };
        Some((id(at), ballot))
    };
    state.all().filter_map(ballot).collect()
}

fn committing(state: &State, rules: &Rules, push: usize, base: Content, epoch: u8, next: &mut Next) {
    let mine = u8::try_from(push).unwrap();
    for at in state.all() {
        let copy = &state.copies[at];
        if copy.slots[push] == Slot::Told {
            commit(state, push, at, copy.prepared == Some((mine, epoch)), next);
        }
        // One that follows prepares and commits in one breath, where it comes out equal.
        if copy.slots[push] == Slot::Follows {
            let may = epoch > copy.fence && copy.prepared.is_none() && copy.content == base;
            commit(state, push, at, may, next);
        }
    }
    let done = |at: &usize| state.copies[*at].slots[push] == Slot::Done;
    let voters = state.all().filter(|at| done(at) && state.copies[*at].votes).count();
    if voters < quorum(seats(state, rules)) as usize {
        return;
    }
    let ours = state.row.is_some_and(|row| row.epoch == epoch);
    next.push((
        "a router writes the outcome",
        with(state, |one| {
            one.pushes[push] = if ours { Push::Acknowledged } else { Push::Ended };
            if ours {
                let equal: Vec<bool> = one.copies.iter().map(|copy| copy.slots[push] == Slot::Done).collect();
                advance(one, base.with(push), &equal);
            }
        }),
    ));
}

/// A commit arrives; that it was done is heard, or not.
fn commit(state: &State, push: usize, at: usize, may: bool, next: &mut Next) {
    for heard in [true, false] {
        next.push((
            if heard { "a copy commits, and says so" } else { "a copy commits, and is not heard" },
            with(state, |one| {
                let version = match one.pushes[push] {
                    Push::Committing { version, .. } => version,
                    _ => 0,
                };
                let copy = &mut one.copies[at];
                copy.slots[push] = if may && heard { Slot::Done } else { Slot::Out };
                if may {
                    copy.content = copy.content.with(push);
                    copy.journal = version + 1;
                    copy.prepared = None;
                }
            }),
        ));
    }
}

fn close(state: &mut State) {
    state.row = None;
    for copy in &mut state.copies {
        copy.votes = false;
    }
}

/// Closes the row at the next version.
fn advance(state: &mut State, definitive: Content, equal: &[bool]) {
    let version = state.row.map_or(state.version, |row| row.version);
    close(state);
    state.version = version + 1;
    state.definitive = definitive;
    for (copy, equal) in state.copies.iter_mut().zip(equal) {
        copy.in_sync &= equal;
    }
}

fn take_over(state: &State, rules: &Rules, next: &mut Next) {
    let (Some(row), true) = (state.row, state.takeovers < rules.takeovers) else { return };
    next.push((
        "a push is taken over",
        with(state, |one| {
            let settler = usize::from(one.takeovers);
            one.takeovers += 1;
            one.epoch += 1;
            one.row = Some(Row { epoch: one.epoch, ..row });
            one.settlers[settler] = Settler::Fencing { epoch: one.epoch, new: row.new };
        }),
    ));
}

fn settling(state: &State, rules: &Rules, settler: usize, next: &mut Next) {
    match state.settlers[settler] {
        Settler::None => {}
        Settler::Fencing { epoch, new } => {
            for at in state.all() {
                fence(state, rules, settler, at, epoch, next);
            }
            if state.row.is_some_and(|row| row.epoch == epoch) {
                decide(state, rules, settler, epoch, new, next);
            }
        }
        Settler::Bringing { epoch, new } => bringing(state, rules, settler, epoch, new, next),
    }
}

fn fence(state: &State, rules: &Rules, settler: usize, at: usize, epoch: u8, next: &mut Next) {
    let copy = &state.copies[at];
    if copy.heard[settler].is_some() || epoch <= copy.fence {
        return;
    }
    next.push((
        "a copy is fenced, and tells what it has",
        with(state, |one| {
            let copy = &mut one.copies[at];
            copy.heard[settler] = Some((copy.content, copy.journal));
            if rules.fence {
                copy.fence = copy.fence.max(epoch - 1);
                copy.prepared = copy.prepared.filter(|(_, prepared)| *prepared >= epoch);
            }
        }),
    ));
}

fn decide(state: &State, rules: &Rules, settler: usize, epoch: u8, new: Content, next: &mut Next) {
    let voters: Vec<FileserverId> = state.all().filter(|at| state.copies[*at].votes).map(id).collect();
    let told = |at: usize| {
        let (content, journal) = state.copies[at].heard[settler]?;
        Some(Fenced { voter: id(at), checksum: Some(content.checksum()), journal_version: journal.into() })
    };
    let answers: Vec<Fenced> = state.all().filter_map(told).collect();
    let open = Open {
        base_version: state.version.into(),
        base: state.definitive.checksum(),
        new: new.checksum(),
        seats: seats(state, rules),
    };
    match settle(&voters, &answers, &open) {
        Settled::Wait | Settled::Person(_) => {}
        Settled::Aborted { equal, .. } => {
            next.push((
                "a push is settled: it does not stand",
                with(state, |one| {
                    let equal = with_followers(one, settler, &equal, one.definitive);
                    let definitive = one.definitive;
                    advance(one, definitive, &equal);
                    one.settlers[settler] = Settler::None;
                    one.settled[1] = true;
                }),
            ));
        }
        Settled::Committed { bring, equal, .. } => {
            next.push((
                "a push is to stand, and copies are brought to it",
                with(state, |one| {
                    one.settlers[settler] = Settler::Bringing { epoch, new };
                    for voter in &bring {
                        one.copies[at(*voter)].bring[settler] = true;
                    }
                    for voter in &equal {
                        one.copies[at(*voter)].equal[settler] = true;
                    }
                }),
            ));
        }
    }
}

/// Who is equal: voters that are, and others that told the same.
fn with_followers(state: &State, settler: usize, equal: &[FileserverId], content: Content) -> Vec<bool> {
    let follows = |at: usize| {
        let copy = &state.copies[at];
        !copy.votes && copy.heard[settler].is_some_and(|(heard, _)| heard == content)
    };
    (0..state.copies.len()).map(|at| equal.contains(&id(at)) || follows(at)).collect()
}

fn bringing(state: &State, rules: &Rules, settler: usize, epoch: u8, new: Content, next: &mut Next) {
    for at in state.all().filter(|at| state.copies[*at].bring[settler]) {
        if epoch <= state.copies[at].fence {
            continue;
        }
        for heard in [true, false] {
            next.push((
                "a copy is brought to a push that stands",
                with(state, |one| {
                    let version = one.row.map_or(0, |row| row.version);
                    let copy = &mut one.copies[at];
                    copy.bring[settler] = false;
                    copy.equal[settler] = heard;
                    copy.content = new;
                    copy.journal = copy.journal.max(version + 1);
                }),
            ));
        }
    }
    let equal: Vec<FileserverId> =
        state.all().filter(|at| state.copies[*at].equal[settler]).map(id).collect();
    let ours = state.row.is_some_and(|row| row.epoch == epoch);
    if ours && equal.len() >= quorum(seats(state, rules)) as usize {
        next.push((
            "a push is settled: it stands",
            with(state, |one| {
                let equal = with_followers(one, settler, &equal, new);
                advance(one, new, &equal);
                one.settled[0] = true;
            }),
        ));
    }
}

fn resync(state: &State, rules: &Rules, at: usize, next: &mut Next) {
    let copy = &state.copies[at];
    match copy.resync {
        Resync::None => {
            if copy.in_sync || state.resyncs >= rules.resyncs || copy.journal > state.version {
                return;
            }
            let mut sources: Vec<Content> = state
                .all()
                .filter(|at| state.copies[*at].in_sync)
                .map(|at| state.copies[at].content)
                .collect();
            sources.sort_unstable();
            sources.dedup();
            for source in sources {
                let fence = state.row.map_or(state.epoch, |row| row.epoch - 1);
                let (version, resyncs) = (state.version, state.resyncs + 1);
                next.push((
                    "a resync reads the version and a source",
                    with(state, |one| {
                        one.copies[at].resync = Resync::Read { version, fence, source };
                        one.resyncs = resyncs;
                    }),
                ));
            }
        }
        Resync::Read { version, fence, source } => {
            if copy.prepared.is_some_and(|(_, epoch)| epoch > fence) {
                return;
            }
            next.push((
                "a resync changes the copy, and takes its checksum behind the fence",
                with(state, |one| {
                    let copy = &mut one.copies[at];
                    if rules.fence {
                        copy.fence = copy.fence.max(fence);
                        copy.prepared = None;
                    }
                    copy.content = source;
                    copy.resync = Resync::Taken { version, content: source };
                }),
            ));
        }
        Resync::Taken { version, content } => {
            next.push((
                "a resync records what it took",
                with(state, |one| {
                    if one.row.is_none() && one.version == version {
                        one.copies[at].in_sync = content == one.definitive;
                    }
                    one.copies[at].resync = Resync::None;
                }),
            ));
        }
    }
}
