//! Reminders and the apalis backend over the attempts table; no other module names their types.
