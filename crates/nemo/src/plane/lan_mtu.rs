//! The MTU in Router Advertisements to hosts on board (RFC 4861 4.6.4).
//!
//! The MTU follows the path in use, but each change makes hosts forget the MTUs that they have learnt of
//! their paths. So the advertised MTU falls at once, because the router would only refuse larger packets. It
//! rises after the path has carried larger packets for ten minutes, because a narrower uplink may soon be
//! back. Meanwhile packets are a little smaller than necessary.

use std::time::Duration;

use carnet_base::Time;
use carnet_wire::ipv6::MIN_MTU;

const RAISE_MTU_AFTER: Duration = Duration::from_secs(600);

/// State of the advertised MTU.
#[derive(Debug, Default)]
pub(super) struct AdvertisedMtu {
    advertised_mtu: Option<u32>,
    /// Time since which the path has carried packets larger than the advertised MTU, and the smallest MTU of
    /// the path since that time. `None` while it does not.
    larger_mtu_since: Option<(Time, u32)>,
}

impl AdvertisedMtu {
    /// Handles the MTU of the path in use (`None` if there is no path), and returns the MTU to advertise.
    pub(super) fn update_path_mtu(&mut self, now: Time, path: Option<u32>) -> Option<u32> {
        let Some(path) = path.map(|mtu| mtu.max(MIN_MTU as u32)) else {
            // Without a path the advertised MTU cannot rise, so no timer is needed.
            self.larger_mtu_since = None;
            return self.advertised_mtu;
        };
        match (self.advertised_mtu, self.larger_mtu_since) {
            (Some(told), more) if path > told => {
                let (since, least) = more.unwrap_or((now, path));
                let least = least.min(path);
                self.larger_mtu_since = Some((since, least));
                if now >= since + RAISE_MTU_AFTER {
                    self.advertised_mtu = Some(least);
                    self.larger_mtu_since = (least < path).then_some((now, path));
                }
            }
            _ => {
                self.advertised_mtu = Some(path);
                self.larger_mtu_since = None;
            }
        }
        self.advertised_mtu
    }

    /// Returns when the advertised MTU may rise; `None` while the path does not carry larger packets.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.larger_mtu_since.map(|(since, _)| since + RAISE_MTU_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advertised_mtu_falls_at_once_and_rises_after_delay() {
        let mut lan = AdvertisedMtu::default();
        let at = Time::from_secs;
        assert_eq!(lan.update_path_mtu(at(0), None), None);
        assert_eq!(lan.update_path_mtu(at(0), Some(1460)), Some(1460));
        assert_eq!(lan.update_path_mtu(at(1), Some(1360)), Some(1360));
        assert_eq!(lan.update_path_mtu(at(2), Some(1240)), Some(1280), "no link has less");
        assert_eq!(lan.update_path_mtu(at(3), None), Some(1280));
        assert_eq!(lan.poll_timeout(), None);
        assert_eq!(lan.update_path_mtu(at(10), Some(1460)), Some(1280));
        assert_eq!(lan.update_path_mtu(at(20), Some(1360)), Some(1280));
        assert_eq!(lan.update_path_mtu(at(609), Some(1460)), Some(1280));
        assert_eq!(lan.poll_timeout(), Some(at(610)));
        assert_eq!(lan.update_path_mtu(at(610), Some(1460)), Some(1360), "what it carried all the time");
        assert_eq!(lan.update_path_mtu(at(1209), Some(1460)), Some(1360));
        assert_eq!(lan.update_path_mtu(at(1210), Some(1460)), Some(1460));
        assert_eq!(lan.poll_timeout(), None);
    }

    /// A deadline that has passed must not stay: the station would run its timers without end.
    #[test]
    fn advertised_mtu_without_path_has_no_timer() {
        let mut lan = AdvertisedMtu::default();
        let at = Time::from_secs;
        lan.update_path_mtu(at(0), Some(1360));
        lan.update_path_mtu(at(1), Some(1460));
        assert_eq!(lan.poll_timeout(), Some(at(601)));
        assert_eq!(lan.update_path_mtu(at(2), None), Some(1360));
        assert_eq!(lan.poll_timeout(), None);
        lan.update_path_mtu(at(700), Some(1460));
        assert_eq!(lan.poll_timeout(), Some(at(1300)), "all the time");
    }
}
