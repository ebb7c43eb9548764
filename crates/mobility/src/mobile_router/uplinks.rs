//! The uplinks of a mobile router with the paths over them, and which of them is selected.

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use carnet_base::{Rng, Time};

use super::liveness::{Heartbeats, PathState};
use super::{MobileRouterConfig, Uplink, UplinkConfig};
use crate::binding_update_list::Links;

/// The uplinks, in the order of the configuration.
#[derive(Debug)]
pub(super) struct Uplinks {
    all: Vec<Uplink>,
    /// The operator's choice.
    pub(super) forced: Option<usize>,
    /// The uplink that is registered or being registered.
    pub(super) target: Option<usize>,
    pub(super) heartbeats: Heartbeats,
}

impl Uplinks {
    /// The uplinks of a router that knows none of its interfaces yet.
    pub(super) fn new(config: &MobileRouterConfig, rng: &mut Rng) -> Uplinks {
        let new = |uplink: &UplinkConfig| Uplink::new(uplink.clone(), PathState::new(rng.u64() as u32));
        Uplinks {
            all: config.uplinks.iter().map(new).collect(),
            forced: None,
            target: None,
            heartbeats: Heartbeats::new(config.liveness),
        }
    }

    /// Returns the path over an uplink.
    pub(super) fn path(&self, index: usize) -> Option<&PathState> {
        Some(&self.all.get(index)?.path)
    }

    /// Returns the path over an uplink, to be changed.
    pub(super) fn path_mut(&mut self, index: usize) -> Option<&mut PathState> {
        Some(&mut self.all.get_mut(index)?.path)
    }

    /// Returns the paths over all uplinks.
    pub(super) fn paths(&self) -> impl Iterator<Item = &PathState> {
        self.all.iter().map(|uplink| &uplink.path)
    }

    /// Returns the paths over all uplinks, to be changed.
    pub(super) fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathState> {
        self.all.iter_mut().map(|uplink| &mut uplink.path)
    }

    /// Whether the path over an uplink that is up has failed.
    pub(super) fn is_silent(&self, index: usize) -> bool {
        self.path(index).is_some_and(|path| path.liveness.has_failed())
    }

    /// Whether a path that had failed has yet to prove itself.
    pub(super) fn is_proving(&self, index: usize) -> bool {
        self.path(index).is_some_and(|path| path.liveness.is_proving())
    }

    /// Whether a packet or an answer has arrived over an uplink lately.
    pub(super) fn is_heard(&self, now: Time, index: usize) -> bool {
        self.path(index).is_some_and(|path| path.is_alive(now))
    }

    /// Whether an uplink is at its capacity, and packets wait. Only heartbeats show that, and its end.
    pub(super) fn is_full(&self, index: usize) -> bool {
        self.heartbeats.are_sent()
            && self.path(index).is_some_and(|path| path.arrivals.is_full && !path.liveness.has_failed())
    }

    /// Returns the longest time for answers over an uplink, if it was measured.
    pub(super) fn answer_time(&self, index: usize) -> Option<Duration> {
        self.path(index)?.answer_time()
    }

    /// Returns the index of the uplink with this interface.
    pub(super) fn position(&self, interface: &str) -> Option<usize> {
        self.all.iter().position(|uplink| uplink.config.interface == interface)
    }

    /// Returns the end of an uplink's demotion, if it is demoted.
    pub(super) fn demoted_until(&self, index: usize) -> Option<Time> {
        self.get(index)?.demoted_until
    }
}

impl Deref for Uplinks {
    type Target = [Uplink];

    fn deref(&self) -> &[Uplink] {
        &self.all
    }
}

impl DerefMut for Uplinks {
    fn deref_mut(&mut self) -> &mut [Uplink] {
        &mut self.all
    }
}

impl Links for Uplinks {
    fn count(&self) -> usize {
        self.all.len()
    }

    fn care_of_addresses(&self, link: usize) -> Vec<IpAddr> {
        self.all.get(link).map(Uplink::care_of_addresses).unwrap_or_default()
    }

    fn has_care_of_address(&self, link: usize, address: IpAddr) -> bool {
        self.all.get(link).is_some_and(|uplink| uplink.has_care_of_address(address))
    }

    fn priority(&self, link: usize) -> u8 {
        Uplinks::priority(self, link)
    }

    fn is_silent(&self, link: usize) -> bool {
        Uplinks::is_silent(self, link)
    }

    fn is_proving(&self, link: usize) -> bool {
        Uplinks::is_proving(self, link)
    }

    fn is_full(&self, link: usize) -> bool {
        Uplinks::is_full(self, link)
    }

    fn is_probing(&self) -> bool {
        self.heartbeats.are_sent()
    }
}
