//! Reads the tables of legacy iptables, and finds out which parts of a forwarded packet their rules use.
//!
//! The tables have no events, so carnet reads them each second. It reads only tables that exist, because a
//! question about another table would create it. A table is a list of entries; a verdict that is not negative
//! is the offset of the entry at which another chain begins. See `linux/netfilter_ipv4/ip_tables.h`.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use super::ruleset::FamilyRules;

/// Socket options: properties of a table, and its entries.
const GET_INFO: libc::c_int = 64;
const GET_ENTRIES: libc::c_int = 65;
/// Length of the answer to [`GET_INFO`], and offsets in it: entries and policies of the five hooks, size.
const INFO: usize = 84;
const HOOK_ENTRIES: usize = 36;
const POLICIES: usize = 56;
const SIZE: usize = 80;
/// Offset of the first entry in the answer to [`GET_ENTRIES`].
const ENTRIES: usize = 40;
/// Maximum size of a table that carnet reads, in octets.
const MAX_SIZE: usize = 4 << 20;
/// Hooks of forwarded packets: prerouting, forward, postrouting.
const FORWARDING_HOOKS: [usize; 3] = [0, 2, 4];
/// Verdict `drop`.
const DROP: i32 = -1;
/// Length of the header of a match and of a target, before its data.
const HEADER: usize = 32;

/// Layout of an entry in the tables of an address family.
#[derive(Debug, Clone, Copy)]
struct Layout {
    domain: Domain,
    level: libc::c_int,
    /// File with the names of the tables that exist.
    names: &'static str,
    program: &'static str,
    /// Offsets of: transport protocol, offsets of target and next entry, counters, matches.
    protocol: usize,
    offsets: usize,
    counters: usize,
    matches: usize,
    /// Offsets of the flags and of the inverted flags, and the flag for the traffic class.
    flags: usize,
    inverted: usize,
    class: u8,
}

const IPV4: Layout = Layout {
    domain: Domain::IPV4,
    level: libc::IPPROTO_IP,
    names: "/proc/self/net/ip_tables_names",
    program: "iptables",
    protocol: 80,
    offsets: 88,
    counters: 96,
    matches: 112,
    flags: 82,
    inverted: 83,
    class: 0,
};

const IPV6: Layout = Layout {
    domain: Domain::IPV6,
    level: libc::IPPROTO_IPV6,
    names: "/proc/self/net/ip6_tables_names",
    program: "ip6tables",
    protocol: 128,
    offsets: 140,
    counters: 152,
    matches: 168,
    flags: 131,
    inverted: 132,
    class: 2,
};

/// The rules of one address family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LegacyRules {
    pub(super) rules: FamilyRules,
    /// Hash of all tables without their counters.
    hash: u64,
}

/// Returns the rules of IPv4 and of IPv6.
pub(super) fn read() -> [LegacyRules; 2] {
    [IPV4, IPV6].map(|layout| {
        let (mut found, mut hash) = (LegacyRules::default(), DefaultHasher::new());
        let names = match std::fs::read_to_string(layout.names) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return found,
            Err(error) => {
                found.rules.add_packet(|| format!("cannot read {}: {error}", layout.names));
                return found;
            }
        };
        for name in names.lines() {
            match read_table(&layout, name) {
                Ok((info, entries)) => {
                    let table = Table { layout, name, info: &info, entries: &entries };
                    table.add_to(&mut found.rules, &mut hash);
                }
                Err(error) => {
                    error.to_string().hash(&mut hash);
                    let reason = || format!("cannot read table {name} of {}: {error}", layout.program);
                    found.rules.add_packet(reason);
                }
            }
        }
        found.hash = hash.finish();
        found
    })
}

fn read_table(layout: &Layout, name: &str) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let socket = Socket::new(layout.domain, Type::DGRAM, None)?;
    let ask = |option: libc::c_int, octets: &mut [u8]| {
        for (octet, value) in octets.iter_mut().zip(name.bytes().take(31)) {
            *octet = value;
        }
        let mut length = octets.len() as libc::socklen_t;
        // SAFETY: the buffer has `length` octets, and the kernel writes at most that many.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                layout.level,
                option,
                octets.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let mut info = vec![0; INFO];
    ask(GET_INFO, &mut info)?;
    let size = u32_at(&info, SIZE) as usize;
    if size > MAX_SIZE {
        return Err(io::Error::other(format!("{size} octets are too many")));
    }
    let mut entries = vec![0; ENTRIES + size];
    entries[32..36].copy_from_slice(&(size as u32).to_ne_bytes());
    ask(GET_ENTRIES, &mut entries)?;
    Ok((info, entries.split_off(ENTRIES)))
}

struct Table<'a> {
    layout: Layout,
    name: &'a str,
    info: &'a [u8],
    entries: &'a [u8],
}

