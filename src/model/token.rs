//! Enums that stand as words in SQL, JSON, flags and prose: one macro, so that the
//! word is written once and reading an unknown one says which words are allowed.

/// A word that is not one of a state's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{noun} {found:?} is not one of: {allowed}")]
pub struct UnknownWord {
    /// What was being read, for example `intent`.
    pub noun: &'static str,
    /// The word that was found.
    pub found: String,
    /// The allowed words, separated by commas.
    pub allowed: String,
}

/// Defines an enum whose variants are words: `as_str`, `FromStr`, `Display`, serde and `ALL`.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $noun:literal { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// Every value, in the order in which they are written here.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word that SQL, JSON and flags use.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::model::token::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|one| one.as_str() == word).ok_or_else(|| {
                    $crate::model::token::UnknownWord {
                        noun: $noun,
                        found: word.to_owned(),
                        allowed: Self::ALL.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(", "),
                    }
                })
            }
        }
    };
}
