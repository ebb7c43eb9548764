//! Reasons for which the adaptation sublayer drops a packet between a virtual interface and GeoNetworking.

carnet_base::drop_reasons! {
    /// Reason for which the adaptation sublayer dropped a packet. [`crate::GeonetDrop`] has the reasons of
    /// GeoNetworking.
    pub enum Ipv6Drop {
        /// A frame from a virtual interface that does not exist.
        UnknownLink = "unknown_link",
        /// The EtherType of the frame is not IPv6.
        NotIpv6 = "not_ipv6",
        /// A truncated or malformed IPv6 packet.
        Malformed = "malformed",
        /// From the host: a frame with the source MAC address of another device, for example behind a bridge.
        ForeignSource = "foreign_source",
        /// A source address that no packet may have.
        BadSource = "bad_source",
        /// A destination address that no packet may have.
        BadDestination = "bad_destination",
        /// From the host: a packet larger than the MTU of the link.
        TooBig = "too_big",
        /// From the host: a packet to a multicast or anycast address that has no area.
        NoArea = "no_area",
        /// A packet of the host goes to a group whose area has no known position.
        Nowhere = "nowhere",
        /// From the host: a multicast frame with a unicast packet to an address that names no station.
        Unresolved = "unresolved",
        /// From the air: the IPv6 source address is this station's own.
        OwnSource = "own_source",
        /// From the air: the source address, or the announced link-layer address, belongs to a station other
        /// than the sender.
        SpoofedSource = "spoofed_source",
    }
}
