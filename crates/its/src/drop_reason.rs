//! Reasons for which a service drops a message.

carnet_base::drop_reasons! {
    /// Reason why a service ignored a received message, or did not send a message.
    pub enum ItsDrop {
        /// The octets are not a message of the expected type.
        Malformed = "malformed",
        /// The message has a protocol version that carnet does not know.
        WrongVersion = "wrong_version",
        /// A message of another type than the port requires.
        WrongMessage = "wrong_message",
        /// A message for a BTP port without a service.
        UnknownPort = "unknown_port",
        /// The message comes from this station itself, or describes one of its events.
        OwnMessage = "own_message",
        /// The position is unavailable, but the service needs one.
        NoPosition = "no_position",
        /// The event has ended (EN 302 637-3 8.2.1.5).
        Expired = "expired",
        /// The reference time of the event is later than possible now.
        FromTheFuture = "from_the_future",
        /// The message is not newer than the known state of its event.
        Outdated = "outdated",
        /// The message ends an event that the station does not know.
        UnknownEvent = "unknown_event",
        /// The table has no room for another event.
        TableFull = "table_full",
        /// A value that the message cannot carry.
        NotEncodable = "not_encodable",
    }
}
