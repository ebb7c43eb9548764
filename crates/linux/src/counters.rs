//! Counters of the platform.

/// Counts since [`crate::Platform::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// System calls that changed, or tried to change, kernel state: netlink requests and writes of settings.
    /// A refresh that changes nothing adds nothing here.
    pub writes: u64,
    /// Netlink requests that only asked.
    pub reads: u64,
    /// Entries that the kernel or another program had removed and that carnet put back.
    pub restored: u64,
    /// Times that netlink events were lost (`ENOBUFS`) and everything was read again.
    pub overruns: u64,
    /// Netlink messages that could not be parsed and were skipped.
    pub unparsed: u64,
    /// ICMPv6 messages handed to the station.
    pub icmpv6_received: u64,
    /// ICMPv6 messages heard on a link and skipped: truncated, or lengths that do not add up.
    pub icmpv6_malformed: u64,
    /// ICMPv6 messages sent on a link.
    pub icmpv6_sent: u64,
    /// Packets inside IPv4 or UDP that could not be sent.
    pub datagrams_unsent: u64,
}
