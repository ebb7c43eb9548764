//! A lease in the form in which the station stores it.
//!
//! The record has the date at which the lease began, because the monotonic clock begins anew with each start.
//! Many vehicles start with a wrong date. If the date is before that of the record, the lease gets its whole
//! time again. A lease that lasts too long only makes an address unusable for a while. A lease that ends too
//! early would give one address to two hosts.

use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use serde::{Deserialize, Serialize};

use super::bindings::{AddressBinding, AddressState};
use super::message::DhcpClientId;
use crate::LinkAddress;

/// Record of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLease {
    /// Address of the client.
    pub address: Ipv4Addr,
    /// Identity of the client.
    #[serde(with = "carnet_base::hex")]
    pub client: Vec<u8>,
    /// Link-layer address of the client.
    pub link_address: LinkAddress,
    /// Name of the client.
    #[serde(default)]
    pub host_name: Option<String>,
    /// Date at which the client got or renewed the lease.
    pub since: WallTime,
    /// Lease time in seconds.
    pub seconds: u32,
}

impl StoredLease {
    /// Returns the remaining time at this date; `None` if the lease has ended.
    pub fn remaining_time(&self, wall: WallTime) -> Option<Duration> {
        let whole = Duration::from_secs(self.seconds.into());
        if wall < self.since {
            return Some(whole);
        }
        let left = whole.saturating_sub(wall.absolute_difference(self.since));
        (!left.is_zero()).then_some(left)
    }

    /// Returns the entry of the address in the table; `None` if the lease has ended at this date.
    pub(super) fn to_binding(&self, now: Time, wall: WallTime) -> Option<AddressBinding> {
        Some(AddressBinding {
            client_id: DhcpClientId(self.client.clone()),
            link_address: self.link_address,
            host_name: self.host_name.clone(),
            state: AddressState::Leased,
            state_ends_at: now + self.remaining_time(wall)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restored_lease_ends_at_its_date_or_runs_in_full_if_clock_is_wrong() {
        let since = WallTime::from_unix_nanos(1_700_000_000_000_000_000);
        let lease = StoredLease {
            address: Ipv4Addr::new(10, 42, 7, 9),
            client: vec![1, 2],
            link_address: [2, 0, 0, 0, 0, 9],
            host_name: None,
            since,
            seconds: 3600,
        };
        assert_eq!(lease.remaining_time(since + Duration::from_secs(3000)), Some(Duration::from_secs(600)));
        assert_eq!(lease.remaining_time(since + Duration::from_secs(3600)), None);
        assert_eq!(lease.remaining_time(WallTime::from_unix_nanos(0)), Some(Duration::from_secs(3600)));
    }
}
