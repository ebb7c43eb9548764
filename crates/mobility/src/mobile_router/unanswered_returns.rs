//! Returns of an uplink to its home link that the home agent has not answered (RFC 6275 11.5.5).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;

/// Time without effect of the home prefix after a return that the home agent has not answered: the first and
/// the longest. The time doubles with each such return.
const HOME_LINK_DOUBT_TIME: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(960));
/// Divisor of the times in [`HOME_LINK_DOUBT_TIME`]: after this fraction the time may end early.
const EARLY_END_DIVISOR: u32 = 12;
/// Maximum number of home routers that are stored because the home agent did not answer a return over them.
const MAX_SILENT_ROUTERS: usize = 8;

/// Unanswered returns since the link came up.
#[derive(Debug, Clone, Default)]
pub(super) struct UnansweredReturns {
    /// Number of returns that got no answer over any router of the home link.
    unanswered_return_count: u32,
    /// Routers of the home link over which the home agent did not answer the present return.
    silent_routers: Vec<Ipv6Addr>,
    /// Time until which the home prefix has no effect; `None` if it has effect.
    ignored_until: Option<Time>,
    /// Earliest time at which the home prefix may have effect again.
    home_ignored_at_least_until: Time,
}

impl UnansweredReturns {
    /// Returns the time until which the home prefix has no effect; `None` if it has effect.
    pub fn home_ignored_until(&self) -> Option<Time> {
        self.ignored_until
    }

    /// Records that the home agent did not answer the present return over a router. Returns false if there
    /// are too many such routers.
    pub fn add_router(&mut self, router: Ipv6Addr) -> bool {
        let has_room = self.silent_routers.len() < MAX_SILENT_ROUTERS;
        self.silent_routers.extend(Some(router).filter(|_| has_room));
        has_room
    }

    /// Returns whether the home agent did not answer the present return over a router.
    pub fn has_router(&self, router: Ipv6Addr) -> bool {
        self.silent_routers.contains(&router)
    }

    /// Begins a time in which the home prefix has no effect.
    pub fn begin_ignoring_home(&mut self, now: Time) {
        let (first, longest) = HOME_LINK_DOUBT_TIME;
        let lasts = (first * 2_u32.saturating_pow(self.unanswered_return_count.min(5))).min(longest);
        self.unanswered_return_count = self.unanswered_return_count.saturating_add(1);
        self.silent_routers.clear();
        self.ignored_until = Some(now + lasts);
        self.home_ignored_at_least_until = now + lasts / EARLY_END_DIVISOR;
    }

    /// Lets the home prefix have effect again at the earliest permitted time.
    pub fn end_ignoring_home_early(&mut self, now: Time) {
        self.ignored_until =
            self.ignored_until.map(|until| until.min(self.home_ignored_at_least_until.max(now)));
    }

    /// Lets the home prefix have effect again if its time without effect is over. Returns whether it is.
    pub fn end_ignoring_home_if_over(&mut self, now: Time) -> bool {
        self.ignored_until.take_if(|until| *until <= now).is_some()
    }
}
