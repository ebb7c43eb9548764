//! Builds nodes and links from network namespaces, veth pairs and bridges.
//!
//! Interfaces get hardware addresses counted from `02:00:00:00:01:01`, so that autoconfigured addresses are
//! the same in every run. A link of two ends is a veth pair. An emulated link is two pairs, which
//! `crate::emulation::runner` joins. A shared link is a bridge, with multicast snooping off, in the lab's
//! own namespace. A radio interface is a veth pair, too; its other end is in the namespace of the medium
//! ([`crate::radio`]). The kernel uses IPv6 on a radio interface only if the scenario gives it an address
//! there, because other packets would fill the channel. Radios of mac80211_hwsim replace the veth pairs on
//! request ([`crate::radio::hwsim`]).

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv6Addr;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::emulation::runner;
use crate::nat;
use crate::process::{command_in_node, run_for_output};
use crate::radio::{self, hwsim::Hwsim};
use crate::scenario::{LinkEnd, Node, Prefix, Scenario};
use crate::tools;

/// Builds the nodes and links of a scenario, with radios of this kind. Returns the radios of mac80211_hwsim,
/// if the scenario has any.
pub fn build_network(scenario: &Scenario, radios: radio::RadioKind) -> anyhow::Result<Option<Hwsim>> {
    let mut world = String::from("link set lo up\n");
    for name in scenario.nodes.keys() {
        world += &format!("netns add {name}\n");
    }
    if scenario.medium.is_some() && radios == radio::RadioKind::Veth {
        world += &format!("netns add {}\n", radio::MEDIUM_NAMESPACE);
    }
    let emulated = scenario.emulated_link_numbers();
    if !emulated.is_empty() {
        world += &format!("netns add {}\n", runner::EMULATION_NAMESPACE);
    }
    run_ip_batch(None, &world)?;
    for (name, node) in &scenario.nodes {
        // Load the rules before the sysctls: some sysctls, for example timeouts of connections, exist only
        // while rules track connections.
        if let Some(rules) = &node.nft {
            nat::load_nat_rules(name, rules)?;
        }
        set_sysctls(name, node)?;
    }
    if !emulated.is_empty() {
        write_setting(runner::EMULATION_NAMESPACE, "net/ipv6/conf/default/disable_ipv6", "1")?;
    }
    run_ip_batch(None, &link_commands(scenario))?;
    build_emulated(scenario, &emulated)?;
    let hwsim = match radios {
        radio::RadioKind::Hwsim if scenario.medium.is_some() => Some(Hwsim::build(scenario)?),
        _ => {
            build_radios(scenario)?;
            None
        }
    };
    disable_ipv6_on_radios(scenario)?;
    for (name, node) in &scenario.nodes {
        let (six, four) = node_commands(name, node, scenario);
        run_ip_batch(Some(name), &six)?;
        if !four.is_empty() {
            run_ip_batch_of_family("-4", Some(name), &four)?;
        }
    }
    if hwsim.is_some() {
        Hwsim::join_radios(scenario)?;
    }
    Ok(hwsim)
}

/// Sets the ports of emulated links up. Turns off offloads at the ends of these links. So the ends send only
/// frames that a wire could carry: no longer than the MTU, and with a complete checksum.
fn build_emulated(scenario: &Scenario, emulated: &[usize]) -> anyhow::Result<()> {
    let mut ports = String::new();
    for link in emulated {
        for (e, end) in scenario.links[*link].ends.iter().map(|e| e.get_ref()).enumerate() {
            ports += &format!("link set dev {} up\n", runner::port_name(*link, e));
            let mut command = command_in_node(&end.node, tools::path_of_program("ethtool"));
            run_for_output(command.args(["-K", &end.interface, "tx", "off"]))?;
        }
    }
    if ports.is_empty() { Ok(()) } else { run_ip_batch(Some(runner::EMULATION_NAMESPACE), &ports) }
}

