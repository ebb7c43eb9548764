//! Reads the tables of legacy iptables, and finds out which parts of a forwarded packet their rules use.
//!
//! The kernel reports no changes of these tables, so carnet reads them each second. It reads only tables that
//! exist, because a request for another table would create it. A table is a list of entries, one for each
//! rule. If a verdict is not negative, it is an offset: the kernel jumps to the chain whose first entry is
//! there. See `linux/netfilter_ipv4/ip_tables.h`.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use super::rule_uses::IpFamilyRules;

/// Socket options: properties of a table, and its entries.
const IPT_GET_INFO: libc::c_int = 64;
const IPT_GET_ENTRIES: libc::c_int = 65;
/// Length in octets of the answer to [`IPT_GET_INFO`].
const TABLE_INFO_LENGTH: usize = 84;
/// Offset in the answer to `IPT_GET_INFO` of the first entries of the five hooks.
const HOOK_ENTRIES_OFFSET: usize = 36;
/// Offset in the answer to `IPT_GET_INFO` of the policies of the five hooks.
const POLICIES_OFFSET: usize = 56;
/// Offset in the answer to `IPT_GET_INFO` of the size of the table.
const TABLE_SIZE_OFFSET: usize = 80;
/// Offset of the first entry in the answer to [`IPT_GET_ENTRIES`].
const FIRST_ENTRY_OFFSET: usize = 40;
/// Maximum size of a table that carnet reads, in octets.
const MAX_TABLE_SIZE: usize = 4 << 20;
/// Hooks of forwarded packets: prerouting, forward, postrouting.
const FORWARDING_HOOKS: [usize; 3] = [0, 2, 4];
/// Verdict `drop`.
const VERDICT_DROP: i32 = -1;
/// Length of the header of a match and of a target, before its data.
const MATCH_HEADER_LENGTH: usize = 32;

/// Layout of an entry in the tables of an address family.
#[derive(Debug, Clone, Copy)]
struct TableLayout {
    socket_domain: Domain,
    option_level: libc::c_int,
    /// File with the names of the tables that exist.
    table_names_file: &'static str,
    iptables_program: &'static str,
    /// Offset of the transport protocol in an entry.
    protocol_offset: usize,
    /// Offset in an entry of two fields: the offset of the entry's target, and that of the next entry.
    target_field_offset: usize,
    /// Offset of the counters in an entry.
    counters_offset: usize,
    /// Offset of the matches in an entry.
    matches_offset: usize,
    /// Offset of the flags in an entry.
    flags_offset: usize,
    /// Offset in an entry of the flags that invert conditions.
    inverted_flags_offset: usize,
    /// Flag of an entry that compares the traffic class; 0 if the address family has none.
    traffic_class_flag: u8,
}

const IPV4_LAYOUT: TableLayout = TableLayout {
    socket_domain: Domain::IPV4,
    option_level: libc::IPPROTO_IP,
    table_names_file: "/proc/self/net/ip_tables_names",
    iptables_program: "iptables",
    protocol_offset: 80,
    target_field_offset: 88,
    counters_offset: 96,
    matches_offset: 112,
    flags_offset: 82,
    inverted_flags_offset: 83,
    traffic_class_flag: 0,
};

const IPV6_LAYOUT: TableLayout = TableLayout {
    socket_domain: Domain::IPV6,
    option_level: libc::IPPROTO_IPV6,
    table_names_file: "/proc/self/net/ip6_tables_names",
    iptables_program: "ip6tables",
    protocol_offset: 128,
    target_field_offset: 140,
    counters_offset: 152,
    matches_offset: 168,
    flags_offset: 131,
    inverted_flags_offset: 132,
    traffic_class_flag: 2,
};

/// The rules of one address family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LegacyRules {
    pub(super) rules: IpFamilyRules,
    /// Hash of all tables without their counters.
    rules_hash: u64,
}

/// Returns the rules of IPv4 and of IPv6.
pub(super) fn read_legacy_rules() -> [LegacyRules; 2] {
    [IPV4_LAYOUT, IPV6_LAYOUT].map(|layout| {
        let (mut found, mut hash) = (LegacyRules::default(), DefaultHasher::new());
        let names = match std::fs::read_to_string(layout.table_names_file) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return found,
            Err(error) => {
                found.rules.note_packet_use(|| format!("cannot read {}: {error}", layout.table_names_file));
                return found;
            }
        };
        for name in names.lines() {
            match read_table(&layout, name) {
                Ok((info, entries)) => {
                    let table = LegacyTable { layout, name, table_info: &info, entry_octets: &entries };
                    table.add_rule_uses(&mut found.rules, &mut hash);
                }
                Err(error) => {
                    error.to_string().hash(&mut hash);
                    let reason =
                        || format!("cannot read table {name} of {}: {error}", layout.iptables_program);
                    found.rules.note_packet_use(reason);
                }
            }
        }
        found.rules_hash = hash.finish();
        found
    })
}

