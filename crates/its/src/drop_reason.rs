//! Reasons for which a service drops a message.

carnet_base::drop_reasons! {
    /// Reason for which a message had no effect, or for which a service did not send it.
    pub enum ItsDrop {
        /// The octets are not a message of the expected type.
        Malformed = "malformed",
        /// An unknown protocol version.
        WrongVersion = "wrong_version",
        /// A message of another type than the port requires.
        WrongMessage = "wrong_message",
        /// A message for a BTP port without a service.
        UnknownPort = "unknown_port",
        /// This station itself sent the message, or the message is about an event of its own.
        OwnMessage = "own_message",
        /// The position is unavailable, but the service needs one.
        NoPosition = "no_position",
        /// The event has ended (EN 302 637-3 8.2.1.5).
        Expired = "expired",
        /// The reference time of the event is later than possible now.
        FromTheFuture = "from_the_future",
        /// The message is older than the known state of the event, or has the same reference time.
        Outdated = "outdated",
        /// The message ends an event that the station does not know.
        UnknownEvent = "unknown_event",
        /// The table has no room for another event.
        TableFull = "table_full",
        /// A value that the message cannot carry.
        NotEncodable = "not_encodable",
    }
}
