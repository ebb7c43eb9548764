//! The uplinks of a mobile router, the state of their paths, and the selected uplink.

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use carnet_base::{Rng, Time};

use super::liveness::{Heartbeats, PathState};
use super::{MobileRouterConfig, Uplink, UplinkConfig};
use crate::binding_update_list::UplinkStates;

/// The uplinks, in the order of the config.
#[derive(Debug)]
pub(super) struct Uplinks {
    uplinks: Vec<Uplink>,
    /// Uplink that the operator has selected; `None` if the router selects it.
    pub(super) forced_uplink: Option<usize>,
    /// Uplink that the router has registered or is registering; `None` if no uplink is usable.
    pub(super) target_uplink: Option<usize>,
    pub(super) heartbeats: Heartbeats,
}

impl Uplinks {
    /// Creates the uplinks; the state of their interfaces is not known yet.
    pub(super) fn new(config: &MobileRouterConfig, rng: &mut Rng) -> Uplinks {
        let new =
            |uplink: &UplinkConfig| Uplink::new(uplink.clone(), PathState::new(rng.random_u64() as u32));
        Uplinks {
            uplinks: config.uplinks.iter().map(new).collect(),
            forced_uplink: None,
            target_uplink: None,
            heartbeats: Heartbeats::new(config.liveness),
        }
    }

    /// Returns the state of the path over an uplink; `None` if there is no uplink with this index.
    pub(super) fn path(&self, index: usize) -> Option<&PathState> {
        Some(&self.uplinks.get(index)?.path)
    }

    /// Returns the state of the path over an uplink for modification; `None` if there is no uplink with this
    /// index.
    pub(super) fn path_mut(&mut self, index: usize) -> Option<&mut PathState> {
        Some(&mut self.uplinks.get_mut(index)?.path)
    }

    /// Returns the paths over all uplinks.
    pub(super) fn paths(&self) -> impl Iterator<Item = &PathState> {
        self.uplinks.iter().map(|uplink| &uplink.path)
    }

    /// Returns the paths over all uplinks for modification.
    pub(super) fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathState> {
        self.uplinks.iter_mut().map(|uplink| &mut uplink.path)
    }

    /// Returns whether an uplink is up but its path has failed.
    pub(super) fn has_path_failed(&self, index: usize) -> bool {
        self.path(index).is_some_and(|path| path.liveness.has_failed())
    }

    /// Returns whether a failed path works again but needs more answers before it is used.
    pub(super) fn is_path_recovering(&self, index: usize) -> bool {
        self.path(index).is_some_and(|path| path.liveness.is_recovering())
    }

    /// Returns whether a packet or an answer has arrived over an uplink lately.
    pub(super) fn has_recent_arrival(&self, now: Time, index: usize) -> bool {
        self.path(index).is_some_and(|path| path.is_alive(now))
    }

    /// Returns whether an uplink carries its full capacity, so that packets wait in a queue. Only heartbeats
    /// detect this.
    pub(super) fn is_path_saturated(&self, index: usize) -> bool {
        self.heartbeats.are_heartbeats_sent()
            && self.path(index).is_some_and(|path| path.path_packets.is_full && !path.liveness.has_failed())
    }

    /// Returns the longest time that answers over an uplink take; `None` without a measurement.
    pub(super) fn answer_time_of(&self, index: usize) -> Option<Duration> {
        self.path(index)?.usual_answer_time()
    }

    /// Returns the index of the uplink with this interface; `None` if no uplink has it.
    pub(super) fn index_of(&self, interface: &str) -> Option<usize> {
        self.uplinks.iter().position(|uplink| uplink.config.interface == interface)
    }

    /// Returns the time until which the router avoids an uplink; `None` if it does not.
    pub(super) fn demoted_until(&self, index: usize) -> Option<Time> {
        self.get(index)?.demoted_until
    }
}

impl Deref for Uplinks {
    type Target = [Uplink];

    fn deref(&self) -> &[Uplink] {
        &self.uplinks
    }
}

impl DerefMut for Uplinks {
    fn deref_mut(&mut self) -> &mut [Uplink] {
        &mut self.uplinks
    }
}

impl UplinkStates for Uplinks {
    fn uplink_count(&self) -> usize {
        self.uplinks.len()
    }

    fn care_of_addresses(&self, link: usize) -> Vec<IpAddr> {
        self.uplinks.get(link).map(Uplink::care_of_addresses).unwrap_or_default()
    }

    fn next_hop(&self, link: usize, address: IpAddr) -> Option<IpAddr> {
        self.uplinks.get(link)?.next_hop(address)
    }

    fn has_care_of_address(&self, link: usize, address: IpAddr) -> bool {
        self.uplinks.get(link).is_some_and(|uplink| uplink.has_care_of_address(address))
    }

    fn priority(&self, link: usize) -> u8 {
        Uplinks::priority(self, link)
    }

    fn has_path_failed(&self, link: usize) -> bool {
        Uplinks::has_path_failed(self, link)
    }

    fn is_path_recovering(&self, link: usize) -> bool {
        Uplinks::is_path_recovering(self, link)
    }

    fn is_path_saturated(&self, link: usize) -> bool {
        Uplinks::is_path_saturated(self, link)
    }

    fn sends_heartbeats(&self) -> bool {
        self.heartbeats.are_heartbeats_sent()
    }
}
