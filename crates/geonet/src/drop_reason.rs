//! Why a GeoNetworking packet died, or a request was refused.

use carnet_wire::geonet::Error;

carnet_base::drop_reasons! {
    /// Why a packet had no effect, went no further, or was not sent. Clauses are those of EN 302 636-4-1.
    pub enum GeonetDrop {
        /// Octets missing, or more than the headers account for.
        Malformed = "malformed",
        /// Another protocol version than `itsGnProtocolVersion` (10.3.3).
        WrongVersion = "wrong_version",
        /// An undefined next header in the Basic or Common Header.
        UnknownNextHeader = "unknown_next_header",
        /// An undefined header type or subtype (10.3.5).
        UnknownHeaderType = "unknown_header_type",
        /// A secured envelope, which this router does not open.
        Secured = "secured",
        /// The payload length differs from what follows the headers.
        PayloadLength = "payload_length",
        /// RHL above MHL (10.3.5).
        HopLimitExceedsMaximum = "hop_limit_exceeds_maximum",
        /// A unicast frame to another station.
        NotAddressed = "not_addressed",
        /// The sender's link-layer address, or that in the source's GN address, is a group address or zero.
        BadSender = "bad_sender",
        /// A position beyond the poles or the date line.
        AbsurdPosition = "absurd_position",
        /// Sent by this station itself.
        OwnEcho = "own_echo",
        /// Another station uses this station's address (10.2.1.5).
        DuplicateAddress = "duplicate_address",
        /// Seen before (annex A).
        Duplicate = "duplicate",
        /// The location table is full and has no entry to replace.
        LocationTableFull = "location_table_full",
        /// RHL used up: delivered where it should be, but not forwarded.
        HopLimit = "hop_limit",
        /// The lifetime ended in a buffer (8.4, 8.5).
        LifetimeExpired = "lifetime_expired",
        /// The area is larger than `itsGnMaxGeoAreaSize` (B.3).
        AreaTooLarge = "area_too_large",
        /// Source or sender is above `itsGnMaxPacketDataRate` (B.2), or above four fifths of it where the
        /// packet is IPv6 or of profile DP2 or DP3.
        PacketDataRate = "packet_data_rate",
        /// The sender is inside the area and this station is not: no way back out (annex D).
        SenderInsideArea = "sender_inside_area",
        /// Contention-based: another station was faster (E.3, F.3, F.4).
        Contention = "contention",
        /// Contention-based: no progress towards the destination (E.3).
        NoProgress = "no_progress",
        /// Pushed out of a full forwarding buffer (8.5).
        ForwardingBufferOverflow = "forwarding_buffer_overflow",
        /// Pushed out of a full Location Service buffer (8.4).
        LocationServiceOverflow = "location_service_overflow",
        /// The destination was not found (10.2.4).
        LocationServiceFailed = "location_service_failed",
        /// More searches under way than are allowed.
        LocationServiceBusy = "location_service_busy",
        /// Perimeter recovery has gone round the void: the destination cannot be reached.
        Unreachable = "unreachable",
        /// A recovery header that cannot be read, or one in a broadcast frame.
        BadRecoveryHeader = "bad_recovery_header",
        /// A request before the first position.
        NoPosition = "no_position",
        /// A request with more payload than `itsGnMaxSduSize`.
        SduTooLarge = "sdu_too_large",
        /// A request with a lifetime above `itsGnMaxPacketLifetime`, or none at all.
        BadLifetime = "bad_lifetime",
        /// A request with a hop limit of 0.
        BadHopLimit = "bad_hop_limit",
        /// A request to be repeated more often than `itsGnMinPacketRepetitionInterval`, or too many of them.
        BadRepetition = "bad_repetition",
        /// An own packet that waited when the station got another address (10.2.1.4).
        AddressChanged = "address_changed",
        /// A request to an address that no station can have: a group's or zero.
        BadDestination = "bad_destination",
        /// A request to this station itself.
        OwnDestination = "own_destination",
        /// Own IPv6, or an own packet of profile DP2 or DP3, over several hops: above four fifths of
        /// `itsGnMaxPacketDataRate`.
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
