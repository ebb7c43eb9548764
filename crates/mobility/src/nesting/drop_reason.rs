//! Reasons for which a registration of an address had no effect.

carnet_base::drop_reasons! {
    /// Why a message about a care-of address of a router behind this one had no effect.
    pub enum NestingDrop {
        /// The message fails the checks of RFC 4861 7.1, or its source is not link-local.
        NeighborDiscovery = "neighbor_discovery",
        /// The address is not in an offered prefix.
        NotOffered = "not_offered",
        /// Another node has the address.
        Duplicate = "duplicate",
        /// In the meantime the address was registered over another path.
        Stale = "stale",
        /// The table of addresses is full.
        TooMany = "too_many",
        /// An answer without an outstanding request, or not from the router to which the request went.
        Unexpected = "unexpected",
        /// The message is above the rate limit.
        RateLimited = "rate_limited",
    }
}