/// Makes all interfaces accept frames that XDP redirects to them. A veth accepts them only if its peer uses
/// GRO. The peer must send complete checksums, because a redirected frame cannot be marked as incomplete.
pub fn accept_redirected_frames(scenario: &Scenario) -> anyhow::Result<()> {
    for end in scenario.links.iter().flat_map(|link| &link.ends).map(|end| end.get_ref()) {
        let mut command = command_in_node(&end.node, tools::path_of_program("ethtool"));
        run_for_output(command.args(["-K", &end.interface, "gro", "on", "tx", "off"]))?;
    }
    for link in scenario.emulated_link_numbers() {
        for port in [runner::port_name(link, 0), runner::port_name(link, 1)] {
            let mut command = command_in_node(runner::EMULATION_NAMESPACE, tools::path_of_program("ethtool"));
            run_for_output(command.args(["-K", &port, "gro", "on"]))?;
            // GRO must not merge frames at a port, because the model needs single frames.
            run_ip_batch(
                Some(runner::EMULATION_NAMESPACE),
                &format!("link set dev {port} gro_max_size 1\n"),
            )?;
        }
    }
    for (bridge, ports) in scenario.links.iter().filter_map(|l| Some((l.bridge.as_ref()?, l.ends.len()))) {
        for port in 0..ports {
            let mut command = Command::new(tools::path_of_program("ethtool"));
            run_for_output(command.args(["-K", &format!("{bridge}.{port}"), "gro", "on", "tx", "off"]))?;
        }
    }
    Ok(())
}

/// Interface index of the first end of a link. The kernel numbers other interfaces from 1.
///
/// All ends have different indexes. If both ends of a veth pair had the same index, the kernel could hold
/// back a change of their carrier for a second (`linkwatch_urgent_event`). It does so if other interfaces of
/// the machine have changed within the second before.
const FIRST_INTERFACE_INDEX: u32 = 1000;

/// Returns the commands that create all links. Each end of a link is created in its node.
fn link_commands(scenario: &Scenario) -> String {
    let mut commands = String::new();
    let mut index = FIRST_INTERFACE_INDEX..;
    let mut next = || index.next().unwrap_or_default();
    for (l, link) in scenario.links.iter().enumerate() {
        let mac = |e: usize| {
            let ([.., l1, l0], [.., e1, e0]) = ((l + 1).to_be_bytes(), (e + 1).to_be_bytes());
            format!("02:00:{e1:02x}:{l1:02x}:{l0:02x}:{e0:02x}")
        };
        let ends: Vec<&LinkEnd> = link.ends.iter().map(|e| e.get_ref()).collect();
        if let Some(bridge) = &link.bridge {
            commands += &format!("link add {bridge} type bridge mcast_snooping 0\nlink set {bridge} up\n");
            for (e, end) in ends.iter().enumerate() {
                let port = format!("{bridge}.{e}");
                commands += &format!(
                    "link add {port} index {} type veth peer name {} index {} address {} netns {}\n\
                     link set {port} master {bridge} up\n",
                    next(),
                    end.interface,
                    next(),
                    mac(e),
                    end.node
                );
                if link.isolated.iter().any(|other| other.get_ref() == *end) {
                    commands += &format!("link set {port} type bridge_slave isolated on\n");
                }
            }
        } else if link.emulation.is_some() {
            for (e, end) in ends.iter().enumerate() {
                commands += &format!(
                    "link add {} index {} address {} netns {} type veth peer name {} index {} netns {}\n",
                    end.interface,
                    next(),
                    mac(e),
                    end.node,
                    runner::port_name(l, e),
                    next(),
                    runner::EMULATION_NAMESPACE
                );
            }
        } else {
            commands += &format!(
                "link add {} index {} address {} netns {} \
                 type veth peer name {} index {} address {} netns {}\n",
                ends[0].interface,
                next(),
                mac(0),
                ends[0].node,
                ends[1].interface,
                next(),
                mac(1),
                ends[1].node
            );
        }
    }
    commands
}

/// Creates the radio interfaces as veth pairs.
fn build_radios(scenario: &Scenario) -> anyhow::Result<()> {
    let nodes = radio::nodes_with_radio(scenario);
    if nodes.is_empty() {
        return Ok(());
    }
    write_setting(radio::MEDIUM_NAMESPACE, &disable_ipv6_command("default"), "1")?;
    let mut commands = String::new();
    for (number, name) in nodes.iter().enumerate() {
        let (mac, port) = (radio::format_mac(radio::radio_mac(number)), radio::port_name(number));
        let Some(interface) = scenario.radio_of(name) else { continue };
        commands += &format!(
            "link add {interface} address {mac} netns {name} type veth peer name {port} netns {}\n",
            radio::MEDIUM_NAMESPACE
        );
    }
    run_ip_batch(None, &commands)?;
    let ports = (0..nodes.len()).map(|n| format!("link set dev {} up\n", radio::port_name(n)));
    run_ip_batch(Some(radio::MEDIUM_NAMESPACE), &ports.collect::<String>())
}

