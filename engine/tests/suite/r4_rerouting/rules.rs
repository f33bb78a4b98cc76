//! The rules under test, each of which can be left out alone.

/// One boolean per rule; `true` means that the server (or the client) keeps it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A destination does not apply a range that it remembers.
    pub(crate) entries_checked: bool,
    /// A range is named by its producer epoch as well as by its sequences.
    pub(crate) ranges_name_epoch: bool,
    /// A destination remembers five ranges per producer and source, not one.
    pub(crate) destinations_remember_five: bool,
    /// An acks=all answer waits for every destination, not for the source alone.
    pub(crate) closing_waits_for_destinations: bool,
    /// The answer to a duplicate waits for the same offsets as the original's.
    pub(crate) duplicates_wait: bool,
    /// A batch is appended nowhere before its predecessor is appended everywhere.
    pub(crate) no_append_before_previous: bool,
    /// After a failed batch the later ones are refused until it is in.
    pub(crate) failure_blocks_next: bool,
    /// A newer producer epoch fences older ones from the moment it is taken up, not from its closing entry.
    pub(crate) fence_at_take_up: bool,
    /// Recovery voids a closing entry whose destinations do not reach its offsets.
    pub(crate) void_incomplete_closing: bool,
    /// The void is in the log and synced before the bucket serves.
    pub(crate) void_is_durable: bool,
    /// The lowest void range becomes the expected one; complete later ranges stay duplicates.
    pub(crate) void_reopens_sequence: bool,
    /// Voiding takes the closing role away, but the rows in that log batch stay applied.
    pub(crate) void_keeps_rows: bool,
    /// A closing entry names each destination's leader epoch beside its end offset.
    pub(crate) closing_names_epoch: bool,
    /// A recovery point stops at a closing entry whose destinations are not durable.
    pub(crate) recovery_point_not_past_closing: bool,
    /// A bucket is a durable participant of the transaction before its first append.
    pub(crate) participant_first: bool,
    /// Ending a transaction stops the batches in progress before any marker is written.
    pub(crate) end_stops_appends: bool,
    /// A transaction is complete only when its markers are durable.
    pub(crate) complete_waits_for_markers: bool,
    /// The cleaner keeps the last five ranges of each role per producer and source.
    pub(crate) keep_last_five_in_cleaner: bool,
    /// The cleaner works below the last stable offset.
    pub(crate) cleaner_below_lso: bool,
    /// The cleaner counts only durable entries among its five: a crash takes the others.
    pub(crate) cleaner_counts_durable: bool,
    /// Five means five distinct ranges in each role: applied here, closed here.
    pub(crate) cleaner_counts_ranges: bool,
    /// A batch kept for its entries alone is no longer transactional once its marker may go.
    pub(crate) cleaner_settles_transactions: bool,
    /// A client that gives a batch up does not send later ones again under other numbers.
    pub(crate) client_never_renumbers: bool,
}

impl Rules {
    /// Every rule kept.
    pub(crate) const ALL: Rules = Rules {
        entries_checked: true,
        ranges_name_epoch: true,
        destinations_remember_five: true,
        closing_waits_for_destinations: true,
        duplicates_wait: true,
        no_append_before_previous: true,
        failure_blocks_next: true,
        fence_at_take_up: true,
        void_incomplete_closing: true,
        void_is_durable: true,
        void_reopens_sequence: true,
        void_keeps_rows: true,
        closing_names_epoch: true,
        recovery_point_not_past_closing: true,
        participant_first: true,
        end_stops_appends: true,
        complete_waits_for_markers: true,
        keep_last_five_in_cleaner: true,
        cleaner_below_lso: true,
        cleaner_counts_durable: true,
        cleaner_counts_ranges: true,
        cleaner_settles_transactions: true,
        client_never_renumbers: true,
    };
}
