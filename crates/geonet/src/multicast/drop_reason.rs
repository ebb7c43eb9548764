//! Reasons for which the multicast proxy drops a packet between the mobile network and GeoNetworking.

carnet_base::drop_reasons! {
    /// Reason for which the multicast proxy dropped a packet.
    pub enum MulticastDrop {
        /// The interface from which the packet came does not exist or has no link-local address.
        UnknownInterface = "unknown_interface",
        /// The packet is not a complete IPv6 multicast packet.
        Malformed = "malformed",
        /// An MLD message that RFC 3810 requires a router to drop, or a message with this router's own
        /// address as source.
        BadMld = "bad_mld",
        /// A report about a group for which the proxy has no room.
        TooManyGroups = "too_many_groups",
        /// The proxy does not forward packets of this scope: interface scope, link scope and, for a group
        /// without an area, site scope.
        Scope = "scope",
        /// The source address may not be forwarded, or does not belong to the link from which the packet
        /// came.
        BadSource = "bad_source",
        /// From the air: the source belongs to the mobile network.
        OwnSource = "own_source",
        /// The hop limit of the packet is used up.
        HopLimit = "hop_limit",
        /// From the mobile network: a packet to a group without an area, and the configuration does not
        /// forward such packets.
        NoArea = "no_area",
        /// From the mobile network: the packet exceeds the MTU of GeoNetworking.
        TooBig = "too_big",
    }
}
