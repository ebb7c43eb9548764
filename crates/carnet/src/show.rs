//! Formats the answers of a station for people.
//!
//! Tables have columns; a column that is empty in every row is left out. The module never truncates a value:
//! if the columns do not fit the terminal, each row becomes a block of lines.

mod facilities;
pub mod geonet;
mod lan;
mod security;

use std::fmt::Write;
use std::net::SocketAddr;

use carnet_api::model::{
    AddressFamily, AnnouncedService, Area, Binding, Counters, Group, Keys, Lan, Location, NatStatus,
    NdpProxyStatus, OutsideCount, Policy, Role, Route, Status, Tunnel, Uplink,
};
use serde_json::Value;

use crate::cli::Table;
use crate::geonet::GEONET_BUILT_IN;

/// Placeholder for an absent value.
const ABSENT_VALUE: &str = "-";

/// Formats an answer for `carnet show` on a terminal of `width` columns; `None` means any width.
pub fn format_answer(table: Table, answer: Value, width: Option<usize>) -> serde_json::Result<String> {
    use serde::de::Error;
    let of_geonet = !matches!(
        table,
        Table::Bindings
            | Table::Uplinks
            | Table::Tunnels
            | Table::Routes
            | Table::Policies
            | Table::Lan
            | Table::Keys
            | Table::Counters
    );
    if of_geonet && !GEONET_BUILT_IN {
        return Err(serde_json::Error::custom("this program was built without GeoNetworking"));
    }
    Ok(match table {
        Table::Bindings => format_bindings(&serde_json::from_value::<Vec<Binding>>(answer)?, width),
        Table::Uplinks => format_uplinks(&serde_json::from_value::<Vec<Uplink>>(answer)?, width),
        Table::Tunnels => format_tunnels(&serde_json::from_value::<Vec<Tunnel>>(answer)?, width),
        Table::Routes => format_routes(&serde_json::from_value::<Vec<Route>>(answer)?, width),
        Table::Policies => format_policies(&serde_json::from_value::<Vec<Policy>>(answer)?, width),
        Table::Lan => lan::format_lans(&serde_json::from_value::<Vec<Lan>>(answer)?, width),
        Table::Keys => format_keys(&serde_json::from_value::<Keys>(answer)?),
        Table::Counters => format_counters(&serde_json::from_value::<Counters>(answer)?),
        Table::Neighbours => geonet::format_locations(
            "no neighbours",
            &serde_json::from_value::<Vec<Location>>(answer)?,
            width,
        ),
        Table::Locations => {
            geonet::format_locations("no locations", &serde_json::from_value::<Vec<Location>>(answer)?, width)
        }
        Table::Ldm => facilities::format_ldm(&serde_json::from_value(answer)?, width),
        Table::Dcc => geonet::format_dcc(&serde_json::from_value(answer)?),
        Table::Services => {
            facilities::format_services(&serde_json::from_value::<Vec<AnnouncedService>>(answer)?, width)
        }
        Table::Security => security::format_security(&serde_json::from_value(answer)?),
        Table::Groups => geonet::format_groups(&serde_json::from_value::<Vec<Group>>(answer)?, width),
        Table::Areas => geonet::format_areas(&serde_json::from_value::<Vec<Area>>(answer)?, width),
    })
}