fn disable_ipv6_command(interface: &str) -> String {
    format!("net/ipv6/conf/{interface}/disable_ipv6")
}

/// Disables IPv6 on radio interfaces to which the scenario gives no address.
fn disable_ipv6_on_radios(scenario: &Scenario) -> anyhow::Result<()> {
    for (name, node) in &scenario.nodes {
        if let Some(interface) = scenario.radio_of(name)
            && !node.addresses.keys().any(|i| i.get_ref() == interface)
        {
            write_setting(name, &disable_ipv6_command(interface), "1")?;
        }
    }
    Ok(())
}

/// Writes a file under `/proc/sys/`, in a thread that enters the namespace.
fn write_setting(namespace: &str, setting: &str, value: &str) -> anyhow::Result<()> {
    let file = std::fs::File::open(format!("/run/netns/{namespace}"))
        .with_context(|| format!("cannot open the namespace {namespace}"))?;
    let write = || -> anyhow::Result<()> {
        nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET)?;
        Ok(std::fs::write(format!("/proc/sys/{setting}"), value)?)
    };
    let done = std::thread::scope(|scope| scope.spawn(write).join());
    let done = done.unwrap_or_else(|_| bail!("bug: the thread in the namespace of the node panicked"));
    done.with_context(|| format!("cannot set {setting} in {namespace}"))
}

/// Returns the commands that set interfaces up and add addresses and routes in a node: first for IPv6, then
/// for IPv4.
fn node_commands(name: &str, node: &Node, scenario: &Scenario) -> (String, String) {
    let mut commands = String::from("link set lo up\n");
    let mut four = String::new();
    let is_four = |text: &str| !text.contains(':') && text.contains('.');
    for end in scenario.links.iter().flat_map(|l| &l.ends).filter(|e| e.get_ref().node == name) {
        commands += &format!("link set dev {} up\n", end.get_ref().interface);
    }
    if let Some(interface) = scenario.radio_of(name) {
        commands += &format!("link set dev {interface} up\n");
    }
    for (interface, addresses) in &node.addresses {
        for address in addresses {
            match is_four(address) {
                true => four += &format!("addr add {address} dev {}\n", interface.get_ref()),
                false => commands += &format!("addr add {address} dev {} nodad\n", interface.get_ref()),
            }
        }
    }
    for route in &node.routes {
        let family = if is_four(route) { &mut four } else { &mut commands };
        *family += &format!("route add {route}\n");
    }
    (commands, four)
}

/// Runs commands of `ip -6 -batch` in a node, or in the lab's own namespace.
pub fn run_ip_batch(node: Option<&str>, commands: &str) -> anyhow::Result<()> {
    run_ip_batch_of_family("-6", node, commands)
}

/// Runs commands of `ip -batch` for an address family, `-4` or `-6`.
pub fn run_ip_batch_of_family(family: &str, node: Option<&str>, commands: &str) -> anyhow::Result<()> {
    let mut command = match node {
        Some(node) => command_in_node(node, tools::path_of_program("ip")),
        None => Command::new(tools::path_of_program("ip")),
    };
    let mut child = command
        .args([family, "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start ip")?;
    if let Some(mut input) = child.stdin.take() {
        // Ignore a broken pipe: if ip stops at an invalid line, its error output is the better message.
        let _ = input.write_all(commands.as_bytes());
    }
    let result = child.wait_with_output()?;
    if result.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&result.stderr);
    let line = said
        .split("Command failed -:")
        .nth(1)
        .and_then(|n| n.trim().parse::<usize>().ok())
        .and_then(|n| commands.lines().nth(n - 1))
        .map_or(String::new(), |l| format!(" at `ip {family} {l}`"));
    let place = node.map_or(String::new(), |n| format!(" in node {n}"));
    bail!("building the testbed failed{place}{line}: {}", said.lines().next().unwrap_or("").trim());
}

