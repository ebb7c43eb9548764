//! Counters of system calls, netlink events and packets of a [`crate::Platform`].

/// Counters since [`crate::Platform::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlatformCounters {
    /// Number of system calls that try to change kernel state: netlink requests and writes of settings. The
    /// renewal of an unchanged binding adds 0.
    pub write_calls: u64,
    /// Netlink requests that only read kernel state.
    pub read_requests: u64,
    /// Number of entries that carnet installed again, because the kernel or another program had removed them.
    pub restored_entries: u64,
    /// Number of times that the kernel dropped netlink events (`ENOBUFS`). carnet then reads the whole state
    /// again.
    pub event_overruns: u64,
    /// Netlink messages that could not be parsed and were skipped.
    pub unparsed_messages: u64,
    /// ICMPv6 messages handed to the station.
    pub icmpv6_received: u64,
    /// ICMPv6 messages received on a link and skipped: truncated, or with inconsistent lengths.
    pub icmpv6_malformed: u64,
    /// ICMPv6 messages sent on a link.
    pub icmpv6_sent: u64,
    /// Packets inside IPv4 or UDP that could not be sent.
    pub unsent_datagrams: u64,
}