fn read_table(layout: &TableLayout, name: &str) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let socket = Socket::new(layout.socket_domain, Type::DGRAM, None)?;
    let ask = |option: libc::c_int, octets: &mut [u8]| {
        for (octet, value) in octets.iter_mut().zip(name.bytes().take(31)) {
            *octet = value;
        }
        let mut length = octets.len() as libc::socklen_t;
        // SAFETY: the buffer has `length` octets, and the kernel writes at most that many.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                layout.option_level,
                option,
                octets.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let mut info = vec![0; TABLE_INFO_LENGTH];
    ask(IPT_GET_INFO, &mut info)?;
    let size = u32_at(&info, TABLE_SIZE_OFFSET) as usize;
    if size > MAX_TABLE_SIZE {
        return Err(io::Error::other(format!("{size} octets are too many")));
    }
    let mut entries = vec![0; FIRST_ENTRY_OFFSET + size];
    entries[32..36].copy_from_slice(&(size as u32).to_ne_bytes());
    ask(IPT_GET_ENTRIES, &mut entries)?;
    Ok((info, entries.split_off(FIRST_ENTRY_OFFSET)))
}

struct LegacyTable<'a> {
    layout: TableLayout,
    name: &'a str,
    table_info: &'a [u8],
    entry_octets: &'a [u8],
}

/// Effect of an entry on the fast path.
enum EntryUse {
    /// The entry matches only packets that the fast path leaves to the kernel.
    OfKernel,
    Flow,
    Packet(String),
}