/// Formats the two answers for `carnet status`: `answer` about the station, and `uplinks` about its uplinks.
pub fn format_status(answer: Value, uplinks: Value) -> serde_json::Result<String> {
    let status: Status = serde_json::from_value(answer)?;
    let uplinks: Vec<Uplink> = serde_json::from_value(uplinks)?;
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<17} {value}");
    };
    line("station", format!("{}, carnet {}", status.name, status.version));
    line("up", format_duration(status.uptime_s));
    if let Some(path) = status.dataplane {
        let next = status.dataplane_loading.map(|next| format!(" while {next} is being loaded"));
        // The paths of the kernel leave packets for sessions to the TUN device.
        let has_sessions = status.encryption.as_ref().is_some_and(|state| state.starts_with("encrypted"));
        let of_sessions = if has_sessions && path != "tun" { ", encrypted tunnels by tun" } else { "" };
        line("dataplane", path + &next.unwrap_or_default() + of_sessions);
    }
    if let Some(encryption) = status.encryption {
        line("tunnels", encryption);
    }
    let is_node = status.roles.contains(&Role::MobileNode);
    if let Some(router) = status.mobile_router {
        let cut_off = router.reachable == Some(false) && router.state == "registered";
        let but = match router.refusal {
            Some(refusal) => format!(": {refusal}"),
            None if cut_off => ", but no uplink reaches the home agent".to_owned(),
            None => String::new(),
        };
        line(if is_node { "mobile node" } else { "mobile router" }, state_in_words(&router.state) + &but);
        line("  home address", router.home_address.to_string());
        if !is_node {
            line("  prefixes", join_values(&router.prefixes));
            for ipv4 in &router.ipv4_prefixes {
                let but = if ipv4.accepted { String::new() } else { format!(": {}", ipv4.reason) };
                line("  IPv4 prefix", format!("{}{but}", ipv4.prefix));
            }
        }
        for lan in &router.lan {
            let state =
                if lan.state == "up" { String::new() } else { format!(": {}", state_in_words(&lan.state)) };
            let open = if lan.inbound == "any" { ", open to packets from outside" } else { "" };
            let closed = lan.closed.as_ref().map(|why| format!(", gets no packets from others: {why}"));
            line("  lan", format!("{}{state}{open}{}", lan.interface, closed.unwrap_or_default()));
        }
        let home_agent = match router.home_agent.is_unspecified() {
            true => "not known yet".to_owned(),
            false => router.home_agent.to_string(),
        };
        let away = if router.breaks_out { ", away: packets of hosts leave by the uplinks" } else { "" };
        line("  home agent", home_agent + away);
        let others: Vec<_> = router.home_agents.iter().filter(|it| **it != router.home_agent).collect();
        if !others.is_empty() {
            line("  others", join_values(&others));
        }
        line("  care-of address", join_values(&router.care_of_addresses));
        line("  uplink", value_or_absent(router.uplink));
        for uplink in &uplinks {
            line(&format!("    {}", uplink.interface), format_uplink_state(uplink));
        }
        if let Some(wanted) = router.wanted_uplink {
            line("  asked for", wanted);
        }
        for (policy, uplink) in &router.moved_policies {
            line("  asked for", format!("{uplink} for policy {policy}"));
        }
    }
    if let Some(agent) = status.home_agent {
        line("home agent", agent.address.to_string());
        line("  bindings", agent.bindings.to_string());
        for nat in &agent.nat {
            let family = match nat.family {
                AddressFamily::Ipv4 => "  NAT of IPv4",
                AddressFamily::Ipv6 => "  NAT of IPv6",
            };
            line(family, format_nat(nat));
        }
        if let Some(proxy) = &agent.ndp_proxy {
            line("  ndp proxy", format_proxy(proxy));
        }
        for home_address in &agent.keys_to_change {
            line("  key to change", format!("{home_address} has few sequence numbers left"));
        }
    }
    for (name, value) in status.geonet.iter().flat_map(geonet::format_geonet_status) {
        line(name, value);
    }
    for obstacle in status.obstacles {
        line("in the way", obstacle);
    }
    if let Some(sandbox) = &status.sandbox {
        let layers = [
            sandbox.landlock.map(|abi| format!("landlock {abi}")),
            sandbox.seccomp.then(|| "seccomp".to_owned()),
        ];
        line("sandbox", join_values(&layers.into_iter().flatten().collect::<Vec<_>>()));
        line("  capabilities", join_values(&sandbox.capabilities));
        for lacking in &sandbox.lacking {
            line("  lacking", lacking.clone());
        }
    }
    Ok(out)
}

/// Formats an event as one line: time, kind, and its fields as `key=value`.
pub fn format_event(event: &Value) -> String {
    let Some(fields) = event.as_object() else { return event.to_string() };
    let mut line =
        fields.get("time").and_then(Value::as_f64).map_or_else(|| ABSENT_VALUE.to_owned(), format_utc);
    let kind = fields.get("event").and_then(Value::as_str).unwrap_or("event");
    let _ = write!(line, " {kind}");
    for (key, value) in fields.iter().filter(|(key, _)| !matches!(key.as_str(), "time" | "event")) {
        let _ = match value {
            // A value with unusual characters is quoted and escaped, because it may be a name from the
            // network.
            Value::String(text) if !text.is_empty() && text.chars().all(is_plain) => {
                write!(line, " {key}={text}")
            }
            Value::Null => write!(line, " {key}={ABSENT_VALUE}"),
            value => write!(line, " {key}={value}"),
        };
    }
    line
}

fn is_plain(character: char) -> bool {
    character.is_ascii_graphic() && !matches!(character, '"' | '=' | '\\')
}

