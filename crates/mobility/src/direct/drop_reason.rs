//! Reasons for which a message of another mobile router about direct routes had no effect.

carnet_base::drop_reasons! {
    /// Reason for which a message about direct routes had no effect.
    pub enum DirectDrop {
        /// The message does not parse, or its values are inconsistent.
        Malformed = "malformed",
        /// A prefix that is outside the configured networks, too short, this router's own, or another
        /// router's.
        BadPrefix = "bad_prefix",
        /// A home address that is invalid, or this router's own.
        HomeAddress = "home_address",
        /// A care-of address that is invalid, inside a mobile network, or not the message's source.
        CareOfAddress = "care_of_address",
        /// An answer without an outstanding request, or with another cookie than the request.
        Unasked = "unasked",
        /// The destination is not this router, the message may not come over this path, or this router has no
        /// path for an answer.
        NotForUs = "not_for_us",
        /// A token whose nonce is no longer valid (RFC 6275 5.2.7).
        Nonce = "nonce",
        /// The authenticator is wrong: the sender lacked a token (RFC 6275 9.5.1).
        Authenticator = "authenticator",
        /// The sequence number is not newer than the last one (RFC 6275 9.5.1).
        Sequence = "sequence",
        /// The table of routers or of prefixes is full.
        TooMany = "too_many",
        /// The message names no key for encrypted sessions, and this router demands one.
        NoKey = "no_key",
        /// The message came in the clear or through the session of another key than the sender's.
        NotInSession = "not_in_session",
        /// The message is above the rate limit.
        RateLimited = "rate_limited",
    }
}
