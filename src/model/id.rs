//! Numbers that name rows. Each noun has a type of its own, so that a repository's
//! number cannot be passed where a fileserver's is meant.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
            sqlx::Type,
        )]
        #[serde(transparent)]
        #[sqlx(transparent)]
        pub struct $name(pub i64);

        impl From<$name> for i64 {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A repository's number. Given once, never again; on disk it is the path.
    RepositoryId
);
id!(
    /// A fileserver's number.
    FileserverId
);
id!(
    /// A rack's number.
    RackId
);
id!(
    /// A finding's number.
    FindingId
);
id!(
    /// An attempt's number.
    AttemptId
);
id!(
    /// An evaluation's number.
    EvaluationId
);
