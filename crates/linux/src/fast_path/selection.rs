//! Which bindings a fast path has to keep its hands off.
//!
//! A fast path sends all packets of a binding through one tunnel of IPv6 in IPv6. A binding that sends inside IPv4 or
//! UDP, or distributes its packets among several tunnels, is left to the slow path as long as it does. What comes out
//! of its tunnels a fast path may take all the same, where it looks at each packet: one that is a copy of several
//! has an extension header, and such packets are left alone anyhow.

use std::collections::{BTreeMap, BTreeSet};

use carnet_base::Endpoint;
use carnet_station::forwarding::desired;

use super::Binding;

/// Why a binding is kept from the fast path.
#[derive(Debug, Default)]
struct Reasons {
    /// Tunnels of other kinds into which packets are sent.
    others: BTreeSet<(Endpoint, Endpoint)>,
    distributed: bool,
}

/// The bindings for which there is a reason.
#[derive(Debug, Default)]
pub(super) struct Selection(BTreeMap<Binding, Reasons>);

impl Selection {
    /// A tunnel of another kind is there; whether its binding is to be held.
    pub(super) fn set_other(&mut self, tunnel: &desired::Tunnel) -> bool {
        self.change((tunnel.end, tunnel.home_address), |reasons| {
            let ends = (tunnel.local, tunnel.remote);
            let _ = if tunnel.transmit { reasons.others.insert(ends) } else { reasons.others.remove(&ends) };
        })
    }

    /// It is gone.
    pub(super) fn remove_other(&mut self, tunnel: &desired::Tunnel) -> bool {
        self.change((tunnel.end, tunnel.home_address), |reasons| {
            reasons.others.remove(&(tunnel.local, tunnel.remote));
        })
    }

    /// A binding's packets are distributed, or no longer.
    pub(super) fn distribute(&mut self, binding: Binding, is: bool) -> bool {
        self.change(binding, |reasons| reasons.distributed = is)
    }

    /// All bindings that are kept from the fast path.
    pub(super) fn held(&self) -> impl Iterator<Item = Binding> {
        self.0.keys().copied()
    }

    fn change(&mut self, binding: Binding, how: impl FnOnce(&mut Reasons)) -> bool {
        let reasons = self.0.entry(binding).or_default();
        how(reasons);
        let held = reasons.distributed || !reasons.others.is_empty();
        if !held {
            self.0.remove(&binding);
        }
        held
    }
}
