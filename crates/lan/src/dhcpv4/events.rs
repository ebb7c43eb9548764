//! Events of the DHCP server for the operator, and its counters.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carnet_base::DropReason;

use super::drop_reason::DhcpDropReason;
use crate::LinkAddress;

/// An event for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DhcpEvent {
    /// A client without lease has got an address.
    Leased {
        /// Address of the client.
        address: Ipv4Addr,
        /// Link-layer address of the client.
        link_address: LinkAddress,
        /// Name of the client.
        host_name: Option<String>,
    },
    /// A client has given its address back.
    Released {
        /// Address of the client.
        address: Ipv4Addr,
        /// Link-layer address of the client.
        link_address: LinkAddress,
    },
    /// Another host uses an address. A client has detected this (DHCPDECLINE), or the server by ARP.
    InUse {
        /// The address, which the server gives to no client for some time.
        address: Ipv4Addr,
        /// Link-layer address of the host that uses the address, or of the client that has declined it.
        link_address: LinkAddress,
        /// Whether a client has declined the address.
        declined: bool,
    },
    /// A client gets no address, because none is free.
    PoolExhausted {
        /// Number of addresses for clients without reservation.
        addresses: usize,
    },
    /// Another DHCP server answers clients on the link.
    OtherServer {
        /// Address by which the other server names itself.
        server: Ipv4Addr,
    },
}

/// Counters of the DHCP server of one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DhcpCounters {
    /// Messages received.
    pub received_messages: u64,
    /// DHCPOFFER messages sent.
    pub sent_offers: u64,
    /// DHCPACK messages sent.
    pub sent_acks: u64,
    /// DHCPNAK messages sent.
    pub sent_naks: u64,
    /// Addresses that clients declined.
    pub declined_addresses: u64,
    /// Addresses that the server found in use before it offered them.
    pub address_conflicts: u64,
    /// Leases that clients gave back.
    pub released_leases: u64,
    drops_by_reason: BTreeMap<DhcpDropReason, u64>,
}

impl DhcpCounters {
    /// Counts a message that the server does not answer.
    pub(super) fn count_drop(&mut self, reason: DhcpDropReason) {
        *self.drops_by_reason.entry(reason).or_default() += 1;
    }

    /// Returns the number of messages that the server did not answer for this reason.
    pub fn dropped_messages(&self, reason: DhcpDropReason) -> u64 {
        self.drops_by_reason.get(&reason).copied().unwrap_or_default()
    }

    /// Adds the counters of another interface.
    pub fn add_counters(&mut self, other: &DhcpCounters) {
        self.received_messages += other.received_messages;
        self.sent_offers += other.sent_offers;
        self.sent_acks += other.sent_acks;
        self.sent_naks += other.sent_naks;
        self.declined_addresses += other.declined_addresses;
        self.address_conflicts += other.address_conflicts;
        self.released_leases += other.released_leases;
        for (reason, count) in &other.drops_by_reason {
            *self.drops_by_reason.entry(*reason).or_default() += count;
        }
    }

    /// Returns the counters by name.
    pub fn named_counters(&self) -> impl Iterator<Item = (String, u64)> {
        let sums = [
            ("received", self.received_messages),
            ("offers", self.sent_offers),
            ("acks", self.sent_acks),
            ("naks", self.sent_naks),
            ("declines", self.declined_addresses),
            ("conflicts", self.address_conflicts),
            ("releases", self.released_leases),
        ];
        let drops = DhcpDropReason::ALL
            .iter()
            .map(|reason| (format!("dropped.{}", reason.name()), self.dropped_messages(*reason)));
        sums.map(|(name, count)| (name.to_owned(), count)).into_iter().chain(drops)
    }
}