/// Formats the NAT of one address family.
fn format_nat(nat: &NatStatus) -> String {
    let OutsideCount { packets_out, octets_out, packets_in, octets_in } = nat.translated;
    let state = match &nat.failure {
        Some(failure) => format!("not in force: {failure}"),
        None => "in force".to_owned(),
    };
    format!(
        "{}, {state}, {packets_out} packets ({octets_out} octets) out, {packets_in} ({octets_in}) in",
        nat.interface
    )
}

/// Formats proxy Neighbor Discovery.
fn format_proxy(proxy: &NdpProxyStatus) -> String {
    let NdpProxyStatus { interface, state, addresses, prefixes, answered, refused } = proxy;
    format!(
        "{interface} {state}, {addresses} addresses and {prefixes} prefixes, {answered} answers, {refused} \
         refused"
    )
}

/// Returns the prefixes of a binding, those of IPv4 last.
fn format_binding_prefixes(binding: &Binding) -> Vec<String> {
    let ipv4 = binding.ipv4_prefixes.iter().map(ToString::to_string);
    binding.prefixes.iter().map(ToString::to_string).chain(ipv4).collect()
}

fn format_bindings(bindings: &[Binding], width: Option<usize>) -> String {
    // The column for the role is necessary only if a station is both a home agent and a mobile router.
    let agents = bindings.iter().filter(|binding| binding.role == Role::HomeAgent).count();
    let both = (1..bindings.len()).contains(&agents);
    let rows = bindings.iter().map(|binding| {
        vec![
            if both { state_in_words(binding.role.as_str()) } else { ABSENT_VALUE.to_owned() },
            binding.home_address.to_string(),
            match (binding.care_of_address, binding.udp_port) {
                (Some(address), Some(port)) => SocketAddr::new(address, port).to_string(),
                (address, _) => value_or_absent(address),
            },
            value_or_absent(binding.stay_s.map(format_long_duration)),
            value_or_absent(binding.bid),
            join_values(&format_binding_prefixes(binding)),
            state_in_words(&binding.state),
            format!("{} of {} s", binding.remaining_s, binding.lifetime_s),
            binding.sequence.to_string(),
        ]
    });
    let columns =
        ["role", "home address", "care-of address", "for", "bid", "prefixes", "state", "left", "sequence"];
    // The sequence number helps a reader of packet captures. If the table is too wide, its column is left out
    // first.
    format_table_without("sequence", "no bindings", &columns, rows.collect(), width)
}

fn format_uplinks(uplinks: &[Uplink], width: Option<usize>) -> String {
    let rows = uplinks.iter().map(|uplink| {
        vec![
            format!("{}{}", uplink.interface, if uplink.active { " *" } else { "" }),
            format_uplink_state(uplink),
            value_or_absent(uplink.care_of_address),
            value_or_absent(uplink.bid),
            uplink.priority.to_string(),
            value_or_absent(uplink.signal_dbm.map(|signal| format!("{signal} dBm"))),
            value_or_absent(uplink.rtt_ms.map(|rtt| format!("{rtt:.1} ms"))),
            value_or_absent(uplink.loss.map(|loss| format!("{:.1} %", loss * 100.0))),
            value_or_absent(uplink.capacity_kbit_s.map(format_rate)),
            value_or_absent(uplink.volume_used.map(|used| format_volume(used, uplink))),
        ]
    });
    let columns = [
        "uplink",
        "state",
        "care-of address",
        "bid",
        "priority",
        "signal",
        "rtt",
        "loss",
        "capacity",
        "volume",
    ];
    let mut out = format_table("no uplinks", &columns, rows.collect(), width);
    if let Some(obstacle) = uplinks.iter().find_map(|uplink| uplink.obstacle.as_ref()) {
        let _ = writeln!(out, "\non this machine: {obstacle}");
    }
    for uplink in uplinks {
        let Some(access) = &uplink.portal_access else { continue };
        let _ = writeln!(
            out,
            "\n{}: host {} at {} has access to the captive portal for {}, DNS at {}",
            uplink.interface,
            access.host,
            access.interface,
            format_long_duration(access.remaining_s),
            value_or_absent(Some(join_values(&access.dns)).filter(|dns| !dns.is_empty())),
        );
    }
    out
}

