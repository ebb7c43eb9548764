//! Why a multicast packet did not go from the mobile network to GeoNetworking, or the other way.

carnet_base::drop_reasons! {
    /// Why the multicast proxy dropped a packet.
    pub enum MulticastDrop {
        /// From an interface that is not there, or has no link-local address.
        UnknownInterface = "unknown_interface",
        /// No whole IPv6 packet to a group.
        Malformed = "malformed",
        /// An MLD message that RFC 3810 has dropped, or one of this router's own address.
        BadMld = "bad_mld",
        /// A report about a group for which there is no room.
        TooManyGroups = "too_many_groups",
        /// A scope that is not forwarded: the interface's, the link's; or, to a group without an area, the
        /// site's.
        Scope = "scope",
        /// A source that is not forwarded, or not one of the link that it came from.
        BadSource = "bad_source",
        /// From the air: a source of the mobile network's own.
        OwnSource = "own_source",
        /// Its hop limit has run out.
        HopLimit = "hop_limit",
        /// From the mobile network: to a group without an area, and such are not sent on.
        NoArea = "no_area",
        /// From the mobile network: larger than GeoNetworking carries.
        TooBig = "too_big",
    }
}
