//! Reasons for which a message of a neighbouring router had no effect.

carnet_base::drop_reasons! {
    /// Reason for which an announcement, a test or a probe had no effect.
    pub enum MnppDrop {
        /// The message does not parse, or breaks the rules of RFC 4861 6.1.2.
        Malformed = "malformed",
        /// The prefix is no prefix of unicast addresses.
        BadPrefix = "bad_prefix",
        /// The prefix is shorter than the config permits.
        TooShort = "too_short",
        /// The prefix overlaps a prefix or address of this router or its home agent.
        OwnPrefix = "own_prefix",
        /// The table of stations, or of a station's prefixes, is full.
        TooMany = "too_many",
        /// An answer without a question, or with another cookie.
        Unasked = "unasked",
        /// The message names another station.
        NotForUs = "not_for_us",
        /// The asking station is out of range and cannot receive the answer.
        Unreachable = "unreachable",
        /// The message exceeds the rate of answers.
        RateLimited = "rate_limited",
    }
}