/// Formats the state of an uplink, with the reason if the mobile router does not use it.
fn format_uplink_state(uplink: &Uplink) -> String {
    if let ("silent", Some(portal)) = (uplink.state.as_str(), &uplink.captive_portal) {
        return format!("no answer, captive portal {portal}");
    }
    if let ("silent", Some(router)) = (uplink.state.as_str(), uplink.silent_router) {
        return format!("router {router} does not answer");
    }
    match (uplink.state.as_str(), uplink.retry_s) {
        // The time of the next attempt has come, and the mobile router is sending to the home agent.
        ("silent", Some(0)) => "no answer, trying again now".to_owned(),
        ("silent", Some(seconds)) => format!("no answer, again in {seconds} s"),
        ("silent", None) => "no answer".to_owned(),
        (state, Some(seconds)) if state.starts_with("refused") => format!("{state}, again in {seconds} s"),
        // An overloaded uplink still carries the traffic that it has.
        ("active" | "standby", _) if uplink.full => "full".to_owned(),
        (state, _) => state_in_words(state),
    }
}

fn format_routes(routes: &[Route], width: Option<usize>) -> String {
    let rows = routes.iter().map(|route| {
        let path = match &route.encryption {
            Some(encryption) => format!("{}, {encryption}", state_in_words(&route.path)),
            None => state_in_words(&route.path),
        };
        vec![
            route.prefix.to_string(),
            path,
            value_or_absent(route.interface.as_ref()),
            value_or_absent(route.station.as_ref()),
            value_or_absent(route.next_hop),
            value_or_absent(route.rtt_ms.map(|rtt| format!("{rtt:.1} ms"))),
            value_or_absent(route.age_s.map(format_duration)),
            state_in_words(&route.reason),
        ]
    });
    let columns = ["network", "path", "interface", "station", "next hop", "rtt", "for", "why"];
    format_table("no routes", &columns, rows.collect(), width)
}

/// Formats a rate given in kilobits a second.
fn format_rate(kbit_s: u32) -> String {
    if kbit_s < 1000 {
        format!("{kbit_s} kbit/s")
    } else {
        format!("{:.1} Mbit/s", f64::from(kbit_s) / 1000.0)
    }
}

/// Formats the used volume of an uplink, with its limit and the period.
fn format_volume(used: u64, uplink: &Uplink) -> String {
    let limit = uplink.volume.map_or_else(String::new, |limit| format!(" of {}", format_octets(limit)));
    let period = match uplink.volume_period.as_str() {
        "day" => "today".to_owned(),
        period => format!("this {period}"),
    };
    format!("{}{limit} {period}", format_octets(used))
}

/// Formats a number of octets in the units of the config file.
fn format_octets(octets: u64) -> String {
    let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    match units.into_iter().find(|(unit, _)| octets >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", octets as f64 / unit as f64),
        None => format!("{octets} B"),
    }
}

fn format_tunnels(tunnels: &[Tunnel], width: Option<usize>) -> String {
    let rows = tunnels.iter().map(|tunnel| {
        vec![
            value_or_absent(tunnel.home_address),
            tunnel.local.to_string(),
            match tunnel.remote_port {
                Some(port) => SocketAddr::new(tunnel.remote, port).to_string(),
                None => tunnel.remote.to_string(),
            },
            value_or_absent(tunnel.bid),
            match tunnel.encryption.as_str() {
                "encrypted" => format!("{}, encrypted", tunnel.encapsulation),
                _ => tunnel.encapsulation.clone(),
            },
            tunnel.mtu.to_string(),
            tunnel.path.clone(),
            format!("{} ({})", tunnel.packets_in, tunnel.octets_in),
            format!("{} ({})", tunnel.packets_out, tunnel.octets_out),
        ]
    });
    let columns = [
        "home address",
        "local",
        "remote",
        "bid",
        "encapsulation",
        "mtu",
        "path",
        "packets in (octets)",
        "packets out (octets)",
    ];
    format_table("no tunnels", &columns, rows.collect(), width)
}

fn format_policies(policies: &[Policy], width: Option<usize>) -> String {
    let rows = policies.iter().map(|policy| {
        vec![
            policy.name.clone(),
            state_in_words(&policy.action),
            join_values(&policy.uplinks),
            value_or_absent(policy.wanted_uplink.as_ref()),
            if policy.takes.is_empty() { "as others".to_owned() } else { join_values(&policy.takes) },
            match policy.home_agent.as_str() {
                "unknown" => "knows no flows",
                "failover" => "only fails over",
                other => other,
            }
            .to_owned(),
        ]
    });
    let columns = ["policy", "action", "uplinks", "asked for", "takes", "home agent"];
    format_table("no policies", &columns, rows.collect(), width)
}

