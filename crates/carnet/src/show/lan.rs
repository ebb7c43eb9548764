//! Formats the mobile network: the settings that hosts on each interface get, and the hosts with a lease.

use std::fmt::Write;

use carnet_api::model::{Lan, LanAllowed, LanDhcp};

use super::{ABSENT_VALUE, format_duration, format_table, join_values, state_in_words, value_or_absent};

/// Formats the interfaces one after the other.
pub fn format_lans(lans: &[Lan], width: Option<usize>) -> String {
    if lans.is_empty() {
        return "no mobile network\n".to_owned();
    }
    lans.iter().map(|lan| format_interface(lan, width)).collect::<Vec<_>>().join("\n")
}

fn format_interface(lan: &Lan, width: Option<usize>) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        if value != ABSENT_VALUE {
            let _ = writeln!(out, "{name:<17} {value}");
        }
    };
    line("interface", format!("{}: {}", lan.interface, state_in_words(&lan.state)));
    line("inbound", format_inbound_filter(lan));
    for allowed in &lan.allow {
        line("  allow", format_exception(allowed));
    }
    if lan.isolated {
        line("isolated", "from the other interfaces on board".to_owned());
    }
    let closed = lan.closed.as_ref().map(|why| format!("gets no packets from others: {why}"));
    line("closed", value_or_absent(closed));
    match &lan.advertisement {
        Some(said) => {
            let state = if said.valid { "" } else { ": withdrawn, the home agent has refused the prefixes" };
            line("advertises", format!("{}{state}", join_values(&said.prefixes)));
            line("  mtu", value_or_absent(said.mtu));
            line("  dns", join_values(&said.dns));
            line("  search", join_values(&said.search));
            line("  nat64", join_values(&said.pref64));
            line("  captive portal", value_or_absent(said.captive_portal.as_ref()));
            let other = said.other_router.map(|router| format!("{router} advertises itself here, too"));
            line("  other router", value_or_absent(other));
        }
        None => line("advertises", "nothing".to_owned()),
    }
    line("ipv4", value_or_absent(lan.ipv4_prefix));
    if let Some(dhcp) = &lan.dhcp {
        line("dhcp", format_dhcp_state(dhcp));
        line(
            "  addresses",
            format!("{}-{}, {} of {} free", dhcp.first, dhcp.last, dhcp.free, dhcp.addresses),
        );
        line("  lease", format_duration(dhcp.lease_s as f64));
        let other = dhcp.other_server.map(|server| format!("{server} answers hosts here, too"));
        line("  other server", value_or_absent(other));
    }
    for dns in &lan.dns {
        let state = dns.failure.as_ref().map(|failure| format!(", down: {failure}")).unwrap_or_default();
        line("dns forwarder", format!("{}{state}", dns.address));
    }
    line("delegates", value_or_absent(lan.delegate.map(|length| format!("/{length} prefixes to routers"))));
    for delegated in &lan.delegated {
        let left = format_duration(delegated.remaining_s as f64);
        line("  prefix", format!("{} to {}, ends in {left}", delegated.prefix, delegated.router));
    }
    if lan.dhcp.is_some() {
        out.push('\n');
        out += &format_hosts(lan, width);
    }
    out
}

