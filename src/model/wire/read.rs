//! What a request for a read says beside its grant: how long its caller waits, and which filters it may use.

use crate::words;

/// How many milliseconds the caller still waits for the first byte. Whoever passes a request on sends less.
pub const DEADLINE_HEADER: &str = "trued-deadline-ms";

/// Kinds of filters that a fetch may ask for, separated by spaces; absent: none.
pub const FILTERS_HEADER: &str = "trued-filters";

words!(
    /// A kind of filter that a partial clone may ask for, as git names it.
    Filter, "filter" {
        /// No file's content.
        BlobNone = "blob:none",
        /// No file's content above a size.
        BlobLimit = "blob:limit",
        /// No trees below a depth.
        Tree = "tree",
        /// What a list of paths in the repository names.
        SparseOid = "sparse:oid",
        /// Objects of one type.
        ObjectType = "object:type",
        /// Several at once; each must be allowed.
        Combine = "combine",
    }
);

impl Filter {
    /// Filters as the header has them.
    #[must_use]
    pub fn join(filters: &[Self]) -> String {
        filters.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Those that a header names; words that are none are passed over.
    #[must_use]
    pub fn split(header: &str) -> Vec<Self> {
        header.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_come_back_from_their_header_and_nothing_else_does() {
        assert_eq!(Filter::split(&Filter::join(Filter::ALL)), Filter::ALL);
        assert_eq!(Filter::split("blob:none  -c core.x=y tree"), [Filter::BlobNone, Filter::Tree]);
        assert!(Filter::split("").is_empty());
    }
}
