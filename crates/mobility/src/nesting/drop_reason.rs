//! Why a registration of an address had no effect.

carnet_base::drop_reasons! {
    /// Why a message about a care-of address of a router behind this one had no effect.
    pub enum NestingDrop {
        /// It fails the tests of RFC 4861 7.1, or comes from no link-local address.
        NeighborDiscovery = "neighbor_discovery",
        /// Of no prefix that is offered.
        NotOffered = "not_offered",
        /// Somebody else has the address.
        Duplicate = "duplicate",
        /// It has been registered by another way since.
        Stale = "stale",
        /// More addresses than are kept.
        TooMany = "too_many",
        /// An answer to nothing that was asked, or not from the router that was asked.
        Unexpected = "unexpected",
        /// Too many at a time.
        RateLimited = "rate_limited",
    }
}
