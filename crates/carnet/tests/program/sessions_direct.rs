//! Two mobile routers with keys and a direct route between them. The packets of the direct route are in the
//! clear, because the operator has said so.

use std::time::Duration;

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::sessions::{configs_with_keys, make_key_pair};
use crate::station::{Station, run_carnet};
use crate::testbed::{CARE_OF_ADDRESSES, ON_BOARD_HOST, Testbed, config_with_station_line, parse_address};
use crate::theft::add_neighbour;
use crate::traffic::{EchoTraffic, PacketSniffer};

const SECOND_AUTH: &str = "auth = { spi = 301, key = '0f0e0d0c0b0a09080706050403020100' }";
const SECOND_CARE_OF_ADDRESS: &str = "2001:db8:f3::10";
const SECOND_HOST: &str = "2001:db8:b::10";

/// Adds keys of direct routes to a router's config.
fn with_direct_routes(config: &str, encryption: &str) -> String {
    let lan = "lan = ['lan0']\n";
    let networks = "direct_routes = ['2001:db8:a::/48', '2001:db8:b::/48']\n";
    assert!(config.contains(lan));
    config.replace(lan, &format!("{lan}{networks}{encryption}"))
}

#[test]
fn direct_route_in_the_clear_needs_an_order_and_loses_no_packet() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (second_router, second_host, second) = add_neighbour(&bed);
    second_host.wait_until_settled();
    let (agent, first) = configs_with_keys(&bed);
    let (file, public_key) = make_key_pair(&bed, "second.key");
    let agent = format!(
        "{agent}\n[[home_agent.mobile_router]]\nhome_address = '2001:db8:1::5678'\n\
         prefixes = ['2001:db8:b::/64']\nauth = {{ public_key = '{public_key}' }}\n"
    );
    let key_line = first.lines().find(|line| line.starts_with("home_agent_key")).expect("a key");
    assert!(second.contains(SECOND_AUTH));
    let second = second.replace(SECOND_AUTH, key_line);
    let second = config_with_station_line(&second, &format!("private_key_file = '{file}'"));

    let refused = bed.scratch.path_of("refused.toml").display().to_string();
    std::fs::write(&refused, with_direct_routes(&first, "")).expect("a config");
    let checked = run_carnet(&["check", &refused]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && said.contains("direct routes are in the clear"), "{said}");

    let off = "direct_encryption = 'off'\n";
    let _agent = Station::start(&bed.agent, &agent);
    let first = Station::start(&bed.router, &with_direct_routes(&first, off));
    let second = Station::start(&second_router, &with_direct_routes(&second, off));
    first.wait_until_registered();
    second.wait_until_registered();
    let said = "tunnels: encrypted, packets between vehicles in the clear";
    assert!(first.log_text().contains(said), "{}", first.log_text());

    let sniffer = PacketSniffer::start(&bed.core, &["third"]);
    let (from, to) = (parse_address(ON_BOARD_HOST), parse_address(SECOND_HOST));
    let traffic = EchoTraffic::start(&bed.host, from, &second_host, to, 200);
    traffic.wait_until_flowing();
    for station in [&first, &second] {
        wait_until("a direct route", seconds(20), || {
            let routes = station.show_json("routes");
            routes.as_array().is_some_and(|routes| routes.iter().any(|route| route["path"] == "direct"))
        });
    }
    std::thread::sleep(Duration::from_millis(500));
    let report = traffic.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");
    let ends = [SECOND_CARE_OF_ADDRESS, CARE_OF_ADDRESSES[0]].map(|end| parse_address(end).octets()).concat();
    let direct = sniffer.stop().iter().filter(|packet| packet[6] == 41 && packet[8..40] == ends).count();
    assert!(direct > 10, "{direct} packets by the direct route");
    // The tunnels to the home agent stay encrypted.
    let tunnels = first.show_json("tunnels");
    for tunnel in tunnels.as_array().expect("tunnels") {
        let is_direct = tunnel["home_address"] == "2001:db8:1::5678";
        let expected = if is_direct { "in the clear" } else { "encrypted" };
        assert_eq!(tunnel["encryption"], expected, "{tunnels}");
    }
}
