//! Reasons for which the DHCP server does not answer a message.

carnet_base::drop_reasons! {
    /// Reason for which the server did not answer a message.
    pub enum DhcpDropReason {
        /// The octets are no DHCP message of a client.
        Malformed = "malformed",
        /// The hardware type is not Ethernet, or the link-layer address is not that of a single host.
        LinkAddress = "link_address",
        /// A relay agent sent the message; the server serves its own link only.
        Relayed = "relayed",
        /// The interface has no address in its IPv4 prefix yet.
        NoAddress = "no_address",
        /// More messages arrived than the server processes.
        RateLimit = "rate_limit",
        /// The server already probes the maximum number of addresses.
        Busy = "busy",
        /// No address is free.
        PoolExhausted = "pool_exhausted",
        /// The client has selected another server.
        OtherServer = "other_server",
        /// The client confirms an address of which the server has no record (RFC 2131 4.3.2).
        UnknownClient = "unknown_client",
        /// The message is about the address of another client.
        NotOwner = "not_owner",
        /// The message lacks a field that its type needs.
        MissingField = "missing_field",
    }
}
