//! A database's URL: several servers in it, one of which is the one that may be written to. Pure text.

/// The URLs of one server each that a URL stands for: `postgres://me@one:5432,two:5433/trued` is two of them, in
/// their order. Others are themselves.
#[must_use]
pub fn each(url: &str) -> Vec<String> {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| scheme.starts_with("postgres"))
    else {
        return vec![url.to_owned()];
    };
    let (who, hosts, path) = parts(rest);
    hosts.split(',').map(|host| format!("{scheme}://{who}{host}{path}")).collect()
}

/// `user:password@`, hosts, and what follows. A password may hold an unescaped @: the last one before the path ends it.
fn parts(rest: &str) -> (&str, &str, &str) {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let hosts = rest[..end].rfind('@').map_or(0, |at| at + 1);
    (&rest[..hosts], &rest[hosts..end], &rest[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_several_servers_is_one_for_each() {
        assert_eq!(
            each("postgres://me:p,w@one:5432,two/trued?sslmode=require"),
            [
                "postgres://me:p,w@one:5432/trued?sslmode=require",
                "postgres://me:p,w@two/trued?sslmode=require"
            ]
        );
        assert_eq!(each("postgres:///trued?host=/run/pg"), ["postgres:///trued?host=/run/pg"]);
        assert_eq!(each("sqlite:a,b.db"), ["sqlite:a,b.db"]);
    }
}
