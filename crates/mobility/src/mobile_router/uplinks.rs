//! The uplinks of a mobile router with the paths over them, and which of them is selected.

use std::ops::{Deref, DerefMut};

use carnet_base::Rng;

use super::liveness::PathState;
use super::{Uplink, UplinkConfig};

/// The uplinks, in the order of the configuration.
#[derive(Debug)]
pub(super) struct Uplinks {
    all: Vec<Uplink>,
    /// The operator's choice.
    pub(super) forced: Option<usize>,
    /// The uplink that is registered or being registered.
    pub(super) target: Option<usize>,
}

impl Uplinks {
    /// The uplinks of a router that knows none of its interfaces yet.
    pub(super) fn new(configs: &[UplinkConfig], rng: &mut Rng) -> Uplinks {
        let new = |config: &UplinkConfig| Uplink::new(config.clone(), PathState::new(rng.u64() as u32));
        Uplinks { all: configs.iter().map(new).collect(), forced: None, target: None }
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
