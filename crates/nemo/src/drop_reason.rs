//! Reasons for packets that the NEMO data path drops.

carnet_base::drop_reasons! {
    /// Reason why the forwarder dropped a packet.
    pub enum TunnelDropReason {
        /// The packet is not IPv6, or shorter than its header says.
        Malformed = "malformed",
        /// Packet to a mobile network whose care-of addresses have not passed the care-of test yet.
        Untested = "untested",
        /// Packet from or to a mobile network that is not registered now.
        NotRegistered = "not_registered",
        /// Packet that is neither from nor to a mobile network, and not for the local address of a tunnel.
        NoTunnel = "no_tunnel",
        /// The outer source is not the care-of address of any binding (RFC 6275 10.4.5).
        OuterSource = "outer_source",
        /// The inner source does not belong to the binding (RFC 3963 9).
        InnerSource = "inner_source",
        /// The inner destination does not belong to the binding.
        InnerDestination = "inner_destination",
        /// An address of the packet is link-local, multicast or reserved (`::/8` without the prefixes of
        /// NAT64). Tunnels do not carry such packets.
        Scope = "scope",
        /// Packet too large for the path; the sender has received Packet Too Big.
        TooBig = "too_big",
        /// The packet has too many nested IPv6 headers, or it is an outer packet of this tunnel that has come
        /// back. Or home agents have relayed it to each other until its hop limit was used up.
        Nesting = "nesting",
        /// The outer header has a congestion mark, but the inner packet cannot carry it (RFC 6040 4.2).
        Congestion = "congestion",
        /// Fragment that overlaps another fragment of its packet, breaks the rules or exceeds the bounds.
        Fragment = "fragment",
        /// Packet to the local address of a tunnel, whose upper-layer protocol has no receiver at this
        /// station.
        UpperLayer = "upper_layer",
        /// Packet that arrived outside of the encrypted session of its binding: in the clear, or in the
        /// session of another key. Or a packet that arrived in a session although its binding has none.
        NotInSession = "not_in_session",
        /// A further copy of a packet that went over several tunnels.
        Duplicate = "duplicate",
    }
}
