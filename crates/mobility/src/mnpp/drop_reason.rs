//! Why something that a neighbouring router said was not believed.

carnet_base::drop_reasons! {
    /// Why an announcement, a test or a probe had no effect.
    pub enum MnppDrop {
        /// It does not parse, or is not what RFC 4861 6.1.2 asks for.
        Malformed = "malformed",
        /// No prefix of unicast addresses.
        BadPrefix = "bad_prefix",
        /// A prefix that is shorter than is taken.
        TooShort = "too_short",
        /// It touches what is ours.
        OwnPrefix = "own_prefix",
        /// More stations, or more prefixes of one, than are kept.
        TooMany = "too_many",
        /// An answer to nothing that was asked, or with another cookie.
        Unasked = "unasked",
        /// It names another station.
        NotForUs = "not_for_us",
        /// A question of a station that is not there to hear the answer.
        Unreachable = "unreachable",
        /// Too many questions at a time.
        RateLimited = "rate_limited",
    }
}
