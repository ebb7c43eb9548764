//! Table of the addresses of one interface, and of the clients that have them. It ensures that no two hosts
//! get the same address.
//!
//! The table has at most one entry for each address and one address for each client. So the config's address
//! range limits the size of the table. An address without entry is free. When a lease has ended, its entry
//! stays until another client needs the address, so that the client can get the same address again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use carnet_base::Time;

use super::message::{DhcpClientId, DhcpClientMessage};
use crate::LinkAddress;

/// State of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressState {
    /// The server has received this DHCPDISCOVER or DHCPREQUEST, and waits for ARP replies of a host that
    /// uses the address. After that it answers the message.
    Probed(Box<DhcpClientMessage>),
    /// The server has offered the address.
    Offered,
    /// The client has the address.
    Leased,
    /// Another host uses the address, so the server gives it to no client for some time.
    Quarantined,
    /// The client's lease has ended, and the address is free.
    Former,
}

/// Entry of the table: the client of an address, and the state of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressBinding {
    /// Client of the address.
    pub client_id: DhcpClientId,
    /// Link-layer address of the client.
    pub link_address: LinkAddress,
    /// Name of the client, if it has sent a valid one.
    pub host_name: Option<String>,
    /// State of the address.
    pub state: AddressState,
    /// Time at which the state ends; for [`AddressState::Former`] the time since which the address is free.
    pub state_ends_at: Time,
}

/// The addresses of one interface, and their clients.
#[derive(Debug, Default)]
pub struct AddressBindings {
    binding_by_address: BTreeMap<Ipv4Addr, AddressBinding>,
    address_by_client: BTreeMap<DhcpClientId, Ipv4Addr>,
    /// Times at which the states of addresses end, except for [`AddressState::Former`].
    addresses_by_deadline: BTreeSet<(Time, Ipv4Addr)>,
    /// Free addresses of the range, ordered by the time for which they have been free, the longest first.
    free_addresses: BTreeSet<(u64, Ipv4Addr)>,
    /// Every address of the range. For a free address, the value is its place in the order of
    /// `free_addresses`; otherwise `None`.
    release_number_by_address: BTreeMap<Ipv4Addr, Option<u64>>,
    next_release_number: u64,
    probe_count: usize,
}

impl AddressBindings {
    /// Creates an empty table with these addresses for clients without reservation.
    pub fn new(range: impl Iterator<Item = Ipv4Addr>) -> AddressBindings {
        let mut bindings = AddressBindings::default();
        for address in range {
            bindings.release_number_by_address.insert(address, None);
            bindings.add_free_address(address);
        }
        bindings
    }

    /// Returns the entry of an address; `None` if the address is free and no client had it before.
    pub fn get(&self, address: Ipv4Addr) -> Option<&AddressBinding> {
        self.binding_by_address.get(&address)
    }

    /// Returns the address of a client, and the entry of this address; `None` for an unknown client.
    pub fn binding_of_client(&self, client: &DhcpClientId) -> Option<(Ipv4Addr, &AddressBinding)> {
        let address = *self.address_by_client.get(client)?;
        Some((address, self.binding_by_address.get(&address)?))
    }

    /// Returns all entries.
    pub fn iter(&self) -> impl Iterator<Item = (Ipv4Addr, &AddressBinding)> {
        self.binding_by_address.iter().map(|(address, binding)| (*address, binding))
    }

    /// Returns whether no client has the address and the server knows no host that uses it.
    pub fn is_free(&self, address: Ipv4Addr) -> bool {
        self.binding_by_address.get(&address).is_none_or(|binding| binding.state == AddressState::Former)
    }

    /// Returns whether this client may have the address, because no other host has it. `reserved` is the
    /// link-layer address of a host with a reservation for the address. This host may have the address even
    /// if it now sends another client identifier.
    pub fn is_available(
        &self,
        address: Ipv4Addr,
        client: &DhcpClientId,
        reserved: Option<LinkAddress>,
    ) -> bool {
        self.is_free(address)
            || self.get(address).is_some_and(|binding| {
                binding.state != AddressState::Quarantined
                    && (binding.client_id == *client || reserved == Some(binding.link_address))
            })
    }