/// Effect of an entry on the fast path.
enum Use {
    /// The entry is only about packets that the fast path leaves to the kernel.
    OfKernel,
    Flow,
    Packet(String),
}

impl Table<'_> {
    /// Adds the rules of the table, and hashes the table without its counters.
    fn add_to(&self, rules: &mut FamilyRules, hash: &mut impl Hasher) {
        (self.name, self.info).hash(hash);
        let mut at = 0;
        while let Some((entry, next)) = self.entry(at) {
            entry.get(..self.layout.counters).hash(hash);
            entry.get(self.layout.matches..).hash(hash);
            at = next;
        }
        let mut starts: Vec<(usize, Option<usize>)> = Vec::new();
        for hook in FORWARDING_HOOKS {
            let word = |from: usize| u32_at(self.info, from + 4 * hook) as usize;
            if u32_at(self.info, 32) >> hook & 1 == 1 {
                starts.push((word(HOOK_ENTRIES), Some(word(POLICIES))));
            }
        }
        let mut known: BTreeSet<usize> = starts.iter().map(|(start, _)| *start).collect();
        while let Some((start, policy)) = starts.pop() {
            let (mut at, mut number) = (start, 0);
            while let Some((entry, next)) = self.entry(at) {
                let (target, verdict) = self.target(entry);
                if target == "ERROR" {
                    break;
                }
                if policy == Some(at) {
                    if verdict == Some(DROP) {
                        rules.add_flow();
                    }
                    break;
                }
                number += 1;
                // A chain of the operator ends with an entry without conditions that returns.
                let is_end = self.entry(next).is_none_or(|(next, _)| self.target(next).0 == "ERROR");
                match self.examine(entry, &target) {
                    _ if is_end => {}
                    Use::OfKernel => {
                        at = next;
                        continue;
                    }
                    Use::Packet(what) if self.name != "nat" => rules.add_packet(|| {
                        format!(
                            "rule {number} of a chain in table {} of {} uses {what}",
                            self.name, self.layout.program
                        )
                    }),
                    Use::Flow | Use::Packet(_) => rules.add_flow(),
                }
                if let Some(jump) = verdict.and_then(|verdict| usize::try_from(verdict).ok())
                    && known.insert(jump)
                {
                    starts.push((jump, None));
                }
                at = next;
            }
        }
    }

    /// Returns the entry at an offset, and the offset of the next one.
    fn entry(&self, at: usize) -> Option<(&[u8], usize)> {
        let length = usize::from(u16_at(self.entries.get(at..)?, self.layout.offsets + 2)?);
        let next = at.checked_add(length)?;
        let entry = self.entries.get(at..next).filter(|_| length >= self.layout.matches + HEADER)?;
        Some((entry, next))
    }

    /// Returns the name of an entry's target, empty for the standard target, and the verdict of that one.
    fn target(&self, entry: &[u8]) -> (String, Option<i32>) {
        let at = usize::from(u16_at(entry, self.layout.offsets).unwrap_or_default());
        let target = entry.get(at..).unwrap_or_default();
        let name = name_of(target);
        let verdict = name.is_empty().then(|| u32_at(target, HEADER) as i32);
        (name, verdict)
    }

    fn examine(&self, entry: &[u8], target: &str) -> Use {
        let Layout { protocol, offsets, matches, flags, inverted, class, .. } = self.layout;
        let octet = |at: usize| entry.get(at).copied().unwrap_or_default();
        let protocol = u16_at(entry, protocol).unwrap_or_default();
        // The inverted flag 0x40 is that of the protocol.
        if !matches!(protocol, 0 | 6 | 17) && octet(inverted) & 0x40 == 0 {
            return Use::OfKernel;
        }
        let mut packet = (octet(flags) & class != 0).then(|| "the traffic class".to_owned());
        let end = usize::from(u16_at(entry, offsets).unwrap_or_default());
        let mut at = matches;
        while at < end {
            let part = entry.get(at..end).unwrap_or_default();
            let length = usize::from(u16_at(part, 0).unwrap_or_default());
            let data = part.get(HEADER..length).unwrap_or_default();
            match examine_match(&name_of(part), part.get(31).copied().unwrap_or_default(), data) {
                Use::OfKernel => return Use::OfKernel,
                Use::Flow => {}
                Use::Packet(what) => packet = packet.or(Some(what)),
            }
            if length < HEADER {
                return Use::Packet("an unknown match".into());
            }
            at += length;
        }
        let is_plain =
            matches!(target, "" | "REJECT" | "SNAT" | "DNAT" | "MASQUERADE" | "REDIRECT" | "NETMAP");
        match packet.or_else(|| (!is_plain).then(|| target.to_owned())) {
            Some(what) => Use::Packet(what),
            None => Use::Flow,
        }
    }
}

