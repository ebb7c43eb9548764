//! Keeps the kernel in the desired state: reads the state after events, and retries what has failed.
//!
//! The keeper installs entries that wait for an interface when interfaces change. If the kernel refused an
//! entry, for example for lack of memory, no event may follow. So the keeper also tries refused entries at
//! intervals: first after one second, then after twice the time at each attempt.

use std::collections::VecDeque;
use std::net::Ipv6Addr;

use crate::error::{Error, Result};
use crate::event::PlatformEvent;
use crate::installer::Installer;
use crate::netlink::{Dirty, News};
use crate::observer::Observer;

/// Longest interval between two attempts at refused entries, in seconds.
const LONGEST_PAUSE: u32 = 32;

/// The desired and installed entries, and the source of the kernel's events.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) installer: Installer,
    pub(crate) observer: Observer,
    pub(crate) news: News,
    /// Whether to read the routes at the next second: a router with an expired default route has sent an
    /// advertisement. The kernel may handle it later than this process.
    heard: bool,
    /// Seconds between the last two attempts at refused entries; `left` is the number of seconds until the
    /// next attempt.
    pause: u32,
    left: u32,
}

impl Keeper {
    pub(crate) fn new(installer: Installer) -> Keeper {
        Keeper {
            installer,
            observer: Observer::default(),
            news: News::default(),
            heard: false,
            pause: 1,
            left: 1,
        }
    }

    /// Reads the kernel's changed state, restores lost entries, and collects the changes for the station.
    /// Calls `follow` with the links before it restores entries. After an error the next call reads the whole
    /// state.
    pub(crate) fn refresh(
        &mut self,
        events: &mut VecDeque<PlatformEvent>,
        follow: impl FnOnce(&mut Installer, &Observer),
    ) -> Result<()> {
        let dirty = std::mem::take(&mut self.news.dirty);
        if !dirty.any() {
            return Ok(());
        }
        let result = self.look(dirty, events, follow);
        if result.is_err() {
            self.news.dirty = Dirty::ALL;
        }
        result
    }

    fn look(
        &mut self,
        dirty: Dirty,
        events: &mut VecDeque<PlatformEvent>,
        follow: impl FnOnce(&mut Installer, &Observer),
    ) -> Result<()> {
        let Keeper { installer, observer, news, .. } = self;
        observer.refresh(dirty, &mut installer.requests)?;
        news.gateways = observer.gateways();
        if !observer.links.values().any(|link| link.index == installer.tunnel_index) {
            return Err(Error::tunnel_gone());
        }
        follow(installer, observer);
        events.extend(observer.news());
        installer.permit(observer);
        let result = installer.reconcile(dirty, &observer.links, &observer.addresses);
        events.extend(installer.notices().into_iter().map(PlatformEvent::Notice));
        result?;
        self.commit();
        Ok(())
    }

    /// Reads all settings again, and corrects those that another program has changed.
    pub(crate) fn doubt_settings(&mut self) {
        self.news.dirty.settings = true;
    }

    /// Handles a Router Advertisement. If the router's default route had expired, the kernel renews it
    /// without an event. The keeper then reads the routes at once, and once more at the next second.
    pub(crate) fn hear_router(&mut self, interface: &str, router: Ipv6Addr) {
        if !self.heard && self.observer.has_expired(interface, router) {
            self.heard = true;
            self.news.dirty.routers = true;
        }
    }

    /// The caller calls this each second. It tries refused entries again, and corrects entries that another
    /// program has changed.
    pub(crate) fn tick(&mut self) {
        if self.installer.pass_second() {
            self.installer.retry(&self.observer.links, false);
            self.commit();
        }
        self.news.dirty.routers |= std::mem::take(&mut self.heard) | self.observer.has_expired_route();
        if !self.installer.is_troubled() {
            (self.pause, self.left) = (1, 1);
            return;
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.installer.retry(&self.observer.links, true);
            self.commit();
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            self.left = self.pause;
        }
    }

    /// Applies the changes since the last commit to the fast path.
    pub(crate) fn commit(&mut self) {
        give_up(self.installer.commit());
    }
}

/// Logs that the fast path is closed, if `result` is an error.
pub(crate) fn give_up(result: std::result::Result<(), String>) {
    if let Err(why) = result {
        tracing::error!("the fast path is given up, packets take the slow path: {why}");
    }
}
