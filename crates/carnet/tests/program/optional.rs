//! A failure of an optional part does not interrupt the network of the vehicle.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{ON_BOARD_HOST, Testbed, config_with_station_line};

/// Address that carnet itself adds to the interface of the mobile network, with the port of the API.
const ON_BOARD_HTTP_ADDRESS: &str = "[2001:db8:a::1]:8440";

#[test]
fn http_port_opens_when_its_interface_appears() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let tokens = bed.scratch.path_of("tokens");
    std::fs::write(&tokens, "read 0123456789abcdef\n").expect("a file");
    std::fs::set_permissions(&tokens, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a mode");
    bed.router.run_ip("link del lan0");
    let line = format!("http = '{ON_BOARD_HTTP_ADDRESS}'\nhttp_tokens = '{}'", tokens.display());
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let router = Station::start(&bed.router, &config_with_station_line(&bed.router_config(), &line));
    router.wait_until_registered();
    assert!(
        router.log_text().contains("station.http: no interface has the address 2001:db8:a::1 yet"),
        "{}",
        router.log_text()
    );
    bed.add_lan();
    let answers = || {
        let address: SocketAddr = ON_BOARD_HTTP_ADDRESS.parse().expect("an address");
        bed.host
            .run_in_namespace(move || TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
    };
    wait_until("the port answers on board", seconds(20), answers);
}

#[test]
fn geonetworking_over_udp_starts_when_its_address_appears() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let geonet = |own: &str, peer: &str| {
        format!(
            "\n[geonet]\ninterface = 'udp:[{own}]:8947,[{peer}]:8947'\nposition = 'fixed:48.8375,2.1008'\n\
             station_type = 'bus'\n"
        )
    };
    let (own, peer) = ("2001:db8:a::77", ON_BOARD_HOST);
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let router = Station::start(&bed.router, &(bed.router_config() + &geonet(own, peer)));
    router.wait_until_registered();
    let socket = bed.scratch.path_of("host.sock");
    let config = format!("[station]\nname = 'host'\nsocket = '{}'\n{}", socket.display(), geonet(peer, own));
    let host = Station::start(&bed.host, &config);
    let neighbours = |station: &Station| station.show_json("neighbours").as_array().map_or(0, Vec::len);
    assert_eq!((neighbours(&router), neighbours(&host)), (0, 0));
    bed.router.run_ip(&format!("-6 addr add {own}/64 dev lan0 nodad"));
    wait_until("the two stations hear each other", seconds(20), || {
        neighbours(&router) == 1 && neighbours(&host) == 1
    });
}

#[test]
fn mobile_router_registers_although_every_optional_part_fails() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    // Other programs use the ports of the upper tester, of GeoNetworking and of the API, so these parts fail.
    let (tester, radio, api) = bed.router.run_in_namespace(|| {
        let api = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let bind = || UdpSocket::bind("[::1]:0").expect("a port");
        (bind(), bind(), api)
    });
    let (tester_address, api_address) =
        (tester.local_addr().expect("bound"), api.local_addr().expect("bound"));
    let radio_address = radio.local_addr().expect("bound");
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let line = format!("record = '/proc/none/record.jsonl'\nhttp = '{api_address}'");
    let config = format!(
        "{}\n[geonet]\ninterface = 'udp:{radio_address},[2001:db8:dead::2]:8947'\n\
         position = 'fixed:48.8375,2.1008'\n[conformance]\nupper_tester = '{tester_address}'\n",
        config_with_station_line(&bed.router_config(), &line)
    );
    let router = Station::start(&bed.router, &config);
    router.wait_until_registered();
    let log = router.log_text();
    for what in [
        "the station continues without GeoNetworking until a restart",
        "the station continues without the upper tester until a restart",
        "the station continues without the recording until a restart",
        "station.http: cannot listen at",
    ] {
        assert!(log.contains(what), "{what}: {log}");
    }
    drop((tester, radio, api));
}
