//! Why something that another mobile router said about direct routes was not believed.

carnet_base::drop_reasons! {
    /// Why a message about direct routes had no effect.
    pub enum DirectDrop {
        /// It does not parse, or says nothing that makes sense.
        Malformed = "malformed",
        /// A prefix that is outside the configured networks, too short, ours, or another router's.
        BadPrefix = "bad_prefix",
        /// A home address that is none, or ours.
        HomeAddress = "home_address",
        /// A care-of address that is none, inside a mobile network, or not where the message came from.
        CareOfAddress = "care_of_address",
        /// An answer to nothing that was asked, or with another cookie.
        Unasked = "unasked",
        /// To an address that is not ours, or when there is nothing to tell.
        NotForUs = "not_for_us",
        /// A token of nonces that are no longer good (RFC 6275 5.2.7).
        Nonce = "nonce",
        /// The authenticator is another: not all the tokens were there (RFC 6275 9.5.1).
        Authenticator = "authenticator",
        /// The sequence number is not newer than the last one (RFC 6275 9.5.1).
        Sequence = "sequence",
        /// More routers or prefixes than are kept.
        TooMany = "too_many",
        /// Too many questions at a time.
        RateLimited = "rate_limited",
    }
}
