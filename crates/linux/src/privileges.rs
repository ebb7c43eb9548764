//! Checks the capabilities of the process before carnet changes anything on the machine.

use std::fs;

use crate::error::{Error, Result};

/// Name and number of each needed capability (`capabilities(7)`): the first for changes of the network, the
/// second for packet sockets.
const NEEDED_CAPABILITIES: [(&str, u32); 2] = [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13)];

/// Further capabilities that a process needs to load BPF programs; `CAP_SYS_ADMIN` replaces both.
const BPF_CAPABILITIES: [(&str, u32); 2] = [("CAP_BPF", 39), ("CAP_PERFMON", 38)];
const CAP_SYS_ADMIN: u32 = 21;

/// Returns the names of the needed capabilities that are missing in the `CapEff:` line of a
/// `/proc/.../status`. Returns `None` if the text has no such line.
fn missing_capabilities(status: &str) -> Option<Vec<&'static str>> {
    let effective = effective_capabilities(status)?;
    Some(
        NEEDED_CAPABILITIES
            .iter()
            .filter(|(_, bit)| effective >> bit & 1 == 0)
            .map(|(name, _)| *name)
            .collect(),
    )
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Returns the names of the missing capabilities for loading BPF programs, from the text of a
/// `/proc/.../status`. Returns `None` if the text has no `CapEff:` line.
fn missing_bpf_capabilities(status: &str) -> Option<Vec<&'static str>> {
    let effective = effective_capabilities(status)?;
    if effective >> CAP_SYS_ADMIN & 1 == 1 {
        return Some(Vec::new());
    }
    Some(
        BPF_CAPABILITIES.iter().filter(|(_, bit)| effective >> bit & 1 == 0).map(|(name, _)| *name).collect(),
    )
}

/// Returns the names of the capabilities that this process lacks for loading BPF programs; empty if carnet
/// cannot read its capabilities.
pub fn missing_for_bpf() -> Vec<&'static str> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    missing_bpf_capabilities(&status).unwrap_or_default()
}

/// Fails with the names of the missing capabilities. If carnet cannot read its capabilities in `/proc`, the
/// kernel later refuses the operation that needs one.
pub(crate) fn check_capabilities() -> Result<()> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    match missing_capabilities(&status) {
        Some(names) if !names.is_empty() => Err(Error::Capability { missing: names.join(" and ") }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(missing_capabilities("Name:\tx\nCapEff:\t0000000000003000\n"), Some(vec![]));
        assert_eq!(missing_capabilities("CapEff:\t0000000000001000"), Some(vec!["CAP_NET_RAW"]));
        assert_eq!(
            missing_capabilities("CapEff:\t0000000000000000"),
            Some(vec!["CAP_NET_ADMIN", "CAP_NET_RAW"])
        );
        assert_eq!(missing_capabilities("CapPrm:\t0"), None);
        assert_eq!(
            missing_bpf_capabilities("CapEff:\t0000000000003000"),
            Some(vec!["CAP_BPF", "CAP_PERFMON"])
        );
        assert_eq!(missing_bpf_capabilities("CapEff:\t0000008000003000"), Some(vec!["CAP_PERFMON"]));
        assert_eq!(missing_bpf_capabilities("CapEff:\t0000000000200000"), Some(vec![]));
    }
}
