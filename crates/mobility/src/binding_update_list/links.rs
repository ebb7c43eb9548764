//! Access of the Binding Update List to the uplinks.

use std::net::IpAddr;

/// Uplinks, named by their index.
pub(crate) trait Links {
    /// Returns the number of uplinks.
    fn count(&self) -> usize;
    /// Returns the care-of addresses of an uplink, the one to be registered first.
    fn care_of_addresses(&self, link: usize) -> Vec<IpAddr>;
    /// Whether an uplink has this care-of address.
    fn has_care_of_address(&self, link: usize, address: IpAddr) -> bool;
    /// Returns the BID-PRI of an uplink (RFC 6089 4.1).
    fn priority(&self, link: usize) -> u8;
    /// Whether the path over an uplink has failed.
    fn is_silent(&self, link: usize) -> bool;
    /// Whether a path that had failed has yet to prove itself.
    fn is_proving(&self, link: usize) -> bool;
    /// Whether an uplink is at its capacity, and packets wait for it.
    fn is_full(&self, link: usize) -> bool;
    /// Whether heartbeats show which paths work.
    fn is_probing(&self) -> bool;
}
