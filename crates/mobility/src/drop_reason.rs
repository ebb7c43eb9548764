//! Reasons for which a mobility message was dropped.

use carnet_wire::Error;

carnet_base::drop_reasons! {
    /// Reason for which a packet with a Mobility Header, or a message of Neighbor Discovery, was dropped.
    pub enum MobilityDrop {
        /// The message does not parse: it is too short, a length field is wrong, or an option ends after the
        /// message.
        Malformed = "malformed",
        /// Wrong Mobility Header checksum (RFC 6275 9.2).
        BadChecksum = "bad_checksum",
        /// Payload Proto is not 59 (RFC 6275 9.2).
        PayloadProtocol = "payload_protocol",
        /// Mobility Header type that this role does not know or does not receive.
        UnknownType = "unknown_type",
        /// The home address is not a unicast routable address (RFC 6275 9.5.1).
        HomeAddress = "home_address",
        /// The care-of address is not a unicast routable address (RFC 6275 6.1.7), or packets would loop
        /// through its tunnel (status 174).
        CareOfAddress = "care_of_address",
        /// A Binding Update without the H flag: carnet has no bindings for correspondent nodes (RFC 6275 9).
        NotHomeRegistration = "not_home_registration",
        /// A home registration with a Nonce Indices option (RFC 6275 9.5.1).
        NonceIndices = "nonce_indices",
        /// A Binding Update for a home address that is not in the config.
        Unauthorized = "unauthorized",
        /// The authentication option is missing (RFC 4285 5).
        AuthenticationMissing = "authentication_missing",
        /// The security association has another SPI than the authentication option (RFC 4285 5).
        UnknownSpi = "unknown_spi",
        /// The MAC of the authentication option is wrong (RFC 4285 5.1.1).
        AuthenticationFailed = "authentication_failed",
        /// A message without IPsec, or without a care-of address in an option, although IPsec is required
        /// (RFC 4877 4.1).
        NotProtected = "not_protected",
        /// The timestamp of the Message-ID option is not later than the last one, or differs too much from
        /// the home agent's clock (RFC 4285 6).
        Timestamp = "timestamp",
        /// The sequence number is not newer than the last one (RFC 6275 9.5.1).
        Sequence = "sequence",
        /// A valid Binding Update that the home agent refused with a status of 128 or more.
        Refused = "refused",
        /// A Binding Acknowledgement without an outstanding Binding Update (RFC 6275 11.7.3).
        Unexpected = "unexpected",
        /// A message that is not from the home agent, not to this router, or without the routing header that
        /// it needs.
        WrongParty = "wrong_party",
        /// A message above the rate limit of answers.
        RateLimited = "rate_limited",
        /// A Binding Update from an address at which its node has no binding, above the rate limit of such
        /// updates. The home agent has not verified it.
        Flood = "flood",
        /// A Binding Update of a node that has used up its rate limit, authentic or not.
        Share = "share",
        /// A Neighbor Discovery message that fails RFC 4861 6.1 or 7.1 (hop limit, code, length).
        NeighborDiscovery = "neighbor_discovery",
    }
}

impl From<Error> for MobilityDrop {
    /// Returns the reason for a parse error.
    fn from(error: Error) -> Self {
        match error {
            Error::Checksum { .. } => MobilityDrop::BadChecksum,
            Error::PayloadProtocol { .. } => MobilityDrop::PayloadProtocol,
            _ => MobilityDrop::Malformed,
        }
    }
}
