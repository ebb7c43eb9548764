//! Keeps the kernel as it is wanted, whatever happens to it meanwhile: looks when there is news, and tries
//! again what has failed.
//!
//! Entries that wait for an interface are tried when interfaces change. After a refusal of the kernel,
//! perhaps for lack of memory, no event may follow. So these are tried by the clock as well, after one second
//! first and then after twice as long each time.

use std::collections::VecDeque;
use std::net::Ipv6Addr;

use crate::error::{Error, Result};
use crate::installer::Installer;
use crate::netlink::{Dirty, News};
use crate::observer::Observer;
use crate::platform::PlatformEvent;

/// Seconds between two attempts at what was refused, at the most.
const LONGEST_PAUSE: u32 = 32;

/// Desired entries, installed entries, and events.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) installer: Installer,
    pub(crate) observer: Observer,
    pub(crate) news: News,
    /// A router has been heard whose route had expired: the kernel may take longer than this process.
    heard: bool,
    /// Seconds between the last two attempts at what was refused, and how many of these until the next are
    /// left.
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

    /// Asks for what has changed, puts back what got lost, and collects the news. `follow` is told of the
    /// links before. After an error everything is asked for the next time.
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

    /// Looks at the settings anew, and puts back what another program has changed.
    pub(crate) fn doubt_settings(&mut self) {
        self.news.dirty.settings = true;
    }

    /// Notes a Router Advertisement. If the router's default route had expired, the kernel renews it without
    /// an event. The keeper then asks the kernel at once and with the next second, and no more often than
    /// that.
    pub(crate) fn hear_router(&mut self, interface: &str, router: Ipv6Addr) {
        if !self.heard && self.observer.has_expired(interface, router) {
            self.heard = true;
            self.news.dirty.routers = true;
        }
    }

    /// To be called each second: tries again what was refused, and what another program has changed.
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

    /// Lets the fast path follow.
    pub(crate) fn commit(&mut self) {
        give_up(self.installer.commit());
    }
}

/// Says that there is no fast path any more.
pub(crate) fn give_up(result: std::result::Result<(), String>) {
    if let Err(why) = result {
        tracing::error!("the fast path is given up, packets take the slow path: {why}");
    }
}
