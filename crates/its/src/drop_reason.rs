//! Why a message died.

carnet_base::drop_reasons! {
    /// Why a message had no effect, or was not sent.
    pub enum ItsDrop {
        /// Octets that are no such message.
        Malformed = "malformed",
        /// An unknown protocol version.
        WrongVersion = "wrong_version",
        /// Another message than the port is for.
        WrongMessage = "wrong_message",
        /// A BTP port without a service.
        UnknownPort = "unknown_port",
        /// Sent by this station itself, or about an event of its own.
        OwnMessage = "own_message",
        /// A position that is unavailable, where one is needed.
        NoPosition = "no_position",
        /// An event that is over (EN 302 637-3 8.2.1.5).
        Expired = "expired",
        /// An event that is referred to later than it can be now.
        FromTheFuture = "from_the_future",
        /// Older than what is known of the event, or the same again.
        Outdated = "outdated",
        /// The end of an event of which nothing was known.
        UnknownEvent = "unknown_event",
        /// No room for another event.
        TableFull = "table_full",
        /// A value that the message cannot carry.
        NotEncodable = "not_encodable",
    }
}
