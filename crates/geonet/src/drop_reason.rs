//! Reasons for which the router drops a GeoNetworking packet or refuses a request.

use carnet_wire::geonet::Error;

carnet_base::drop_reasons! {
    /// Reason why the router ignored, did not forward or did not send a packet. Clauses are those of EN 302
    /// 636-4-1.
    pub enum GeonetDrop {
        /// The frame has fewer octets than its headers require, or more than they allow.
        Malformed = "malformed",
        /// A protocol version other than `itsGnProtocolVersion` (10.3.3).
        WrongVersion = "wrong_version",
        /// An undefined next header in the Basic or Common Header.
        UnknownNextHeader = "unknown_next_header",
        /// An undefined header type or subtype (10.3.5).
        UnknownHeaderType = "unknown_header_type",
        /// A secured envelope, which this router does not verify.
        Secured = "secured",
        /// The payload length differs from the length of the octets behind the headers.
        PayloadLength = "payload_length",
        /// The remaining hop limit (RHL) exceeds the maximum hop limit (MHL) of the packet (10.3.5).
        HopLimitExceedsMaximum = "hop_limit_exceeds_maximum",
        /// A unicast frame for another station.
        NotAddressed = "not_addressed",
        /// The link-layer address of the sender, or the MID of the source's GN address, is a group address or
        /// zero.
        BadSender = "bad_sender",
        /// A latitude beyond the poles, or a longitude beyond the date line.
        AbsurdPosition = "absurd_position",
        /// The packet is one that this station has sent itself.
        OwnEcho = "own_echo",
        /// Another station uses this station's address (10.2.1.5).
        DuplicateAddress = "duplicate_address",
        /// The router has received the packet before (annex A).
        Duplicate = "duplicate",
        /// The location table is full and has no entry to replace.
        LocationTableFull = "location_table_full",
        /// The remaining hop limit (RHL) is used up: the router does not forward the packet. It still
        /// delivers the packet to its upper layer.
        HopLimit = "hop_limit",
        /// The lifetime ended while the packet was in a buffer (8.4, 8.5).
        LifetimeExpired = "lifetime_expired",
        /// The area is larger than `itsGnMaxGeoAreaSize` (B.3).
        AreaTooLarge = "area_too_large",
        /// Source or sender of the packet exceeds `itsGnMaxPacketDataRate` (B.2). The limit for IPv6 and for
        /// the profiles DP2 and DP3 is four fifths of this value.
        PacketDataRate = "packet_data_rate",
        /// The sender is inside the area and this station is outside, so the packet must not leave the area
        /// (annex D).
        SenderInsideArea = "sender_inside_area",
        /// Contention-based forwarding: another station forwarded the packet first (E.3, F.3, F.4).
        Contention = "contention",
        /// Contention-based forwarding: this station is not nearer to the destination than the sender (E.3).
        NoProgress = "no_progress",
        /// Newer packets pushed the packet out of a full forwarding buffer (8.5).
        ForwardingBufferOverflow = "forwarding_buffer_overflow",
        /// Newer packets pushed the packet out of a full Location Service buffer (8.4).
        LocationServiceOverflow = "location_service_overflow",
        /// The Location Service did not find the destination (10.2.4).
        LocationServiceFailed = "location_service_failed",
        /// The Location Service already searches for as many stations as `location_service_max_pending`
        /// permits.
        LocationServiceBusy = "location_service_busy",
        /// Perimeter recovery has gone round the void without reaching the destination.
        Unreachable = "unreachable",
        /// An invalid recovery header, or a recovery header in a broadcast frame.
        BadRecoveryHeader = "bad_recovery_header",
        /// A send request arrived before the station had its first position.
        NoPosition = "no_position",
        /// A send request has more payload than `itsGnMaxSduSize`.
        SduTooLarge = "sdu_too_large",
        /// A send request has a lifetime of 0 or above `itsGnMaxPacketLifetime`.
        BadLifetime = "bad_lifetime",
        /// A send request has a hop limit of 0.
        BadHopLimit = "bad_hop_limit",
        /// A send request asks for repetitions at an interval below `itsGnMinPacketRepetitionInterval`, or
        /// for more repeated packets than allowed.
        BadRepetition = "bad_repetition",
        /// The station changed its address while its own packet waited (10.2.1.4).
        AddressChanged = "address_changed",
        /// A send request has a destination address that no station can have: a group address or zero.
        BadDestination = "bad_destination",
        /// A send request has this station itself as its destination.
        OwnDestination = "own_destination",
        /// An own multi-hop packet of IPv6, DP2 or DP3 exceeds four fifths of `itsGnMaxPacketDataRate`.
        OwnDataRate = "own_data_rate",
    }
}

impl From<Error> for GeonetDrop {
    fn from(error: Error) -> GeonetDrop {
        match error {
            Error::Truncated { .. } => GeonetDrop::Malformed,
            Error::Version { .. } => GeonetDrop::WrongVersion,
            Error::BasicNextHeader { .. } | Error::CommonNextHeader { .. } => GeonetDrop::UnknownNextHeader,
            Error::Secured => GeonetDrop::Secured,
            Error::HeaderType { .. } => GeonetDrop::UnknownHeaderType,
            Error::PayloadLength { .. } => GeonetDrop::PayloadLength,
        }
    }
}