fn set_sysctls(name: &str, node: &Node) -> anyhow::Result<()> {
    let mut settings: Vec<(String, String)> = Vec::new();
    if node.forwarding {
        settings.push(("net.ipv6.conf.all.forwarding".into(), "1".into()));
        settings.push(("net.ipv4.ip_forward".into(), "1".into()));
    }
    settings.extend(node.sysctl.iter().map(|(k, v)| (k.clone(), v.clone())));
    if settings.is_empty() {
        return Ok(());
    }
    let script: String = settings
        .iter()
        .map(|(key, value)| format!("echo '{value}' > /proc/sys/{}\n", key.replace('.', "/")))
        .collect();
    run_for_output(command_in_node(name, "sh").args(["-ec", &script]))
        .context("cannot apply the sysctl table")?;
    Ok(())
}

/// Sets an interface up or down; the other end of the link gets or loses its carrier.
pub fn set_link_state(scenario: &Scenario, end: &LinkEnd, up: bool) -> anyhow::Result<()> {
    set_interface_state(Some(&end.node), &end.interface, up)?;
    match link_and_end_index(scenario, end) {
        Some((l, e)) if scenario.links[l].emulation.is_some() => {
            set_interface_state(Some(runner::EMULATION_NAMESPACE), &runner::port_name(l, 1 - e), up)
        }
        _ => Ok(()),
    }
}

/// Takes the carrier of an interface away, or restores it, by setting the other end of the link down or up.
pub fn set_carrier(scenario: &Scenario, end: &LinkEnd, on: bool) -> anyhow::Result<()> {
    let (l, e) = link_and_end_index(scenario, end).with_context(|| format!("{end} is on no link"))?;
    let link = &scenario.links[l];
    match &link.bridge {
        Some(bridge) => set_interface_state(None, &format!("{bridge}.{e}"), on),
        None if link.emulation.is_some() => {
            set_interface_state(Some(runner::EMULATION_NAMESPACE), &runner::port_name(l, e), on)
        }
        None => {
            let other = link.ends.get(1 - e).context("the link has one end")?.get_ref();
            set_interface_state(Some(&other.node), &other.interface, on)
        }
    }
}

/// Returns the index of the link that has this end, and the index of the end in the link. `None` if no link
/// has the end.
fn link_and_end_index(scenario: &Scenario, end: &LinkEnd) -> Option<(usize, usize)> {
    let mut links = scenario.links.iter().enumerate();
    links.find_map(|(l, link)| Some((l, link.ends.iter().position(|e| e.get_ref() == end)?)))
}

fn set_interface_state(node: Option<&str>, interface: &str, up: bool) -> anyhow::Result<()> {
    let ip = tools::path_of_program("ip");
    let mut command = node.map_or_else(|| Command::new(&ip), |node| command_in_node(node, &ip));
    run_for_output(command.args(["link", "set", "dev", interface, if up { "up" } else { "down" }]))?;
    Ok(())
}

/// Returns a node's global addresses, each with its interface and whether it is usable already.
pub fn addresses_in_node(node: &str) -> anyhow::Result<Vec<(String, Ipv6Addr, bool)>> {
    let text = run_for_output(
        command_in_node(node, tools::path_of_program("ip")).args(["-6", "-json", "addr", "show"]),
    )?;
    parse_addresses(&text)
}

fn parse_addresses(text: &str) -> anyhow::Result<Vec<(String, Ipv6Addr, bool)>> {
    let list: Vec<serde_json::Value> = serde_json::from_str(text).context("ip printed no JSON")?;
    let mut found = Vec::new();
    for interface in &list {
        for address in interface["addr_info"].as_array().into_iter().flatten() {
            let Some(local) = address["local"].as_str().and_then(|a| a.parse().ok()) else { continue };
            let name = interface["ifname"].as_str().unwrap_or_default().to_string();
            found.push((name, local, address["tentative"].as_bool() != Some(true)));
        }
    }
    Ok(found)
}

/// Returns the number of packets that each interface of a node has received and sent, as the kernel counts
/// them.
pub fn ipv6_packet_counters(node: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let text = run_for_output(
        command_in_node(node, tools::path_of_program("ip")).args(["-json", "-stats", "link", "show"]),
    )?;
    let list: Vec<serde_json::Value> = serde_json::from_str(&text).context("ip printed no JSON")?;
    let count = |i: &serde_json::Value, way: &str| i["stats64"][way]["packets"].as_u64().unwrap_or(0);
    let one =
        |i: &serde_json::Value| Some((i["ifname"].as_str()?.to_string(), count(i, "rx") + count(i, "tx")));
    Ok(list.iter().filter_map(one).collect())
}

