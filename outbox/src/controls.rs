//! Switches that turn one guard off, so that tests can show what it guards.
//!
//! They exist with the feature `testing` only; without it every guard is a constant `true`.

/// Which guards are on. All, unless a test says otherwise.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Controls {
    /// Publishers of one key wait for each other until commit.
    pub order_lock: bool,
    /// Who works in a lane holds its row's lock.
    pub lane_lock: bool,
    /// Row counts of every state change are checked.
    pub row_counts: bool,
    /// Inbox marks are written and read.
    pub inbox_marks: bool,
    /// A handler cannot commit or leave our transaction.
    pub commit_guard: bool,
    /// Behind a pooler each message has a savepoint of its own.
    pub secure_each: bool,
    /// SQLite transactions of ours begin as writers.
    pub immediate: bool,
    /// On a database with one writer, consumers leave it to others in between.
    pub give_way: bool,
    /// Commits wake the consumers of their process.
    pub wake_ups: bool,
    /// Who settles what was done under a lease still has it.
    pub lease_check: bool,
    /// Who settles a call still has the claim on its message.
    pub claim_check: bool,
    /// Leases are renewed.
    pub renewals: bool,
    /// Pruning removes only messages that no consumer may still get, and marks of such.
    pub prune_guard: bool,
    /// Pruning and registrations keep each other out.
    pub prune_lock: bool,
    /// Who removes a consumer waits for those who publish to it.
    pub drop_wait: bool,
}

impl Controls {
    /// Every guard on.
    pub const ALL: Self = Self {
        order_lock: true,
        lane_lock: true,
        row_counts: true,
        inbox_marks: true,
        commit_guard: true,
        secure_each: true,
        immediate: true,
        give_way: true,
        wake_ups: true,
        lease_check: true,
        claim_check: true,
        renewals: true,
        prune_guard: true,
        prune_lock: true,
        drop_wait: true,
    };
}