fn examine_match(name: &str, revision: u8, data: &[u8]) -> Use {
    let octet = |at: usize| data.get(at).copied().unwrap_or_default();
    let half = |at: usize| u16_at(data, at).unwrap_or_default();
    match name {
        "udp" | "multiport" | "iprange" | "comment" => Use::Flow,
        // The option, the mask of the flags and their value, and what is inverted.
        "tcp" => match (octet(8), octet(9), octet(10) & octet(9), octet(11)) {
            (0, 0, ..) => Use::Flow,
            (_, 1.., flags, inverted) if inverted & 4 == 0 && flags & 7 != 0 => Use::OfKernel,
            _ => Use::Packet("TCP flags or options".into()),
        },
        // Bit 1 of the states is `established`.
        "state" if u32_at(data, 0) & 2 == 0 => Use::OfKernel,
        "state" => Use::Flow,
        // Bit 0 of the flags at 146 is the state, bit 7 the remaining time; at 148 are the inverted ones.
        "conntrack" if revision == 3 && half(146) & 1 == 1 && half(148) & 1 == 0 && half(150) & 2 == 0 => {
            Use::OfKernel
        }
        "conntrack" if revision == 3 && half(146) & 1 << 7 == 0 => Use::Flow,
        other => Use::Packet(format!("match {other}")),
    }
}

/// Returns the name of a match or target.
fn name_of(part: &[u8]) -> String {
    let name = part.get(2..31).unwrap_or_default().split(|octet| *octet == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(octets.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// Returns a number, or 0 if the octets are too short for it.
fn u32_at(octets: &[u8], at: usize) -> u32 {
    octets.get(at..at + 4).and_then(|it| it.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::fast_path::RuleScope;

    /// Returns the rules of IPv4 and IPv6 in a new network namespace after these commands; `None` if this
    /// machine permits none, or has no legacy iptables.
    fn rules_after(commands: &[&str]) -> Option<[FamilyRules; 2]> {
        let commands: Vec<String> = commands.iter().map(|it| (*it).to_owned()).collect();
        let read = move || {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() {
                println!("\nSKIPPED: cannot make a network namespace");
                return None;
            }
            // Threads have network namespaces of their own, of which `/proc/self` shows only the first one's.
            for command in commands {
                let mut words = command.split_whitespace();
                let status = Command::new(words.next().expect("a program")).args(words).status();
                if !status.is_ok_and(|status| status.success()) {
                    println!("\nSKIPPED: `{command}` fails");
                    return None;
                }
            }
            Some([IPV4, IPV6].map(|layout| {
                let mut rules = FamilyRules::default();
                let names = layout.names.replace("/proc/self", "/proc/thread-self");
                for name in std::fs::read_to_string(names).expect("names").lines() {
                    let (info, entries) = read_table(&layout, name).expect("a table");
                    let table = Table { layout, name, info: &info, entries: &entries };
                    table.add_to(&mut rules, &mut DefaultHasher::new());
                }
                rules
            }))
        };
        std::thread::spawn(read).join().expect("the thread ends")
    }

    #[test]
    fn legacy_rules_are_examined() {
        use RuleScope::{Flow, Nothing, Packet};
        for (commands, ipv4, ipv6) in [
            (&["iptables-legacy -A INPUT -m limit -j ACCEPT"][..], Nothing, Nothing),
            (&["iptables-legacy -P FORWARD DROP"], Flow, Nothing),
            (&["iptables-legacy -A FORWARD -s 10.0.0.0/8 -p tcp --dport 22 -j DROP"], Flow, Nothing),
            (&["ip6tables-legacy -A FORWARD -p udp -m multiport --dports 5,6 -j REJECT"], Nothing, Flow),
            (&["iptables-legacy -A FORWARD -p icmp -m limit -j ACCEPT"], Nothing, Nothing),
            (&["iptables-legacy -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT"], Flow, Nothing),
            (&["iptables-legacy -A FORWARD -m conntrack --ctstate NEW -m limit -j ACCEPT"], Nothing, Nothing),
            (&["iptables-legacy -A FORWARD -p tcp --syn -m limit -j ACCEPT"], Nothing, Nothing),
            (&["iptables-legacy -A FORWARD -p tcp --tcp-flags PSH PSH -j DROP"], Packet, Nothing),
            (&["ip6tables-legacy -A FORWARD -m limit -j ACCEPT"], Nothing, Packet),
            (&["iptables-legacy -t mangle -A POSTROUTING -j MARK --set-mark 7"], Packet, Nothing),
            (
                &[
                    "iptables-legacy -N own",
                    "iptables-legacy -A own -m length --length 99 -j DROP",
                    "iptables-legacy -A FORWARD -i eth7 -j own",
                ],
                Packet,
                Nothing,
            ),
        ] {
            let Some(rules) = rules_after(commands) else { continue };
            assert_eq!(rules.each_ref().map(|it| it.scope), [ipv4, ipv6], "{commands:?}: {rules:?}");
        }
    }
}