    /// Returns the number of addresses for which the server waits for ARP replies at present.
    pub fn probe_count(&self) -> usize {
        self.probe_count
    }

    /// Returns the number of all addresses for clients without reservation, and the number of free ones.
    pub fn total_and_free_addresses(&self) -> (usize, usize) {
        (self.release_number_by_address.len(), self.free_addresses.len())
    }

    /// Returns the earliest time at which the state of an address ends; `None` if no state ends by time.
    pub fn next_deadline(&self) -> Option<Time> {
        self.addresses_by_deadline.first().map(|(due, _)| *due)
    }

    /// Returns an address whose state has ended at `now`; `None` if no further state has ended.
    pub fn expired_address(&self, now: Time) -> Option<Ipv4Addr> {
        self.addresses_by_deadline.first().filter(|(due, _)| *due <= now).map(|(_, address)| *address)
    }

    /// Returns the address of the range that has been free for the longest time and satisfies `is_usable`;
    /// `None` if no free address does.
    pub fn least_recently_used_address(&self, is_usable: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        self.free_addresses.iter().map(|(_, address)| *address).find(|address| is_usable(*address))
    }

    /// Sets the entry of an address. If the client had another address, that address becomes free, and the
    /// function returns it with its entry.
    pub fn set_binding(
        &mut self,
        address: Ipv4Addr,
        binding: AddressBinding,
    ) -> Option<(Ipv4Addr, AddressBinding)> {
        let other = self.address_by_client.get(&binding.client_id).copied().filter(|other| *other != address);
        let other = other.and_then(|other| Some((other, self.remove_binding(other)?)));
        self.remove_from_indexes(address);
        if binding.state == AddressState::Former {
            self.add_free_address(address);
        } else {
            self.addresses_by_deadline.insert((binding.state_ends_at, address));
            self.remove_free_address(address);
        }
        self.probe_count += usize::from(matches!(binding.state, AddressState::Probed(_)));
        // An address in quarantine belongs to no client, so it is not in the index of clients.
        if binding.state != AddressState::Quarantined {
            self.address_by_client.insert(binding.client_id.clone(), address);
        }
        self.binding_by_address.insert(address, binding);
        other
    }

    /// Removes the entry of an address, and makes the address free. Returns the entry; `None` if the address
    /// had none.
    pub fn remove_binding(&mut self, address: Ipv4Addr) -> Option<AddressBinding> {
        let binding = self.remove_from_indexes(address)?;
        self.add_free_address(address);
        Some(binding)
    }

    /// Adds an address of the range to `free_addresses`.
    fn add_free_address(&mut self, address: Ipv4Addr) {
        if let Some(place @ None) = self.release_number_by_address.get_mut(&address) {
            *place = Some(self.next_release_number);
            self.free_addresses.insert((self.next_release_number, address));
            self.next_release_number += 1;
        }
    }

    /// Removes an address from `free_addresses`.
    fn remove_free_address(&mut self, address: Ipv4Addr) {
        if let Some(place) = self.release_number_by_address.get_mut(&address).and_then(Option::take) {
            self.free_addresses.remove(&(place, address));
        }
    }

    /// Removes the entry of an address from all indexes except the index of free addresses. Returns the
    /// entry, if the address had one.
    fn remove_from_indexes(&mut self, address: Ipv4Addr) -> Option<AddressBinding> {
        let binding = self.binding_by_address.remove(&address)?;
        self.addresses_by_deadline.remove(&(binding.state_ends_at, address));
        self.probe_count -= usize::from(matches!(binding.state, AddressState::Probed(_)));
        if self.address_by_client.get(&binding.client_id) == Some(&address) {
            self.address_by_client.remove(&binding.client_id);
        }
        Some(binding)
    }
}
