//! The list of all keys.

use super::value::Kind;

/// One key of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// `section.key`.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// Its value where nobody gives one.
    pub default: &'static str,
    /// Whether it is masked where it is shown.
    pub secret: bool,
    /// What it is for, and why its default is what it is.
    pub reason: &'static str,
}

const fn key(name: &'static str, kind: Kind, default: &'static str, reason: &'static str) -> Key {
    Key { name, kind, default, secret: false, reason }
}

const fn secret(name: &'static str, kind: Kind, default: &'static str, reason: &'static str) -> Key {
    Key { name, kind, default, secret: true, reason }
}

/// Every key, in the order of `config/trued.toml`.
pub const KEYS: &[Key] = &[
    secret(
        "database.url",
        Kind::DatabaseUrl,
        "",
        "Where the fleet is remembered: sqlite:PATH or postgres://USER:PASSWORD@HOST/NAME. Empty: none; `trued up` then keeps a file below its data directory. Several servers: postgres://USER@ONE:5432,TWO:5432/NAME; the one that takes writes is used. TLS: ?sslmode=verify-full&sslrootcert=FILE.",
    ),
    key(
        "database.password_file",
        Kind::Text,
        "",
        "File with the password of database.url, read at the start. Empty: the one in the URL, if any.",
    ),
    secret(
        "database.goals_url",
        Kind::DatabaseUrl,
        "",
        "The same PostgreSQL database as a role that may only read, for goals. Empty: the role that `trued migrate` makes, whose password is kept in the database.",
    ),
    key(
        "http.listen",
        Kind::Address,
        "127.0.0.1:7080",
        "Address of the API. Loopback only, because this version knows no tokens.",
    ),
    key(
        "http.drain",
        Kind::Duration,
        "2s",
        "How long the API still answers, and says that it is not ready, when it is asked to stop: balancers look in that time.",
    ),
    key("goals.directory", Kind::Text, "goals", "Directory of goal files."),
    key(
        "goals.schedule",
        Kind::Schedule,
        "0 */2 * * * *",
        "When goals that name no schedule are evaluated: cron with seconds, UTC. Two minutes: copies take longer than that to be made, so looking more often finds little.",
    ),
    key(
        "goals.poll",
        Kind::Duration,
        "5s",
        "How often goal and repair files are looked at for edits: an edit shows in `status` within this.",
    ),
    key(
        "goals.parallel",
        Kind::Count { min: 1, max: 64 },
        "4",
        "Goals evaluated at a time by one controller: each has a session of its own on the database.",
    ),
    key("repairs.directory", Kind::Text, "repairs", "Directory of repair files."),
    key(
        "fleet.grace",
        Kind::Duration,
        "30m",
        "How long a fileserver may be offline, summed over flaps, before its replicas stop to count and are copied elsewhere. Longer than a reboot with a disk check.",
    ),
    key(
        "fleet.rack_grace",
        Kind::Duration,
        "60m",
        "How long a rack of at least two fileservers that fell silent as a whole is waited for before its replicas are copied elsewhere: a switch or a fuse comes back.",
    ),
    key(
        "fleet.fill_limit",
        Kind::Count { min: 10, max: 100 },
        "90",
        "Percent of a disk that new copies may fill. The rest is for pushes to what is there.",
    ),
    key("observe.period", Kind::Duration, "10s", "How often each agent is asked for its status."),
    key(
        "observe.timeout",
        Kind::Duration,
        "1s",
        "How long a status may take. With a second between questions after a miss, a death is seen within 13 s.",
    ),
    key("dispatch.period", Kind::Duration, "1s", "How often findings become attempts."),
    key(
        "dispatch.in_flight",
        Kind::Count { min: 1, max: 10_000 },
        "2000",
        "Attempts queued or running in the whole fleet: the rest waits as findings, where people see why.",
    ),
    key(
        "worker.concurrency",
        Kind::Count { min: 1, max: 256 },
        "16",
        "Attempts that one worker runs at a time. The work is the agents': a worker mostly waits.",
    ),
    key(
        "worker.lease",
        Kind::Duration,
        "60s",
        "How long a silent worker keeps an attempt. Renewed at a third of it.",
    ),
    key(
        "worker.shutdown_grace",
        Kind::Duration,
        "30s",
        "How long a worker that was asked to stop lets attempts end before it gives them back. `trued up` waits 5 s unless this is set: somebody sits before it.",
    ),
    key(
        "worker.listen",
        Kind::MaybeAddress,
        "",
        "Address of a worker's pages /livez, /readyz and /metrics, on loopback. Empty: none.",
    ),
    key(
        "worker.exec",
        Kind::Switch,
        "true",
        "Whether this worker runs operators' own programs (exec repairs). Only those that its own repair files name run, and only where nobody but root or its own user can write them. false: their attempts are left to other workers.",
    ),
    key(
        "queue.sweep",
        Kind::Duration,
        "1s",
        "How often SQL is looked at for queued attempts whose reminder was lost.",
    ),
    secret(
        "queue.redis",
        Kind::RedisUrl,
        "",
        "Redis 6.2 or newer, or Valkey, that carries reminders between processes: redis://HOST:PORT, or rediss:// for TLS. Empty: none; workers of other processes than the controller's then find attempts by looking at SQL, and what a router's push left behind waits for the next evaluation.",
    ),
    key(
        "queue.redis_password_file",
        Kind::Text,
        "",
        "File with the password of Redis, read at each connecting. Empty: the one in the URL, if any.",
    ),
    key(
        "queue.window",
        Kind::Count { min: 1, max: 100_000 },
        "2000",
        "Most reminders that Redis holds; older ones give way, and a sweep finds their attempts. As many as attempts in flight.",
    ),
    key(
        "pressure.round_trip",
        Kind::Duration,
        "100ms",
        "A database that takes longer for a question and its answer is slow: dispatch and evaluation go down to half their pace, again and again, and come back in steps. Ten times what a loaded database in the next rack takes.",
    ),
    key(
        "pressure.lag",
        Kind::Duration,
        "30s",
        "A standby that is further behind counts as a slow database. 0s: nobody minds.",
    ),
    key(
        "audit.slice",
        Kind::Count { min: 0, max: 10_000_000 },
        "100000",
        "Ids that the audit adds to the suspects at a time, so that what their cheap set misses is found; 0: no audit. 100,000 cost about a second, and cover 38 million in half a day.",
    ),
    key(
        "audit.period",
        Kind::Duration,
        "2m",
        "How long a slice of the audit stands. No shorter than the longest time between two evaluations of goals over suspects, so that each is asked about every slice.",
    ),
    key(
        "retention.findings",
        Kind::Duration,
        "90d",
        "How long closed findings are kept: a quarter, so that a repository's story can be told.",
    ),
    key(
        "retention.attempts",
        Kind::Duration,
        "90d",
        "How long ended attempts are kept, with the findings that they were for. Limits need those of the last hour: two hours are kept in any case.",
    ),
    key(
        "retention.evaluations",
        Kind::Duration,
        "30d",
        "How long evaluations are kept. Twenty goals every two minutes make 430,000 rows in that time.",
    ),
    key(
        "retention.pushes",
        Kind::Duration,
        "7d",
        "How long closed pushes are kept, with their commands: a week, so that it can be told who changed what. A push is a row.",
    ),
    key(
        "retention.audit",
        Kind::Duration,
        "400d",
        "How long it is kept who changed what, and why: a year, and a month to look at it.",
    ),
    key(
        "push.protected",
        Kind::Text,
        "",
        "References that no client's push may change, by full name, with spaces between; one that ends in * means all that begin so: refs/heads/release/*. Judged once, in the router. Empty: none.",
    ),
    key(
        "push.policy",
        Kind::Text,
        "",
        "Who else judges pushes, once for all copies: the absolute path of a program, or an http:// address. It is told the pusher, the repository, the options and the commands as JSON, and says yes by exit status 0 or 2xx, no by its last line (docs/routers.md). Empty: nobody.",
    ),
    key("push.policy_timeout", Kind::Duration, "5s", "How long its answer is waited for. No answer is no."),
    key(
        "push.policy_objects",
        Kind::Switch,
        "false",
        "Whether it reads what is pushed. It is asked later then, when enough copies have the objects, and is told a URL at which git reads them on one of these (docs/routers.md).",
    ),
    key(
        "push.largest",
        Kind::Size,
        "10GiB",
        "Largest pack of one push; 0: no bound but the disks'. It is never held in memory, but every copy has to store, check and sync it.",
    ),
    key(
        "push.references",
        Kind::Count { min: 1, max: 1_000_000 },
        "100000",
        "Most references that one push may change. 50,000 new files take a copy 16 s to prepare, and everybody else who pushes there waits.",
    ),
    key(
        "push.line",
        Kind::Duration,
        "30s",
        "How long a push waits for the ones before it in the same repository. Then it is refused with a sentence.",
    ),
    key(
        "push.lease",
        Kind::Duration,
        "20s",
        "How long an open push is its router's without a renewal; then any router or worker may settle it. Renewed at a third of it.",
    ),
    key(
        "push.stall",
        Kind::Duration,
        "10s",
        "How long a copy may take no byte of a pack that its router has for it: then the push goes on without that copy.",
    ),
    key(
        "router.listen",
        Kind::Address,
        "127.0.0.1:7070",
        "Address that Git clients' requests come to, over plain HTTP. Credentials travel as git sends them: put whatever ends TLS before it, or listen on a network that you trust.",
    ),
    key(
        "router.pages",
        Kind::MaybeAddress,
        "",
        "Address of a router's pages /livez, /readyz and /metrics, on loopback. Empty: none.",
    ),
    key(
        "router.url",
        Kind::HttpUrl,
        "",
        "Where clients reach the routers, as `repo show` gives it out: https://git.example. Empty: `repo show` names no address to clone from, but under `trued up`.",
    ),
    key(
        "router.rack",
        Kind::Text,
        "",
        "Name of the rack that this router stands in: reads go to a copy in the same one where there is a good one. Empty: none.",
    ),
    key(
        "router.requests",
        Kind::Count { min: 1, max: 65_536 },
        "512",
        "Requests that one router serves at a time; more are told at once to come again. Each may hold 128 KiB of an answer back, so this bounds memory as well.",
    ),
    key(
        "router.deadline",
        Kind::Duration,
        "15s",
        "How long a read may take to its first byte, all tries together. Longer than an agent that has to wait for its turn.",
    ),
    key(
        "router.patience",
        Kind::Duration,
        "4s",
        "How long one copy may take to the first byte while there are others to be tried. Git answers in milliseconds, or in a second where it has a million references to list.",
    ),
    key(
        "router.overload",
        Kind::Count { min: 1, max: 10_000 },
        "32",
        "Load average from which a fileserver is read from only where no other copy is to be had.",
    ),
    key(
        "router.sql_away",
        Kind::Duration,
        "5m",
        "How long reads go on from the last known rows while the database is away: what was renamed, removed or forbidden there is not seen meanwhile. 0s: not at all. Pushes never do.",
    ),
    key(
        "router.remembered",
        Kind::Count { min: 0, max: 10_000_000 },
        "50000",
        "Repositories whose last known rows a router keeps for that time. About a kilobyte each.",
    ),
    key(
        "router.filters",
        Kind::Filters,
        "blob:none blob:limit tree object:type combine",
        "Filters that partial clones may ask for, separated by spaces. sparse:oid is left out: it costs a walk through every tree. Empty: no partial clones.",
    ),
    key(
        "router.anonymous_reads",
        Kind::Switch,
        "false",
        "Whether everybody may read every repository. `trued up` lets them on loopback unless this is set.",
    ),
    key(
        "router.anonymous_writes",
        Kind::Switch,
        "false",
        "Whether everybody may read and push to every repository: for a machine of one's own. `trued up` lets them on loopback unless this is set.",
    ),
    key(
        "router.token_file",
        Kind::Text,
        "",
        "File of tokens: a line each, NAME, sha256:DIGEST of the token, read or write, and patterns of repositories. Read again when it changes. Empty: none.",
    ),
    key(
        "router.authorizer",
        Kind::HttpUrl,
        "",
        "Address that is asked whether somebody may read or write a repository: 2xx yes, 401 and 403 no. Over http:// only: on loopback, or a network that you trust. Empty: nobody is asked.",
    ),
    key(
        "router.authorizer_cache",
        Kind::Duration,
        "10s",
        "How long such an answer is believed: a clone asks two or three times. So long a right that was taken away may still be used. 0s: it is asked each time.",
    ),
    key(
        "router.shutdown_grace",
        Kind::Duration,
        "30s",
        "How long running clones may go on when a router is asked to stop.",
    ),
    key(
        "agent.capacity",
        Kind::Size,
        "0",
        "Bytes that an agent says it has; 0: the whole disk. For several agents on one disk.",
    ),
    key(
        "agent.bytes_per_second",
        Kind::Size,
        "0",
        "Bytes per second that all copies of one fileserver share, in and out, whatever each repair allows; 0: no bound. Two thirds of its line leave room for clones and pushes.",
    ),
    key(
        "agent.reads",
        Kind::Count { min: 1, max: 10_000 },
        "256",
        "Reads by git that one agent serves at a time; more wait, and are then refused as busy.",
    ),
    key(
        "agent.push_packs",
        Kind::Count { min: 1, max: 10_000 },
        "64",
        "Packs of pushes that one agent takes in at a time; more wait ten seconds, and are then refused as busy.",
    ),
    key(
        "agent.pushes",
        Kind::Count { min: 1, max: 100_000 },
        "1024",
        "Pushes that one agent keeps between their announcement and their end. Each holds its objects, and a list of its commands.",
    ),
    key(
        "agent.push_wait",
        Kind::Duration,
        "10m",
        "How long an agent keeps the objects of a push that nobody goes on with. Longer than a push waits in line.",
    ),
    key(
        "agent.fsck",
        Kind::Text,
        "",
        "What is made of faults in pushed objects, as fault=severity with commas between; severities are ignore, warn and error, faults those of `git help fsck`. Empty: git's own. What was accepted once is never judged again.",
    ),
    key("agent.sweep", Kind::Duration, "10s", "Shortest time between two sweeps of an agent's inventory."),
];

/// The key of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// `; did you mean …?` or a list of what is allowed, for an unknown key.
#[must_use]
pub fn suggestion(unknown: &str) -> String {
    let near = KEYS
        .iter()
        .map(|key| (strsim::jaro_winkler(unknown, key.name), key.name))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.8);
    if let Some((_, name)) = near {
        return format!("did you mean {name}?");
    }
    let section = unknown.split('.').next().unwrap_or_default();
    let in_section: Vec<_> =
        KEYS.iter().filter(|key| key.name.split('.').next() == Some(section)).map(|key| key.name).collect();
    if in_section.is_empty() {
        let mut sections: Vec<_> = KEYS.iter().filter_map(|key| key.name.split('.').next()).collect();
        sections.dedup();
        format!("sections are: {}", sections.join(", "))
    } else {
        format!("keys there are: {}", in_section.join(", "))
    }
}
