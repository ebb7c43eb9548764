//! Reasons for which a message of a neighbouring router had no effect.

carnet_base::drop_reasons! {
    /// Reason for which an announcement, a test or a probe had no effect.
    pub enum MnppDrop {
        /// The message does not parse, or violates RFC 4861 6.1.2.
        Malformed = "malformed",
        /// The prefix is not in the range of unicast addresses.
        BadPrefix = "bad_prefix",
        /// The prefix is shorter than the config permits.
        TooShort = "too_short",
        /// The prefix overlaps a prefix or address of this router or its home agent.
        OwnPrefix = "own_prefix",
        /// The table of stations, or the list of a station's prefixes, is full.
        TooMany = "too_many",
        /// An answer without an outstanding request, or with another cookie than the request.
        Unasked = "unasked",
        /// The message names another station.
        NotForUs = "not_for_us",
        /// The sender is out of radio range and cannot receive the answer.
        Unreachable = "unreachable",
        /// The message is above the rate limit of answers.
        RateLimited = "rate_limited",
    }
}
