//! Reasons for which a registration of an address had no effect.

carnet_base::drop_reasons! {
    /// Why a message about a care-of address of a router behind this one had no effect.
    pub enum NestingDrop {
        /// The message fails the tests of RFC 4861 7.1, or comes from no link-local address.
        NeighborDiscovery = "neighbor_discovery",
        /// The address is in no offered prefix.
        NotOffered = "not_offered",
        /// Another node has the address.
        Duplicate = "duplicate",
        /// The address has been registered over another path since.
        Stale = "stale",
        /// The table of addresses is full.
        TooMany = "too_many",
        /// An answer without a question, or not from the router that was asked.
        Unexpected = "unexpected",
        /// The message exceeds the rate.
        RateLimited = "rate_limited",
    }
}
