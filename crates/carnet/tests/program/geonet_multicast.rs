//! Multicast between hosts on board of vehicles. Real kernels send, join and leave, and carnet is their MLD
//! router.

use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use crate::geonet::StationLine;
use crate::geonet_ipv6::{MULTICAST_GROUP, ipv6_config};
use crate::hosts::{Host, assert_same_state, can_run_or_report, output_text, seconds, wait_until};
use crate::station::Station;

const FRAME_INTERFACES: [&str; 3] = ["radio", "br0", "radio"];
/// A multicast group that the config maps to no area.
const GROUP_WITHOUT_AREA: &str = "ff1e::77";
const UDP_PORT: u16 = 4000;

/// Three vehicles in a line, each with a host on board.
struct VehicleLine {
    line: StationLine,
    passenger_hosts: [Host; 3],
    snapshots_before: Vec<String>,
    stations: [Station; 3],
}

impl VehicleLine {
    fn new(more: &str) -> VehicleLine {
        let line = StationLine::new();
        let passengers = [Host::new(), Host::new(), Host::new()];
        for (number, (host, passenger)) in line.hosts.iter().zip(&passengers).enumerate() {
            host.create_link("lan0", passenger, "i0");
            host.run_ip(&format!("-6 addr add 2001:db8:a{number}::1/64 dev lan0"));
            passenger.run_ip(&format!("-6 addr add 2001:db8:a{number}::64/64 dev i0"));
            wait_until("the network on board stands", seconds(10), || {
                let is_up = |host: &Host, name: &str| {
                    let shown = host.run_ip(&format!("-6 addr show dev {name}"));
                    shown.contains("fe80::") && !shown.contains("tentative")
                };
                is_up(host, "lan0") && is_up(passenger, "i0")
            });
        }
        let before = line.hosts.iter().map(Host::kernel_state).collect();
        let stations = [0, 1, 2].map(|number| {
            let text = ipv6_config(&line, number, FRAME_INTERFACES[number], "")
                .replace("[geonet]\n", &format!("[geonet]\nmulticast = {{ lan = ['lan0'], {more} }}\n"));
            Station::start(&line.hosts[number], &text)
        });
        for (station, neighbours) in stations.iter().zip([1, 2, 1]) {
            wait_until("everybody knows the neighbours", seconds(10), || {
                station.show_json("neighbours").as_array().map(Vec::len) == Some(neighbours)
            });
        }
        VehicleLine { line, passenger_hosts: passengers, snapshots_before: before, stations }
    }

    /// Returns the groups that have listeners on board of a vehicle, as its station reports them.
    fn forwarded_groups(&self, vehicle: usize) -> Vec<String> {
        let groups = self.stations[vehicle].show_json("groups");
        let groups = groups.as_array().expect("an array");
        groups.iter().filter_map(|group| group["group"].as_str().map(str::to_owned)).collect()
    }

    fn wait_for_listener(&self, vehicle: usize, group: &str) {
        wait_until("the station knows of the listener", seconds(10), || {
            self.forwarded_groups(vehicle).contains(&group.to_owned())
        });
    }

    fn send_to_group(&self, vehicle: usize, group: &'static str, hops: i32, text: &'static str) {
        self.passenger_hosts[vehicle].run_in_namespace(move || {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("a socket");
            setsockopt(&socket, sockopt::Ipv6MulticastHops, &hops).expect("hops");
            let to = SocketAddrV6::new(group.parse().expect("a group"), UDP_PORT, 0, 0);
            socket.send_to(text.as_bytes(), to).expect("sent");
        });
    }

    /// Ends the stations, and checks that they leave nothing behind on the hosts.
    fn end_and_check_cleanup(mut self) {
        self.stations.iter_mut().for_each(Station::terminate);
        for (host, before) in self.line.hosts.iter().zip(&self.snapshots_before) {
            assert_same_state(before, &host.kernel_state(), "after the end");
            let flags = host.run_ip("-d link show dev lan0");
            assert!(flags.contains("allmulti 0"), "{flags}");
        }
    }
}

/// Returns a socket on a host that has joined a group.
fn open_group_socket(host: &Host, group: &'static str) -> UdpSocket {
    let shown = host.run_ip("-o link show dev i0");
    let index = shown.split(':').next().and_then(|text| text.trim().parse().ok()).expect("an index");
    host.run_in_namespace(move || {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, UDP_PORT)).expect("a socket");
        socket.join_multicast_v6(&group.parse().expect("a group"), index).expect("a member");
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        socket
    })
}

/// Returns the next packet of a socket as text, with its source address; `None` if no packet arrives.
fn receive_text_and_source(socket: &UdpSocket) -> Option<(String, String)> {
    let mut octets = [0; 64];
    let (length, from) = socket.recv_from(&mut octets).ok()?;
    Some((String::from_utf8_lossy(&octets[..length]).into_owned(), from.ip().to_string()))
}

fn expected_text_and_source(text: &str, from: &str) -> Option<(String, String)> {
    Some((text.to_owned(), from.to_owned()))
}