/// Returns which packets from outside reach hosts; empty if the station is older and does not report this.
fn format_inbound_filter(lan: &Lan) -> String {
    match lan.inbound.as_str() {
        "" => ABSENT_VALUE.to_owned(),
        "any" => "any: everyone outside reaches the hosts".to_owned(),
        "established" => "established: only connections that hosts begin".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns one exception of the inbound packet filter as text: the packets from outside that may reach hosts.
fn format_exception(allowed: &LanAllowed) -> String {
    let is_ping = allowed.protocol.starts_with("icmp");
    let mut text = if is_ping { format!("{} ping", allowed.protocol) } else { allowed.protocol.clone() };
    if !allowed.ports.is_empty() {
        let _ = write!(text, " {}", join_values(&allowed.ports));
    }
    match allowed.to.is_empty() {
        true => text + " to every host",
        false => format!("{text} to {}", join_values(&allowed.to)),
    }
}

fn format_dhcp_state(dhcp: &LanDhcp) -> String {
    match (&dhcp.failure, dhcp.address) {
        (Some(failure), _) => format!("down: {failure}"),
        (None, Some(address)) => format!("up at {address}"),
        (None, None) => "down: the interface has no address in its IPv4 prefix".to_owned(),
    }
}

fn format_hosts(lan: &Lan, width: Option<usize>) -> String {
    let rows = lan.hosts.iter().map(|host| {
        vec![
            host.address.to_string(),
            host.mac.clone(),
            value_or_absent(host.name.as_ref()),
            format_duration(host.remaining_s as f64),
            if host.reserved { "reserved".to_owned() } else { ABSENT_VALUE.to_owned() },
        ]
    });
    let columns = ["address", "mac", "name", "lease ends in", "kind"];
    format_table("no host has a lease", &columns, rows.collect(), width)
}

#[cfg(test)]
mod tests {
    use carnet_api::model::{LanAdvertisement, LanDelegation, LanDns, LanHost};

    use super::*;

    #[test]
    fn show_lan_prints_advertised_host_values_and_leases() {
        let lan = Lan {
            interface: "eth1".into(),
            state: "up".into(),
            inbound: "established".into(),
            allow: vec![
                LanAllowed {
                    protocol: "tcp".into(),
                    ports: vec!["443".into(), "5000-5010".into()],
                    to: vec!["2001:db8:a::77".parse().expect("an address")],
                },
                LanAllowed { protocol: "icmpv6".into(), ports: Vec::new(), to: Vec::new() },
            ],
            isolated: true,
            closed: Some("no nf_tables".into()),
            ipv4_prefix: Some("10.42.7.0/24".parse().expect("a prefix")),
            advertisement: Some(LanAdvertisement {
                valid: true,
                prefixes: vec!["2001:db8:a::/64".parse().expect("a prefix")],
                mtu: Some(1400),
                dns: Vec::new(),
                search: vec!["bus.example".into()],
                pref64: Vec::new(),
                captive_portal: None,
                other_router: None,
            }),
            dhcp: Some(LanDhcp {
                address: Some("10.42.7.1".parse().expect("an address")),
                first: "10.42.7.128".parse().expect("an address"),
                last: "10.42.7.254".parse().expect("an address"),
                addresses: 127,
                free: 126,
                lease_s: 3600,
                failure: None,
                other_server: Some("10.42.7.2".parse().expect("an address")),
            }),
            dns: vec![LanDns { address: "10.42.7.1".parse().expect("an address"), failure: None }],
            delegate: Some(64),
            delegated: vec![LanDelegation {
                prefix: "2001:db8:a:1::/64".parse().expect("a prefix"),
                router: "fe80::9".parse().expect("an address"),
                duid: "00030001020000000009".into(),
                remaining_s: 600,
            }],
            hosts: vec![LanHost {
                address: "10.42.7.128".parse().expect("an address"),
                mac: "02:00:00:00:00:0a".into(),
                name: Some("camera".into()),
                remaining_s: 3000,
                reserved: false,
            }],
        };
        let expected = "\
interface         eth1: up
inbound           established: only connections that hosts begin
  allow           tcp 443 5000-5010 to 2001:db8:a::77
  allow           icmpv6 ping to every host
isolated          from the other interfaces on board
closed            gets no packets from others: no nf_tables
advertises        2001:db8:a::/64
  mtu             1400
  search          bus.example
ipv4              10.42.7.0/24
dhcp              up at 10.42.7.1
  addresses       10.42.7.128-10.42.7.254, 126 of 127 free
  lease           1h 0m 0s
  other server    10.42.7.2 answers hosts here, too
dns forwarder     10.42.7.1
delegates         /64 prefixes to routers
  prefix          2001:db8:a:1::/64 to fe80::9, ends in 10m 0s

ADDRESS      MAC                NAME    LEASE ENDS IN
10.42.7.128  02:00:00:00:00:0a  camera  50m 0s
";
        assert_eq!(super::format_lans(std::slice::from_ref(&lan), None), expected);
        assert_eq!(super::format_lans(&[], None), "no mobile network\n");
        let plain = Lan {
            inbound: "any".into(),
            allow: Vec::new(),
            isolated: false,
            closed: None,
            advertisement: None,
            ipv4_prefix: None,
            dhcp: None,
            dns: Vec::new(),
            delegate: None,
            delegated: Vec::new(),
            hosts: Vec::new(),
            ..lan
        };
        let expected = "\
interface         eth1: up
inbound           any: everyone outside reaches the hosts
advertises        nothing
";
        assert_eq!(super::format_lans(&[plain], None), expected);
    }
}
