//! Returns of an uplink to its home link that the home agent has not answered (RFC 6275 11.5.5).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;

/// Time without effect of the home prefix after a return that the home agent has not answered: the first and
/// the longest. The time doubles with each such return.
const HOME_DOUBTED: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(960));
/// Divisor of the times in [`HOME_DOUBTED`]: after this fraction the time may end early.
const EARLY_END: u32 = 12;
/// Maximum number of home routers that are stored because the home agent did not answer a return over them.
const MAX_ROUTERS: usize = 8;

/// Unanswered returns since the link came up.
#[derive(Debug, Clone, Default)]
pub(super) struct UnansweredReturns {
    /// Number of returns over all routers of the home link.
    count: u32,
    /// Routers of the home link over which the home agent did not answer the present return.
    routers: Vec<Ipv6Addr>,
    /// Time until which the home prefix has no effect.
    until: Option<Time>,
    /// Earliest time at which the home prefix may have effect again.
    earliest: Time,
}

impl UnansweredReturns {
    /// Returns the time until which the home prefix has no effect; `None` if it has effect.
    pub fn until(&self) -> Option<Time> {
        self.until
    }

    /// Records that the home agent did not answer the present return over a router. Returns false if there
    /// are too many such routers.
    pub fn add_router(&mut self, router: Ipv6Addr) -> bool {
        let has_room = self.routers.len() < MAX_ROUTERS;
        self.routers.extend(Some(router).filter(|_| has_room));
        has_room
    }

    /// Returns whether the home agent did not answer the present return over a router.
    pub fn has_router(&self, router: Ipv6Addr) -> bool {
        self.routers.contains(&router)
    }

    /// Begins a time in which the home prefix has no effect.
    pub fn begin(&mut self, now: Time) {
        let (first, longest) = HOME_DOUBTED;
        let lasts = (first * 2_u32.saturating_pow(self.count.min(5))).min(longest);
        self.count = self.count.saturating_add(1);
        self.routers.clear();
        self.until = Some(now + lasts);
        self.earliest = now + lasts / EARLY_END;
    }

    /// Lets the home prefix have effect again at the earliest permitted time.
    pub fn hasten(&mut self, now: Time) {
        self.until = self.until.map(|until| until.min(self.earliest.max(now)));
    }

    /// Lets the home prefix have effect again if its time is over. Returns whether that is so.
    pub fn expire(&mut self, now: Time) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }
}
