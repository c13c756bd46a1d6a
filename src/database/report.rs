//! Statements that answer people: status, backlog, why, lists.
