//! Reads the octets that an interface has received and sent.
//!
//! The thread that reads these counters also forwards packets. It must not wait for the kernel's RTNL mutex,
//! which `RTM_GETLINK` takes. A program that removes a network namespace holds the mutex for a second and
//! more. Packets of the slow path would have to wait for that time. `/proc/net/dev` and `SIOCGIFINDEX` take
//! no such lock.

use std::io;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use crate::error::{Error, Result};

/// Path of the file with the counters of all interfaces in the network namespace of the calling thread.
const INTERFACE_COUNTERS_FILE: &str = "/proc/thread-self/net/dev";
/// Number of attempts to read an interface's counters while another program replaces the interface.
const MAX_READ_ATTEMPTS: usize = 3;

/// Returns index, octets received and octets sent of the interface of this name; `None` if no interface has
/// the name.
pub(crate) fn read_octet_counters(name: &str) -> Result<Option<(u32, u64, u64)>> {
    let failed = |error| Error::from_kernel_refusal(format!("read the counters of {name}"), error);
    let index = || match if_nametoindex(name) {
        Ok(index) => Ok(Some(index)),
        Err(Errno::ENODEV | Errno::ENXIO) => Ok(None),
        Err(error) => Err(failed(io::Error::from(error))),
    };
    for _ in 0..MAX_READ_ATTEMPTS {
        let Some(before) = index()? else { return Ok(None) };
        let text = std::fs::read_to_string(INTERFACE_COUNTERS_FILE).map_err(failed)?;
        // If the index has changed, another interface has taken the name, and its counters have begun at 0.
        if index()? == Some(before)
            && let Some((received, sent)) = parse_octet_counters(&text, name)
        {
            return Ok(Some((before, received, sent)));
        }
    }
    Ok(None)
}

/// Returns the octets that the interface `name` has received and sent, from the text of `/proc/net/dev`.
/// `None` if the text lacks the interface.
fn parse_octet_counters(text: &str, name: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let mut columns = line.split_ascii_whitespace();
    Some((columns.next()?.parse().ok()?, columns.nth(7)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::parse_octet_counters;

    #[test]
    fn proc_net_dev_octets_are_read() {
        let text = "Inter-|   Receive                            |  Transmit\n face |bytes    packets \
                    errs\n    lo:  136144    1588    0    0    0     0          0         0   136145    \
                    1588    0    0    0\nwlan0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\nwlan01: \
                    18446744073709551615 0 0 0 0 0 0 0 7 0\nshort: 1 2\n";
        assert_eq!(parse_octet_counters(text, "lo"), Some((136_144, 136_145)));
        assert_eq!(parse_octet_counters(text, "wlan0"), Some((1, 9)));
        assert_eq!(parse_octet_counters(text, "wlan01"), Some((u64::MAX, 7)));
        for absent in ["wlan", "face", "short", "", "lan0"] {
            assert_eq!(parse_octet_counters(text, absent), None, "{absent}");
        }
    }
}
