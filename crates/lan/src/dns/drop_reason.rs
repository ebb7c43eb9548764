//! Reasons for which the forwarder does not pass on a message.

carnet_base::drop_reasons! {
    /// Reason for which the forwarder did not pass on a query or an answer.
    pub enum DnsDropReason {
        /// The octets are no query.
        Malformed = "malformed",
        /// More queries arrived than the forwarder processes.
        RateLimit = "rate_limit",
        /// The host already waits for the maximum number of answers. Without a known link-layer address, the
        /// limit holds for all such addresses of the network together.
        ClientLimit = "client_limit",
        /// The maximum number of queries already waits for servers.
        Busy = "busy",
        /// The answer is invalid, or belongs to another question.
        BadAnswer = "bad_answer",
        /// The answer belongs to a query that no longer waits.
        LateAnswer = "late_answer",
    }
}