/// Returns the usable address of an interface in a prefix; `None` if it has none yet.
pub fn address_in(node: &str, interface: &str, prefix: &Prefix) -> anyhow::Result<Option<Ipv6Addr>> {
    let all = addresses_in_node(node)?;
    Ok(all
        .into_iter()
        .find(|(i, a, ready)| i == interface && *ready && prefix.contains(*a))
        .map(|(_, a, _)| a))
}

/// Returns true if duplicate address detection has ended for all addresses of the node.
pub fn has_finished_duplicate_address_detection(node: &str) -> anyhow::Result<bool> {
    Ok(addresses_in_node(node)?.iter().all(|(_, _, ready)| *ready))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_link_becomes_a_veth_pair_or_bridge_ports() {
        let text = "title='t'\ntimetable.duration='1s'\n[nodes]\na={}\nb={}\n\
                    [[links]]\nends=['a:x','b:y']\n[[links]]\nbridge='home'\nends=['a:h0','b:h0']\n\
                    [[links]]\nemulation={delay='1ms'}\nends=['a:o','b:p']\n";
        let s = crate::scenario::parse_scenario(std::path::Path::new("s"), text).expect("is good");
        let commands = link_commands(&s);
        assert!(commands.starts_with(
            "link add x index 1000 address 02:00:00:00:01:01 netns a \
             type veth peer name y index 1001 address 02:00:00:00:01:02 netns b\n"
        ));
        assert!(commands.contains(
            "link add p index 1008 address 02:00:00:00:03:02 netns b \
             type veth peer name l2.1 index 1009 netns @links\n"
        ));
        assert!(commands.contains("link add home type bridge mcast_snooping 0\n"));
        assert!(commands.contains(
            "link add home.1 index 1004 type veth peer name h0 index 1005 address 02:00:00:00:02:02 netns b\n"
        ));
    }

    #[test]
    fn every_lab_interface_has_a_unique_mac_address() {
        let text = "title='t'\ntimetable.duration='1s'\n[nodes.ar]\n[nodes.'a{n}']\ncount=300\n\
                    [nodes.'b{n}']\ncount=300\n[[links]]\nbridge='b'\nends=['ar:x','a{n}:x']\n[[links]]\n\
                    ends=['a{n}:y','b{n}:y']\n";
        let s = crate::scenario::parse_scenario(std::path::Path::new("s"), text).expect("is good");
        let commands = link_commands(&s);
        let words: Vec<&str> = commands.split_whitespace().collect();
        let macs: Vec<&str> = words.windows(2).filter(|w| w[0] == "address").map(|w| w[1]).collect();
        assert_eq!(macs.len(), 301 + 600);
        assert_eq!(macs.iter().collect::<std::collections::BTreeSet<_>>().len(), macs.len());
        assert!(macs.iter().all(|mac| mac.len() == 17), "{macs:?}");
    }

    #[test]
    fn ip_commands_are_made_for_each_address_family() {
        let text = "title='t'\ntimetable.duration='1s'\n[nodes.b]\n[nodes.a]\n\
                    addresses.x=['2001:db8::1/64','192.0.2.1/24']\n\
                    routes=['default via 2001:db8::2','default via 192.0.2.2','unreachable \
                    2001:db8:1.2.3.4/128']\n[[links]]\nends=['a:x','b:y']\n";
        let s = crate::scenario::parse_scenario(std::path::Path::new("s"), text).expect("is good");
        let (six, four) = node_commands("a", &s.nodes["a"], &s);
        assert_eq!(four, "addr add 192.0.2.1/24 dev x\nroute add default via 192.0.2.2\n");
        assert!(six.ends_with(
            "addr add 2001:db8::1/64 dev x nodad\nroute add default via 2001:db8::2\n\
             route add unreachable 2001:db8:1.2.3.4/128\n"
        ));
    }

    #[test]
    fn interface_addresses_are_parsed_with_state() {
        let text = r#"[{"ifname":"i0","addr_info":[{"local":"2001:db8::1","tentative":true},
            {"local":"fe80::1"}]}]"#;
        let found = parse_addresses(text).expect("is JSON");
        assert_eq!(found[0], ("i0".into(), "2001:db8::1".parse().expect("address"), false));
        assert!(found[1].2);
    }
}