fn format_keys(keys: &Keys) -> String {
    let names = ["key", "old key"].into_iter().zip(&keys.public_keys);
    let missing = keys.missing.iter().map(|end| format!("missing  {end}\n"));
    names.map(|(name, key)| format!("{name:<8} {key}\n")).chain(missing).collect()
}

fn format_counters(counters: &Counters) -> String {
    if counters.is_empty() {
        return "no counters\n".to_owned();
    }
    let name = counters.keys().map(String::len).max().unwrap_or(0);
    let value = counters.values().map(|value| value.to_string().len()).max().unwrap_or(0);
    let mut out = String::new();
    for (key, count) in counters {
        let _ = writeln!(out, "{key:<name$}  {count:>value$}");
    }
    out
}

/// Formats rows as columns if they fit, otherwise as blocks of lines. Without rows it returns `none`.
fn format_table(none: &str, columns: &[&str], rows: Vec<Vec<String>>, width: Option<usize>) -> String {
    format_table_without("", none, columns, rows, width)
}

/// Formats rows like [`format_table`]. If the columns fit only without the column `spare`, leaves out this
/// column.
fn format_table_without(
    spare: &str,
    none: &str,
    columns: &[&str],
    rows: Vec<Vec<String>>,
    width: Option<usize>,
) -> String {
    if rows.is_empty() {
        return format!("{none}\n");
    }
    let mut used: Vec<usize> =
        (0..columns.len()).filter(|column| rows.iter().any(|row| row[*column] != ABSENT_VALUE)).collect();
    let mut out = String::new();
    let mut widths: Vec<usize> = used
        .iter()
        .map(|column| {
            rows.iter().map(|row| character_count(&row[*column])).chain([columns[*column].len()]).max()
        })
        .map(Option::unwrap_or_default)
        .collect();
    let mut total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
    if let Some(at) = used.iter().position(|column| columns[*column] == spare)
        && width.is_some_and(|width| (width + 1..=width + widths[at] + 2).contains(&total))
    {
        used.remove(at);
        total -= widths.remove(at) + 2;
    }
    if width.is_none_or(|width| total <= width) {
        let header: Vec<String> = columns.iter().map(|column| column.to_uppercase()).collect();
        for row in std::iter::once(&header).chain(&rows) {
            let mut line = String::new();
            for (column, width) in used.iter().zip(&widths) {
                let _ = write!(line, "{:<width$}  ", row[*column]);
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
    } else {
        let name = used.iter().map(|column| columns[*column].len()).max().unwrap_or(0);
        for (index, row) in rows.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            for column in &used {
                let _ = writeln!(out, "{:<name$}  {}", columns[*column], row[*column]);
            }
        }
    }
    out
}

fn character_count(text: &str) -> usize {
    text.chars().count()
}

fn join_values<T: ToString>(values: &[T]) -> String {
    match values {
        [] => ABSENT_VALUE.to_owned(),
        values => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}

fn value_or_absent<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| ABSENT_VALUE.to_owned(), |value| value.to_string())
}

/// Formats a state such as `at_home` as `at home`. Text after a colon, such as keys of the config, is
/// unchanged.
fn state_in_words(state: &str) -> String {
    let (state, why) = state.split_at(state.find(':').unwrap_or(state.len()));
    state.replace('_', " ") + why
}

/// Formats seconds in the form `3d 4h 5m 6s`, without leading units that are zero.
fn format_duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let units =
        [(seconds / 86400, 'd'), (seconds / 3600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let first = units.iter().position(|(count, _)| *count > 0).unwrap_or(units.len() - 1);
    let parts: Vec<String> = units[first..].iter().map(|(count, unit)| format!("{count}{unit}")).collect();
    parts.join(" ")
}

/// Formats seconds in the two largest units of [`format_duration`]; for a long time these units are exact
/// enough.
fn format_long_duration(seconds: u32) -> String {
    format_duration(f64::from(seconds)).split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Formats seconds since 1970 in the form `2026-11-21T09:41:00.123Z`.
fn format_utc(seconds: f64) -> String {
    let milliseconds = (seconds * 1000.0).round().max(0.0) as u64;
    let (days, in_day) = (milliseconds / 86_400_000, milliseconds % 86_400_000);
    // Converts days to a date of the Gregorian calendar. Years begin in March here, so that the leap day is
    // their last day.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        in_day / 3_600_000,
        in_day / 60_000 % 60,
        in_day / 1000 % 60,
        in_day % 1000
    )
}

#[cfg(test)]
mod tests;
