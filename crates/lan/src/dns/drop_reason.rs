//! Reasons for which the forwarder does not pass on a message.

carnet_base::drop_reasons! {
    /// Reason for which the forwarder did not pass on a query or an answer.
    pub enum DnsDrop {
        /// The octets are no query.
        Malformed = "malformed",
        /// More queries arrived than the forwarder processes.
        RateLimit = "rate_limit",
        /// The client already waits for as many answers as it may.
        ClientLimit = "client_limit",
        /// As many queries wait for servers as may wait.
        Busy = "busy",
        /// An answer that is invalid, or that belongs to another question.
        BadAnswer = "bad_answer",
        /// An answer to a query that no longer waits.
        LateAnswer = "late_answer",
    }
}
