//! DNS servers of an uplink, as stored by the program that configures the uplink. `carnet portal` needs them.
//!
//! The first of these sources that has a server counts:
//!
//! 1. systemd-resolved, with the servers that NetworkManager or `resolvectl` gave it for the interface;
//! 2. systemd-networkd, with the servers from DHCP and Router Advertisements;
//! 3. the lease files of ISC's dhclient, of which the last lease of the interface counts;
//! 4. dhcpcd's part of `resolv.conf` for the interface.
//!
//! The command reads these files, because the station's sandbox hides them from the station. The station
//! itself knows the servers of Router Advertisements. Two kinds of sources are left out. The servers in
//! `/etc/resolv.conf` may belong to another uplink. NetworkManager without systemd-resolved, netifd and
//! ConnMan store no file with the servers of one interface.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use carnet_nemo::input::is_possible_dns_server;
use nix::net::if_::if_nametoindex;

/// Maximum number of octets that are read of a file.
const MAX_FILE_SIZE: u64 = 1 << 20;
/// Maximum number of servers, the same as in the station.
const MAX_DNS_SERVERS: usize = 4;

/// Returns the DNS servers of an uplink; empty if no file has a server. The list begins with the first server
/// of each address family, because the station uses these.
pub fn dns_servers_of_uplink(uplink: &str) -> Vec<IpAddr> {
    let index = if_nametoindex(uplink).unwrap_or_default();
    preferred_servers(stored_servers(Path::new("/"), uplink, index))
}

/// Returns the servers of the first source below the directory `root` that has any.
fn stored_servers(root: &Path, uplink: &str, index: u32) -> Vec<IpAddr> {
    // A name such as `..` is no interface, and must not lead to another file.
    if uplink.contains('/') || uplink.starts_with('.') {
        return Vec::new();
    }
    let read = |path: String| read_file_or_empty(&root.join(path));
    let leases = |name: &str| servers_of_last_lease(&read(format!("var/lib/dhcp/{name}")), uplink);
    let dhcpcd = || -> Vec<IpAddr> {
        let parts = ["dhcp", "dhcp6", "ra"];
        let part = |part| read(format!("run/dhcpcd/hook-state/resolv.conf/{uplink}.{part}"));
        parts.iter().flat_map(|it| servers_of_resolv_conf(&part(it))).collect()
    };
    let places: [&dyn Fn() -> Vec<IpAddr>; 5] = [
        &|| servers_after_key(&read(format!("run/systemd/resolve/netif/{index}")), "SERVERS="),
        &|| servers_after_key(&read(format!("run/systemd/netif/links/{index}")), "DNS="),
        &|| leases(&format!("dhclient.{uplink}.leases")),
        &|| leases("dhclient.leases"),
        &dhcpcd,
    ];
    places.iter().map(|place| place()).find(|servers| !servers.is_empty()).unwrap_or_default()
}

/// Returns the content of a file; an empty text if it cannot be read.
fn read_file_or_empty(path: &PathBuf) -> String {
    let mut octets = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_SIZE).read_to_end(&mut octets));
    if read.is_ok() { String::from_utf8_lossy(&octets).into_owned() } else { String::new() }
}

/// Returns the servers in the line of a systemd file that begins with this key. A server may have a port, an
/// interface and a name, as in `192.0.2.53:53#dns.example`; servers with another port are left out.
fn servers_after_key(text: &str, key: &str) -> Vec<IpAddr> {
    let values = text.lines().filter_map(|line| line.strip_prefix(key));
    let words = values.flat_map(str::split_whitespace);
    words.filter_map(|word| parse_server_address(word.split(['#', '%']).next()?)).collect()
}

/// Returns the servers of the last lease of an interface in a file of dhclient.
fn servers_of_last_lease(text: &str, uplink: &str) -> Vec<IpAddr> {
    let interface = format!("interface \"{uplink}\";");
    let of_uplink = text.split("lease {").filter(|lease| lease.contains(&interface));
    let options = of_uplink
        .last()
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.trim().strip_prefix("option domain-name-servers ")?.strip_suffix(';'));
    options
        .flat_map(|servers| servers.split(','))
        .filter_map(|server| parse_server_address(server.trim()))
        .collect()
}

/// Returns the servers of a file like `resolv.conf`.
fn servers_of_resolv_conf(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver "));
    lines.filter_map(|server| parse_server_address(server.trim())).collect()
}

/// Parses the address of a DNS server; `None` if the station would not accept it.
fn parse_server_address(text: &str) -> Option<IpAddr> {
    text.parse().ok().filter(|address| is_possible_dns_server(*address))
}

/// Moves the first server of each address family to the front, and shortens the list to its maximum.
fn preferred_servers(mut servers: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut first: Vec<IpAddr> = Vec::new();
    for is_family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
        first.extend(servers.iter().find(|server| is_family(server)).copied());
    }
    servers.retain(|server| !first.contains(server));
    first.into_iter().chain(servers).take(MAX_DNS_SERVERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ScratchFolder;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    fn write_test_file(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    #[test]
    fn client_takes_dns_servers_of_first_file_that_names_any() {
        let scratch = ScratchFolder::new();
        let root = scratch.path();
        let found = || stored_servers(root, "wlan0", 3);
        assert_eq!(found(), addresses(&[]));
        let dhcpcd = "# Generated by dhcpcd from wlan0.dhcp\ndomain lan\nnameserver 192.0.2.4\n";
        write_test_file(root, "run/dhcpcd/hook-state/resolv.conf/wlan0.dhcp", dhcpcd);
        write_test_file(root, "run/dhcpcd/hook-state/resolv.conf/wlan0.ra", "nameserver 2001:db8::4\n");
        assert_eq!(found(), addresses(&["192.0.2.4", "2001:db8::4"]));
        let lease = |interface: &str, servers: &str| {
            format!(
                "lease {{\n  interface \"{interface}\";\n  fixed-address 192.0.2.100;\n  option \
                 domain-name-servers {servers};\n  expire 5 2026/11/27 22:00:00;\n}}\n"
            )
        };
        let all =
            [lease("wlan0", "192.0.2.1"), lease("wlan0", "192.0.2.2,192.0.2.3"), lease("eth9", "192.0.2.9")];
        write_test_file(root, "var/lib/dhcp/dhclient.leases", &all.concat());
        assert_eq!(found(), addresses(&["192.0.2.2", "192.0.2.3"]));
        let networkd = "# This is private data. Do not parse.\nADMIN_STATE=configured\n\
                        DNS=192.0.2.53 127.0.0.53 fe80::1%3 2001:db8::53#dns.example [2001:db8::5]:5353\n\
                        NTP=192.0.2.123\n";
        write_test_file(root, "run/systemd/netif/links/3", networkd);
        assert_eq!(found(), addresses(&["192.0.2.53", "2001:db8::53"]));
        write_test_file(root, "run/systemd/resolve/netif/3", "LLMNR=yes\nSERVERS=198.51.100.53\n");
        assert_eq!(found(), addresses(&["198.51.100.53"]));
        assert_eq!((stored_servers(root, "wlan1", 4), stored_servers(root, "../wlan0", 0)), (vec![], vec![]));
    }

    #[test]
    fn dns_server_list_begins_with_one_server_of_each_address_family() {
        let all = addresses(&["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "2001:db8::53"]);
        let expected = addresses(&["192.0.2.1", "2001:db8::53", "192.0.2.2", "192.0.2.3"]);
        assert_eq!(preferred_servers(all), expected);
    }
}
