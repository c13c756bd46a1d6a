//! Values that both engines take: sets of numbers, and rows as JSON.
//!
//! A set goes as an array to PostgreSQL (`= ANY($1)`) and as JSON text to SQLite
//! (`IN (SELECT value FROM json_each($1))`). Sets of rows go as JSON to both
//! (`jsonb_to_recordset($1)`, `json_each($1)`).

use super::{DatabaseError, Result};
use crate::model::checksum::Checksum;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo};
use sqlx::sqlite::{SqliteArgumentsBuffer, SqliteTypeInfo};
use sqlx::{Encode, Postgres, Sqlite, Type};
use std::fmt::Display;
use std::str::FromStr;

/// A set of numbers, for one parameter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ids(pub(crate) Vec<i64>);

/// A set of words, for one parameter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Words(pub(crate) Vec<String>);

macro_rules! set {
    ($name:ident, $item:ty) => {
        impl Type<Postgres> for $name {
            fn type_info() -> PgTypeInfo {
                <Vec<$item> as Type<Postgres>>::type_info()
            }
        }

        impl Type<Sqlite> for $name {
            fn type_info() -> SqliteTypeInfo {
                <String as Type<Sqlite>>::type_info()
            }
        }

        impl<'q> Encode<'q, Postgres> for $name {
            fn encode_by_ref(
                &self,
                buffer: &mut PgArgumentBuffer,
            ) -> std::result::Result<IsNull, BoxDynError> {
                <Vec<$item> as Encode<'q, Postgres>>::encode_by_ref(&self.0, buffer)
            }
        }

        impl<'q> Encode<'q, Sqlite> for $name {
            fn encode_by_ref(
                &self,
                buffer: &mut SqliteArgumentsBuffer,
            ) -> std::result::Result<IsNull, BoxDynError> {
                <String as Encode<'q, Sqlite>>::encode(serde_json::to_string(&self.0)?, buffer)
            }
        }
    };
}

set!(Ids, i64);
set!(Words, String);

/// Lower-case hexadecimal, for bytes inside JSON.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A word of a state, as it is in a row.
pub(crate) fn word<T>(text: &str) -> Result<T>
where
    T: FromStr,
    T::Err: Display,
{
    text.parse().map_err(|error: T::Err| DatabaseError::Unreadable(error.to_string()))
}

/// A checksum from its two columns.
pub(crate) fn checksum(sum: Option<&[u8]>, key: Option<i64>) -> Result<Option<Checksum>> {
    let (Some(sum), Some(key)) = (sum, key) else { return Ok(None) };
    Checksum::from_bytes(key, sum)
        .map(Some)
        .ok_or_else(|| DatabaseError::Unreadable("a checksum that is not 32 bytes long".to_owned()))
}

/// A small number that is kept in a BIGINT.
pub(crate) fn small(number: i64, what: &'static str) -> Result<u32> {
    u32::try_from(number).map_err(|_| DatabaseError::Unreadable(format!("{what} of {number}")))
}