#[test]
fn hosts_on_board_reach_the_hosts_in_the_area_that_have_joined() {
    if !can_run_or_report() {
        return;
    }
    let vehicles = VehicleLine::new("query_interval = '20s', query_response_interval = '1s'");
    let [_, middle, east] = &vehicles.passenger_hosts;
    // The area surrounds the vehicle in the east. The vehicle in the middle is outside of it.
    let (inside, outside) =
        (open_group_socket(east, MULTICAST_GROUP), open_group_socket(middle, MULTICAST_GROUP));
    [1, 2].iter().for_each(|vehicle| vehicles.wait_for_listener(*vehicle, MULTICAST_GROUP));
    // The kernel has joined the group on its virtual interface.
    let joined = vehicles.line.hosts[2].run_ip("-6 maddr show dev gn0");
    assert!(joined.contains(MULTICAST_GROUP), "{joined}");
    vehicles.send_to_group(0, MULTICAST_GROUP, 8, "hello");
    assert_eq!(receive_text_and_source(&inside), expected_text_and_source("hello", "2001:db8:a0::64"));
    // A packet with hop limit 1 must not leave its link.
    vehicles.send_to_group(0, MULTICAST_GROUP, 1, "too near");
    vehicles.send_to_group(0, GROUP_WITHOUT_AREA, 8, "nobody");
    // The packet passes two routers and three links, so hop limit 3 is enough.
    vehicles.send_to_group(0, MULTICAST_GROUP, 3, "again");
    assert_eq!(receive_text_and_source(&inside), expected_text_and_source("again", "2001:db8:a0::64"));
    assert_eq!((receive_text_and_source(&inside), receive_text_and_source(&outside)), (None, None));
    assert_eq!(vehicles.stations[0].counter("geonet.multicast.upstream"), 2);
    assert_eq!(vehicles.stations[0].counter("geonet.multicast.dropped.hop_limit"), 1);
    assert_eq!(vehicles.stations[0].counter("geonet.multicast.dropped.no_area"), 1);
    assert_eq!(vehicles.stations[2].counter("geonet.multicast.downstream"), 2);
    assert_eq!(
        vehicles.stations[2].counter("geonet.multicast.interfaces.sent"),
        2 + mld_queries(&vehicles.stations[2])
    );

    // The host leaves the group and answers no further query, so the proxy stops forwarding.
    drop(inside);
    wait_until("the station knows that nobody listens", seconds(10), || {
        vehicles.forwarded_groups(2).is_empty()
    });
    let joined = vehicles.line.hosts[2].run_ip("-6 maddr show dev gn0");
    assert!(!joined.contains(MULTICAST_GROUP), "{joined}");
    vehicles.send_to_group(0, MULTICAST_GROUP, 8, "anybody?");
    wait_until("the packet has come", seconds(10), || {
        vehicles.stations[2].counter("geonet.ipv6.received") >= 3
    });
    assert_eq!(vehicles.stations[2].counter("geonet.multicast.downstream"), 2);
    vehicles.end_and_check_cleanup();
}

fn mld_queries(station: &Station) -> u64 {
    station.counter("geonet.multicast.queries")
}

/// An operator sets an area around another vehicle at run time, for a group that the config does not name.
#[test]
fn group_of_area_set_at_run_time_reaches_the_area() {
    if !can_run_or_report() {
        return;
    }
    let vehicles = VehicleLine::new("robustness = 3");
    let [_, middle, east] = &vehicles.passenger_hosts;
    let (near, far) =
        (open_group_socket(middle, GROUP_WITHOUT_AREA), open_group_socket(east, GROUP_WITHOUT_AREA));
    [1, 2].iter().for_each(|vehicle| vehicles.wait_for_listener(*vehicle, GROUP_WITHOUT_AREA));
    vehicles.send_to_group(0, GROUP_WITHOUT_AREA, 8, "nowhere");
    let west = &vehicles.stations[0];
    let middle =
        vehicles.stations[1].show_json("status")["geonet"]["gn_address"].as_str().expect("one").to_owned();
    let area = ["area", "convoy", "--around", &middle, "--radius", "50m", "--group", GROUP_WITHOUT_AREA];
    let set = west.run_command(&area);
    assert!(set.status.success(), "{}", output_text(&set));
    vehicles.send_to_group(0, GROUP_WITHOUT_AREA, 8, "convoy");
    assert_eq!(receive_text_and_source(&near), expected_text_and_source("convoy", "2001:db8:a0::64"));
    assert_eq!((receive_text_and_source(&near), receive_text_and_source(&far)), (None, None));
    let gone = west.run_command(&["area", "convoy", "--remove"]);
    assert!(gone.status.success(), "{}", output_text(&gone));
    vehicles.send_to_group(0, GROUP_WITHOUT_AREA, 8, "nowhere");
    assert_eq!((receive_text_and_source(&near), receive_text_and_source(&far)), (None, None));
    vehicles.end_and_check_cleanup();
}

/// With `unmapped`, packets to groups without an area reach all stations that are one or two hops away.
#[test]
fn groups_without_an_area_reach_every_station_if_the_config_allows_it() {
    if !can_run_or_report() {
        return;
    }
    let vehicles = VehicleLine::new("unmapped = true");
    let [_, middle, east] = &vehicles.passenger_hosts;
    let (near, far) =
        (open_group_socket(middle, GROUP_WITHOUT_AREA), open_group_socket(east, GROUP_WITHOUT_AREA));
    [1, 2].iter().for_each(|vehicle| vehicles.wait_for_listener(*vehicle, GROUP_WITHOUT_AREA));
    vehicles.send_to_group(0, GROUP_WITHOUT_AREA, 8, "all");
    assert_eq!(
        (receive_text_and_source(&near), receive_text_and_source(&far)),
        (
            expected_text_and_source("all", "2001:db8:a0::64"),
            expected_text_and_source("all", "2001:db8:a0::64")
        )
    );
    vehicles.end_and_check_cleanup();
}
