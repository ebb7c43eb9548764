//! Why an IPv6 packet did not go from a virtual interface to GeoNetworking, or the other way.

carnet_base::drop_reasons! {
    /// Why the adaptation sublayer dropped a packet. A refusal of GeoNetworking is a [`crate::GeonetDrop`].
    pub enum Ipv6Drop {
        /// A frame from a virtual interface that is not there.
        UnknownLink = "unknown_link",
        /// A frame of another EtherType than IPv6's.
        NotIpv6 = "not_ipv6",
        /// No whole IPv6 packet.
        Malformed = "malformed",
        /// From the host: a frame with the MAC address of another device, for example behind a bridge.
        ForeignSource = "foreign_source",
        /// A source address that no packet may have.
        BadSource = "bad_source",
        /// A destination address that no packet may have.
        BadDestination = "bad_destination",
        /// From the host: larger than the link carries.
        TooBig = "too_big",
        /// From the host: a multicast or anycast address with no area to go with it.
        NoArea = "no_area",
        /// From the host: to a group whose area is around a station with an unknown position.
        Nowhere = "nowhere",
        /// From the host: a unicast packet in a frame to everybody whose address names no station.
        Unresolved = "unresolved",
        /// From the air: its IPv6 source address is this station's own.
        OwnSource = "own_source",
        /// From the air: its source, or the link-layer address that it announces, is of another station than
        /// the one that sent it.
        SpoofedSource = "spoofed_source",
    }
}
