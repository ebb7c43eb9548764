//! Table of the addresses of one interface, and of the clients that have them. It ensures that no address has
//! two hosts.
//!
//! The table has at most one entry for each address and one address for each client. So the range of the
//! config limits its size. An address without entry is free. When a lease has ended, its entry stays until
//! another client needs the address, so that the client can get the same address again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use carnet_base::Time;

use super::message::{ClientId, Request};
use crate::LinkAddress;

/// State of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressState {
    /// The server has received this request, and finds out by ARP whether a host uses the address before it
    /// offers the address.
    Probed(Box<Request>),
    /// The server has offered the address.
    Offered,
    /// The client has the address.
    Leased,
    /// Another host uses the address, so the server gives it to no client for some time.
    Resting,
    /// The client's lease has ended, and the address is free.
    Former,
}

/// Entry of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Client of the address.
    pub client: ClientId,
    /// Link-layer address of the client.
    pub link_address: LinkAddress,
    /// Name of the client, if it has sent a valid one.
    pub host_name: Option<String>,
    /// State of the address.
    pub state: AddressState,
    /// Time at which the state ends; for [`AddressState::Former`] the time since which the address is free.
    pub until: Time,
}

/// The addresses of one interface, and their clients.
#[derive(Debug, Default)]
pub struct Bindings {
    of: BTreeMap<Ipv4Addr, Binding>,
    by_client: BTreeMap<ClientId, Ipv4Addr>,
    /// Times at which the states of addresses end, except for [`AddressState::Former`].
    deadlines: BTreeSet<(Time, Ipv4Addr)>,
    /// Free addresses of the range, ordered by the time for which they have been free, the longest first.
    free: BTreeSet<(u64, Ipv4Addr)>,
    /// Every address of the range, with its place in `free`.
    places: BTreeMap<Ipv4Addr, Option<u64>>,
    next_place: u64,
    probes: usize,
}

impl Bindings {
    /// Creates an empty table with these addresses for clients without reservation.
    pub fn new(range: impl Iterator<Item = Ipv4Addr>) -> Bindings {
        let mut bindings = Bindings::default();
        for address in range {
            bindings.places.insert(address, None);
            bindings.free(address);
        }
        bindings
    }

    /// Returns the entry of an address; `None` if the address is free and no client had it before.
    pub fn get(&self, address: Ipv4Addr) -> Option<&Binding> {
        self.of.get(&address)
    }

    /// Returns the address of a client, and the entry of this address; `None` for an unknown client.
    pub fn of_client(&self, client: &ClientId) -> Option<(Ipv4Addr, &Binding)> {
        let address = *self.by_client.get(client)?;
        Some((address, self.of.get(&address)?))
    }

    /// Returns all entries.
    pub fn iter(&self) -> impl Iterator<Item = (Ipv4Addr, &Binding)> {
        self.of.iter().map(|(address, binding)| (*address, binding))
    }

    /// Returns whether no client has the address and no host uses it, as far as the table knows.
    pub fn is_free(&self, address: Ipv4Addr) -> bool {
        self.of.get(&address).is_none_or(|binding| binding.state == AddressState::Former)
    }

    /// Returns whether this client may have the address, because no other host has it. `reserved` is the
    /// link-layer address of a client with a reservation. This client may also use the address with another
    /// client identifier.
    pub fn is_available(&self, address: Ipv4Addr, client: &ClientId, reserved: Option<LinkAddress>) -> bool {
        self.is_free(address)
            || self.get(address).is_some_and(|binding| {
                binding.state != AddressState::Resting
                    && (binding.client == *client || reserved == Some(binding.link_address))
            })
    }

    /// Returns the number of addresses for which the server waits for ARP replies at present.
    pub fn probes(&self) -> usize {
        self.probes
    }

    /// Returns the number of addresses for clients without reservation, and how many of them are free.
    pub fn room(&self) -> (usize, usize) {
        (self.places.len(), self.free.len())
    }

    /// Returns the earliest time at which the state of an address ends.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    /// Returns an address whose state has ended at `now`; `None` if there is no further one.
    pub fn expired(&self, now: Time) -> Option<Ipv4Addr> {
        self.deadlines.first().filter(|(due, _)| *due <= now).map(|(_, address)| *address)
    }

    /// Returns the address of the range that has been free for the longest time and satisfies `is_usable`.
    pub fn longest_free(&self, is_usable: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        self.free.iter().map(|(_, address)| *address).find(|address| is_usable(*address))
    }

    /// Sets the entry of an address. If the client had another address, that address becomes free, and the
    /// function returns it with its entry.
    pub fn set(&mut self, address: Ipv4Addr, binding: Binding) -> Option<(Ipv4Addr, Binding)> {
        let other = self.by_client.get(&binding.client).copied().filter(|other| *other != address);
        let other = other.and_then(|other| Some((other, self.remove(other)?)));
        self.unlink(address);
        if binding.state == AddressState::Former {
            self.free(address);
        } else {
            self.deadlines.insert((binding.until, address));
            self.take(address);
        }
        self.probes += usize::from(matches!(binding.state, AddressState::Probed(_)));
        // A resting address belongs to no client, so it is not in the index of clients.
        if binding.state != AddressState::Resting {
            self.by_client.insert(binding.client.clone(), address);
        }
        self.of.insert(address, binding);
        other
    }

    /// Removes the entry of an address, and makes the address free.
    pub fn remove(&mut self, address: Ipv4Addr) -> Option<Binding> {
        let binding = self.unlink(address)?;
        self.free(address);
        Some(binding)
    }

    /// Adds an address of the range to the free ones.
    fn free(&mut self, address: Ipv4Addr) {
        if let Some(place @ None) = self.places.get_mut(&address) {
            *place = Some(self.next_place);
            self.free.insert((self.next_place, address));
            self.next_place += 1;
        }
    }

    /// Removes an address from the free ones.
    fn take(&mut self, address: Ipv4Addr) {
        if let Some(place) = self.places.get_mut(&address).and_then(Option::take) {
            self.free.remove(&(place, address));
        }
    }

    /// Removes the entry of an address from all indexes except that of free addresses.
    fn unlink(&mut self, address: Ipv4Addr) -> Option<Binding> {
        let binding = self.of.remove(&address)?;
        self.deadlines.remove(&(binding.until, address));
        self.probes -= usize::from(matches!(binding.state, AddressState::Probed(_)));
        if self.by_client.get(&binding.client) == Some(&address) {
            self.by_client.remove(&binding.client);
        }
        Some(binding)
    }
}