impl LegacyTable<'_> {
    /// Adds the rules of the table, and hashes the table without its counters.
    fn add_rule_uses(&self, rules: &mut IpFamilyRules, hash: &mut impl Hasher) {
        (self.name, self.table_info).hash(hash);
        let mut at = 0;
        while let Some((entry, next)) = self.entry_at(at) {
            entry.get(..self.layout.counters_offset).hash(hash);
            entry.get(self.layout.matches_offset..).hash(hash);
            at = next;
        }
        let mut starts: Vec<(usize, Option<usize>)> = Vec::new();
        for hook in FORWARDING_HOOKS {
            let word = |from: usize| u32_at(self.table_info, from + 4 * hook) as usize;
            if u32_at(self.table_info, 32) >> hook & 1 == 1 {
                starts.push((word(HOOK_ENTRIES_OFFSET), Some(word(POLICIES_OFFSET))));
            }
        }
        let mut known: BTreeSet<usize> = starts.iter().map(|(start, _)| *start).collect();
        while let Some((start, policy)) = starts.pop() {
            let (mut at, mut number) = (start, 0);
            while let Some((entry, next)) = self.entry_at(at) {
                let (target, verdict) = self.target_of_entry(entry);
                if target == "ERROR" {
                    break;
                }
                if policy == Some(at) {
                    if verdict == Some(VERDICT_DROP) {
                        rules.note_flow_use();
                    }
                    break;
                }
                number += 1;
                // Ignore the last entry of a chain that the operator has created: it matches every packet and
                // returns.
                let is_end =
                    self.entry_at(next).is_none_or(|(next, _)| self.target_of_entry(next).0 == "ERROR");
                match self.examine_entry(entry, &target) {
                    _ if is_end => {}
                    EntryUse::OfKernel => {
                        at = next;
                        continue;
                    }
                    EntryUse::Packet(what) if self.name != "nat" => rules.note_packet_use(|| {
                        format!(
                            "rule {number} of a chain in table {} of {} uses {what}",
                            self.name, self.layout.iptables_program
                        )
                    }),
                    EntryUse::Flow | EntryUse::Packet(_) => rules.note_flow_use(),
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

    /// Returns the entry at an offset, and the offset of the next one; `None` if the entry is invalid.
    fn entry_at(&self, at: usize) -> Option<(&[u8], usize)> {
        let length = usize::from(u16_at(self.entry_octets.get(at..)?, self.layout.target_field_offset + 2)?);
        let next = at.checked_add(length)?;
        let entry = self
            .entry_octets
            .get(at..next)
            .filter(|_| length >= self.layout.matches_offset + MATCH_HEADER_LENGTH)?;
        Some((entry, next))
    }

    /// Returns the name of an entry's target, which is empty for the standard target. Also returns the
    /// verdict, if the target is the standard target.
    fn target_of_entry(&self, entry: &[u8]) -> (String, Option<i32>) {
        let at = usize::from(u16_at(entry, self.layout.target_field_offset).unwrap_or_default());
        let target = entry.get(at..).unwrap_or_default();
        let name = extension_name(target);
        let verdict = name.is_empty().then(|| u32_at(target, MATCH_HEADER_LENGTH) as i32);
        (name, verdict)
    }

    fn examine_entry(&self, entry: &[u8], target: &str) -> EntryUse {
        let TableLayout {
            protocol_offset: protocol,
            target_field_offset: offsets,
            matches_offset: matches,
            flags_offset: flags,
            inverted_flags_offset: inverted,
            traffic_class_flag: class,
            ..
        } = self.layout;
        let octet = |at: usize| entry.get(at).copied().unwrap_or_default();
        let protocol = u16_at(entry, protocol).unwrap_or_default();
        // The fast path handles only TCP and UDP. Bit 0x40 of the inverted flags says that the entry matches
        // all protocols except this one.
        if !matches!(protocol, 0 | 6 | 17) && octet(inverted) & 0x40 == 0 {
            return EntryUse::OfKernel;
        }
        let mut packet = (octet(flags) & class != 0).then(|| "the traffic class".to_owned());
        let end = usize::from(u16_at(entry, offsets).unwrap_or_default());
        let mut at = matches;
        while at < end {
            let part = entry.get(at..end).unwrap_or_default();
            let length = usize::from(u16_at(part, 0).unwrap_or_default());
            let data = part.get(MATCH_HEADER_LENGTH..length).unwrap_or_default();
            match examine_match(&extension_name(part), part.get(31).copied().unwrap_or_default(), data) {
                EntryUse::OfKernel => return EntryUse::OfKernel,
                EntryUse::Flow => {}
                EntryUse::Packet(what) => packet = packet.or(Some(what)),
            }
            if length < MATCH_HEADER_LENGTH {
                return EntryUse::Packet("an unknown match".into());
            }
            at += length;
        }
        let is_plain =
            matches!(target, "" | "REJECT" | "SNAT" | "DNAT" | "MASQUERADE" | "REDIRECT" | "NETMAP");
        match packet.or_else(|| (!is_plain).then(|| target.to_owned())) {
            Some(what) => EntryUse::Packet(what),
            None => EntryUse::Flow,
        }
    }
}

fn examine_match(name: &str, revision: u8, data: &[u8]) -> EntryUse {
    let octet = |at: usize| data.get(at).copied().unwrap_or_default();
    let half = |at: usize| u16_at(data, at).unwrap_or_default();
    match name {
        "udp" | "multiport" | "iprange" | "comment" => EntryUse::Flow,
        // The octets are the TCP option, the mask of the flags, the value of the flags, and the inverted
        // conditions.
        "tcp" => match (octet(8), octet(9), octet(10) & octet(9), octet(11)) {
            (0, 0, ..) => EntryUse::Flow,
            (_, 1.., flags, inverted) if inverted & 4 == 0 && flags & 7 != 0 => EntryUse::OfKernel,
            _ => EntryUse::Packet("TCP flags or options".into()),
        },
        // Bit 1 of the states is `established`. The fast path leaves all packets in other states to the
        // kernel.
        "state" if u32_at(data, 0) & 2 == 0 => EntryUse::OfKernel,
        "state" => EntryUse::Flow,
        // At 146 are the flags for the used conditions: bit 0 for the state, bit 7 for the remaining time. At
        // 148 are the flags for inverted conditions, at 150 the states.
        "conntrack" if revision == 3 && half(146) & 1 == 1 && half(148) & 1 == 0 && half(150) & 2 == 0 => {
            EntryUse::OfKernel
        }
        "conntrack" if revision == 3 && half(146) & 1 << 7 == 0 => EntryUse::Flow,
        other => EntryUse::Packet(format!("match {other}")),
    }
}

/// Returns the name of a match or target.
fn extension_name(part: &[u8]) -> String {
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
    fn legacy_rules_after(commands: &[&str]) -> Option<[IpFamilyRules; 2]> {
        let commands: Vec<String> = commands.iter().map(|it| (*it).to_owned()).collect();
        let read = move || {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() {
                println!("\nSKIPPED: cannot make a network namespace");
                return None;
            }
            // Each thread has a network namespace of its own, and `/proc/self` shows only that of the first
            // thread. So this function reads `/proc/thread-self`.
            for command in commands {
                let mut words = command.split_whitespace();
                let status = Command::new(words.next().expect("a program")).args(words).status();
                if !status.is_ok_and(|status| status.success()) {
                    println!("\nSKIPPED: `{command}` fails");
                    return None;
                }
            }
            Some([IPV4_LAYOUT, IPV6_LAYOUT].map(|layout| {
                let mut rules = IpFamilyRules::default();
                let names = layout.table_names_file.replace("/proc/self", "/proc/thread-self");
                for name in std::fs::read_to_string(names).expect("names").lines() {
                    let (info, entries) = read_table(&layout, name).expect("a table");
                    let table = LegacyTable { layout, name, table_info: &info, entry_octets: &entries };
                    table.add_rule_uses(&mut rules, &mut DefaultHasher::new());
                }
                rules
            }))
        };
        std::thread::spawn(read).join().expect("the thread ends")
    }

    #[test]
    fn iptables_rules_are_judged_by_their_matches() {
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
            let Some(rules) = legacy_rules_after(commands) else { continue };
            assert_eq!(rules.each_ref().map(|it| it.rule_scope), [ipv4, ipv6], "{commands:?}: {rules:?}");
        }
    }
}
