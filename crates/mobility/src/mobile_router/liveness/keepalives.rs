//! Keepalives behind a NAT (RFC 5555 4.3): how long its mapping lasts is found out.
//!
//! Where nothing else keeps the mapping alive, the interval between keepalives grows as long as the NAT
//! remembers, and shrinks when it does not.

use carnet_base::{Time, WallTime};

use super::{KEEPALIVE, MIN_KEEPALIVE};
use crate::MobilityMessage;
use crate::mobile_router::MobileRouter;

impl MobileRouter {
    /// The home agent has not found a packet where it expected it: behind a NAT the mapping is another.
    pub(in crate::mobile_router) fn mappings_lost(&mut self, message: &MobilityMessage<'_>) {
        let Some((local, _)) = message.outer else { return };
        let uplink = (0..self.uplinks.len()).find(|&uplink| {
            self.heartbeat_path(uplink).is_some_and(|r| r.udp && self.local_end(uplink, &r) == local)
        });
        if let Some(uplink) = uplink {
            self.mapping_lost(uplink);
        }
    }

    /// Behind a NAT, with a home agent that knows no heartbeats.
    pub(super) fn keepalive_by_update(&mut self, now: Time, wall: WallTime, uplink: usize) {
        match self.binding_of(uplink).filter(|_| self.is_multiple()) {
            Some(index) => {
                self.list.bindings[index].again = true;
                self.reconcile(now, wall);
            }
            None => self.refresh(now, wall),
        }
    }

    /// A Binding Update leaves over an uplink: it is as good as a keepalive.
    pub(in crate::mobile_router) fn update_sent(&mut self, now: Time, uplink: usize) {
        if self.config.liveness.is_none_or(|it| it.idle >= KEEPALIVE.0)
            && let Some(path) = self.uplinks.path_mut(uplink)
            && path.waiting.is_empty()
        {
            path.last_sent = Some(now);
        }
    }

    /// The NAT still knew the way after an interval with nothing else on it: a longer one is tried.
    pub(super) fn keepalive_answered(&mut self, uplink: usize) {
        let Some(registration) = self.heartbeat_path(uplink).filter(|registration| registration.udp) else {
            return;
        };
        let idle = self.config.liveness.is_none_or(|it| it.idle >= KEEPALIVE.0 && !self.is_busy(uplink));
        let path = &mut self.uplinks[uplink].path;
        let current = path.keepalive.unwrap_or(KEEPALIVE.0);
        if !idle || path.over != Some((registration.care_of_address, true)) {
            return;
        }
        let longest = path.too_long.map_or(KEEPALIVE.2, |too_long| (too_long * 4 / 5).max(MIN_KEEPALIVE));
        path.keepalive = Some((current + KEEPALIVE.1).min(longest).max(current.min(longest)));
    }

    /// The NAT has forgotten the mapping within the last interval.
    pub(in crate::mobile_router) fn mapping_lost(&mut self, uplink: usize) {
        let Some(path) = self.uplinks.path_mut(uplink) else { return };
        let current = path.keepalive.unwrap_or(KEEPALIVE.0);
        path.too_long = Some(path.too_long.map_or(current, |before| before.min(current)));
        path.keepalive = Some((current * 2 / 3).max(MIN_KEEPALIVE));
    }
}
