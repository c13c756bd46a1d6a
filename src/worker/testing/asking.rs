//! What the tables of a fleet in memory say, asked apart from the code under test.

use super::Fleet;

impl Fleet {
    pub(in crate::worker) async fn history(&self) -> (String, String) {
        let text = "SELECT outcome, message FROM attempt_history ORDER BY id DESC LIMIT 1";
        if self.scratch.url().starts_with("sqlite:") {
            let pool = sqlx::SqlitePool::connect(self.scratch.url()).await.unwrap();
            return sqlx::query_as(text).fetch_one(&pool).await.unwrap();
        }
        let pool = sqlx::PgPool::connect(self.scratch.url()).await.unwrap();
        sqlx::query_as(text).fetch_one(&pool).await.unwrap()
    }

    /// The one number that a statement answers; a change answers one by RETURNING.
    pub(in crate::worker) async fn number(&self, text: &'static str) -> i64 {
        if self.scratch.url().starts_with("sqlite:") {
            let pool = sqlx::SqlitePool::connect(self.scratch.url()).await.unwrap();
            return sqlx::query_scalar(text).fetch_one(&pool).await.unwrap();
        }
        let pool = sqlx::PgPool::connect(self.scratch.url()).await.unwrap();
        sqlx::query_scalar(text).fetch_one(&pool).await.unwrap()
    }

    /// Forgets all findings, as an evaluation does that returns none.
    pub(in crate::worker) async fn resolve(&self) {
        let text = "DELETE FROM findings WHERE id > 0 RETURNING id";
        self.number(text).await;
    }
}
