//! Which way traffic goes, as it follows from the router's state.

use std::net::Ipv6Addr;

use super::binding_update_list::Purpose;
use super::{MobileRouter, Uplink};
use crate::{Event, Output};

impl MobileRouter {
    /// The care-of address that traffic leaves from; see the module documentation.
    pub fn path(&self) -> Option<Ipv6Addr> {
        if self.stopping || self.refused.is_some() {
            return None;
        }
        if self.is_home() {
            // Only what was on its way into the tunnel when the router came home.
            return self.previous.map(|(previous, _)| previous).filter(|previous| {
                self.uplinks.iter().any(|uplink| uplink.care_of_address() == Some(*previous))
            });
        }
        let registered = self.registration?.care_of_address;
        if self.uplink_with(registered).is_some() {
            return Some(registered);
        }
        match &self.exchange {
            Some(exchange) if exchange.purpose == Purpose::Register && !exchange.sent.is_empty() => {
                Some(exchange.care_of_address)
            }
            _ => None,
        }
    }

    /// The uplink that carries traffic now: the path's, or the one on the home link.
    pub fn active_uplink(&self) -> Option<usize> {
        if self.is_home() {
            return self.target;
        }
        self.uplink_with(self.path()?)
    }

    /// The uplink with this care-of address. While the router is coming home, one that merely has the address
    /// still will do: the home agent knows no other yet.
    fn uplink_with(&self, care_of_address: Ipv6Addr) -> Option<usize> {
        let attached = self.uplinks.iter().position(|u| u.care_of_address() == Some(care_of_address));
        let coming_home = self.at_home && !self.is_home();
        attached.or_else(|| {
            self.uplinks.iter().position(|u| u.has_address(care_of_address)).filter(|_| coming_home)
        })
    }

    /// The uplink that the operator chose, while the choice stands.
    pub fn forced_uplink(&self) -> Option<&Uplink> {
        self.forced.and_then(|forced| self.uplinks.get(forced))
    }

    /// The uplink on the home link, from when the router has found itself there: the home address belongs on it,
    /// for the de-registration leaves from there, and so do routes to the home link.
    pub fn home_link(&self) -> Option<&Uplink> {
        self.target.filter(|_| self.at_home).and_then(|target| self.uplinks.get(target))
    }

    /// Whether traffic is routed without tunnel: the router is on its home link, and the home agent has
    /// acknowledged it. Until then the home agent sends everything to the care-of address.
    pub fn is_home(&self) -> bool {
        self.at_home && self.returned
    }

    /// The uplink that carries traffic without tunnel.
    pub fn home_uplink(&self) -> Option<&Uplink> {
        self.home_link().filter(|_| self.is_home())
    }

    /// Every care-of address at which packets from the home agent are accepted, with the uplink's index.
    pub fn accepted_care_of_addresses(&self) -> Vec<(Ipv6Addr, usize)> {
        let mut accepted: Vec<(Ipv6Addr, usize)> = self
            .uplinks
            .iter()
            .enumerate()
            .filter_map(|(index, uplink)| Some((uplink.care_of_address()?, index)))
            .collect();
        let registered = self.registration.filter(|_| self.at_home).map(|r| r.care_of_address);
        for address in [self.previous.map(|(previous, _)| previous), registered].into_iter().flatten() {
            if !accepted.iter().any(|(other, _)| *other == address)
                && let Some(index) = self.uplinks.iter().position(|u| u.has_address(address))
            {
                accepted.push((address, index));
            }
        }
        accepted
    }

    /// Asks for the forwarding to be computed anew, and reports when traffic moved.
    pub(super) fn forwarding_changed(&mut self, reason: &str) {
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        let active = self.active_uplink();
        if active != self.reported_path {
            let name = |index: usize| {
                self.uplinks.get(index).map(|u| u.config.interface.clone()).unwrap_or_default()
            };
            self.outputs.push_back(Output::Event(Event::Handover {
                from: self.reported_path.map(name),
                to: active.map(name),
                reason: reason.to_string(),
            }));
            self.reported_path = active;
        }
    }
}
