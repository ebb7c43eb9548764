//! A mobile network that is a part of the home prefix (RFC 4887 6). Hosts on the home link treat hosts on
//! board as neighbours, wherever the vehicle is.

use crate::hosts::{Host, can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, HOME_ADDRESS, Testbed};

/// Address of a host on board. It is in the vehicle's part of the home prefix.
const ON_BOARD_HOST: &str = "2001:db8:1:a::10";
/// Address of a host on the home link.
const HOME_LINK_HOST: &str = "2001:db8:1::50";

/// Flushes a host's neighbour cache. Returns the link-layer address that the host then resolves for `target`;
/// `None` if `target` does not answer.
fn mac_in_neighbour_table(host: &Host, target: &str) -> Option<String> {
    host.run_ip("-6 neigh flush all");
    host.can_ping(target).then(|| {
        let known = host.run_ip(&format!("-6 neigh show {target}"));
        known.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).unwrap_or_default().to_owned()
    })
}

fn mac_address(host: &Host, interface: &str) -> String {
    let shown = host.run_ip(&format!("-o link show {interface}"));
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
    words.nth(1).expect("a link-layer address").to_owned()
}

#[test]
fn home_link_hosts_reach_hosts_on_board_in_aggregated_home_network() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (switch, neighbour) = (Host::new(), Host::new());
    switch.run_ip("link add home type bridge");
    switch.run_ip("link set home up");
    for (port, host, interface) in
        [("pa", &bed.agent, "home0"), ("pr", &bed.router, "eth9"), ("pn", &neighbour, "n0")]
    {
        switch.create_link(port, host, interface);
        switch.run_ip(&format!("link set {port} master home"));
    }
    bed.agent.run_ip("-6 addr add 2001:db8:1::ff/48 dev home0");
    neighbour
        .run_ip_batch(&format!("addr add {HOME_LINK_HOST}/48 dev n0\nroute add default via 2001:db8:1::ff"));
    bed.core.run_ip("-6 route add 2001:db8:1::/48 via 2001:db8:f0::2");
    // During duplicate address detection, the kernel does not accept the address as the preferred source of a
    // route.
    bed.host.run_ip_batch(&format!(
        "addr add {ON_BOARD_HOST}/64 dev eth0 nodad\nroute replace default via 2001:db8:1:a::1 src \
         {ON_BOARD_HOST} metric 5"
    ));
    for host in [&bed.agent, &bed.router, &bed.host, &neighbour] {
        host.wait_until_settled();
    }
    let aggregated = |config: String| {
        config.replace("2001:db8:1::/64", "2001:db8:1::/48").replace("2001:db8:a::/64", "2001:db8:1:a::/64")
    };
    let agent_config =
        aggregated(bed.agent_config()).replace("[home_agent]\n", "[home_agent]\nhome_link = 'home0'\n");
    let router_config = aggregated(bed.router_config()).replace("'wwan0'", "'eth9'");
    let agent = Station::start(&bed.agent, &agent_config);
    let router = Station::start(&bed.router, &router_config);
    router.wait_until_registered();
    // The router is away from home: the home agent answers Neighbor Solicitations for the host on board (RFC
    // 4887 6.4.1).
    let (by_agent, by_router) = (mac_address(&bed.agent, "home0"), mac_address(&bed.router, "eth9"));
    let reached = |by: &str| mac_in_neighbour_table(&neighbour, ON_BOARD_HOST).as_deref() == Some(by);
    wait_until("through the tunnel", seconds(20), || reached(&by_agent));
    assert!(!neighbour.can_ping("2001:db8:1:b::10"), "nobody has that address");
    // The router is at home: it answers Neighbor Solicitations itself (6.2.1). The route from outside leads
    // to its home address.
    bed.router.run_ip("-6 addr add 2001:db8:1::99/48 dev eth9");
    wait_until("the vehicle is at home", seconds(20), || agent.bindings().is_empty());
    wait_until("over the home link", seconds(20), || reached(&by_router));
    let way = bed.agent.run_ip(&format!("-6 route get {ON_BOARD_HOST}"));
    assert!(way.contains(&format!("via {HOME_ADDRESS} dev home0")), "{way}");
    wait_until("from elsewhere", seconds(20), || {
        bed.host.can_ping(CORRESPONDENT) && bed.core.can_ping(ON_BOARD_HOST)
    });
    // The router leaves the home link again.
    bed.router.run_ip("link set eth9 down");
    wait_until("the vehicle is away", seconds(20), || !agent.bindings().is_empty());
    wait_until("through the tunnel again", seconds(20), || reached(&by_agent));
}
