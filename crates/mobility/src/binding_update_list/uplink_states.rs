//! Access of the Binding Update List to the state of the uplinks.

use std::net::IpAddr;

/// State of the uplinks, each named by its index.
pub(crate) trait UplinkStates {
    /// Returns the number of uplinks.
    fn uplink_count(&self) -> usize;
    /// Returns the care-of addresses of an uplink, the preferred one first.
    fn care_of_addresses(&self, link: usize) -> Vec<IpAddr>;
    /// Returns the router to which the uplink sends packets from this care-of address; `None` if it has no
    /// router.
    fn next_hop(&self, link: usize, address: IpAddr) -> Option<IpAddr>;
    /// Returns whether an uplink has this care-of address.
    fn has_care_of_address(&self, link: usize, address: IpAddr) -> bool;
    /// Returns the BID-PRI of an uplink (RFC 6089 4.1).
    fn priority(&self, link: usize) -> u8;
    /// Returns whether the path over an uplink has failed.
    fn has_path_failed(&self, link: usize) -> bool;
    /// Returns whether a failed path works again but needs more answers before it is used.
    fn is_path_recovering(&self, link: usize) -> bool;
    /// Returns whether an uplink carries its full capacity, so that packets wait in a queue.
    fn is_path_saturated(&self, link: usize) -> bool;
    /// Returns whether heartbeats are on, so that failed paths are detected.
    fn sends_heartbeats(&self) -> bool;
}
