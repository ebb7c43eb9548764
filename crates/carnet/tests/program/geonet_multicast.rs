//! Multicast between hosts on board of vehicles. Real kernels send, join and leave, and carnet is their MLD
//! router.

use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use crate::geonet::Line;
use crate::geonet_ipv6::{GROUP, config};
use crate::hosts::{Host, assert_same, possible, said, seconds, wait_until};
use crate::station::Station;

const FRAMES: [&str; 3] = ["radio", "br0", "radio"];
/// A multicast group that the config maps to no area.
const NOWHERE: &str = "ff1e::77";
const PORT: u16 = 4000;

/// Three vehicles in a line, each with a host on board.
struct Vehicles {
    line: Line,
    passengers: [Host; 3],
    before: Vec<String>,
    stations: [Station; 3],
}

impl Vehicles {
    fn new(more: &str) -> Vehicles {
        let line = Line::new();
        let passengers = [Host::new(), Host::new(), Host::new()];
        for (number, (host, passenger)) in line.hosts.iter().zip(&passengers).enumerate() {
            host.link("lan0", passenger, "i0");
            host.ip(&format!("-6 addr add 2001:db8:a{number}::1/64 dev lan0"));
            passenger.ip(&format!("-6 addr add 2001:db8:a{number}::64/64 dev i0"));
            wait_until("the network on board stands", seconds(10), || {
                let is_up = |host: &Host, name: &str| {
                    let shown = host.ip(&format!("-6 addr show dev {name}"));
                    shown.contains("fe80::") && !shown.contains("tentative")
                };
                is_up(host, "lan0") && is_up(passenger, "i0")
            });
        }
        let before = line.hosts.iter().map(Host::snapshot).collect();
        let stations = [0, 1, 2].map(|number| {
            let text = config(&line, number, FRAMES[number], "")
                .replace("[geonet]\n", &format!("[geonet]\nmulticast = {{ lan = ['lan0'], {more} }}\n"));
            Station::start(&line.hosts[number], &text)
        });
        for (station, neighbours) in stations.iter().zip([1, 2, 1]) {
            wait_until("everybody knows the neighbours", seconds(10), || {
                station.show("neighbours").as_array().map(Vec::len) == Some(neighbours)
            });
        }
        Vehicles { line, passengers, before, stations }
    }

    /// Returns the groups that have listeners on board of a vehicle, as its station reports them.
    fn groups(&self, vehicle: usize) -> Vec<String> {
        let groups = self.stations[vehicle].show("groups");
        let groups = groups.as_array().expect("an array");
        groups.iter().filter_map(|group| group["group"].as_str().map(str::to_owned)).collect()
    }

    fn wait_for_listener(&self, vehicle: usize, group: &str) {
        wait_until("the station knows of the listener", seconds(10), || {
            self.groups(vehicle).contains(&group.to_owned())
        });
    }

    fn send(&self, vehicle: usize, group: &'static str, hops: i32, text: &'static str) {
        self.passengers[vehicle].run(move || {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("a socket");
            setsockopt(&socket, sockopt::Ipv6MulticastHops, &hops).expect("hops");
            let to = SocketAddrV6::new(group.parse().expect("a group"), PORT, 0, 0);
            socket.send_to(text.as_bytes(), to).expect("sent");
        });
    }

    /// Ends the stations, and checks that they leave nothing behind on the hosts.
    fn end(mut self) {
        self.stations.iter_mut().for_each(Station::terminate);
        for (host, before) in self.line.hosts.iter().zip(&self.before) {
            assert_same(before, &host.snapshot(), "after the end");
            let flags = host.ip("-d link show dev lan0");
            assert!(flags.contains("allmulti 0"), "{flags}");
        }
    }
}

/// Returns a socket on a host that has joined a group.
fn member(host: &Host, group: &'static str) -> UdpSocket {
    let shown = host.ip("-o link show dev i0");
    let index = shown.split(':').next().and_then(|text| text.trim().parse().ok()).expect("an index");
    host.run(move || {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).expect("a socket");
        socket.join_multicast_v6(&group.parse().expect("a group"), index).expect("a member");
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        socket
    })
}

/// Returns the next packet of a socket, with its source address.
fn hears(socket: &UdpSocket) -> Option<(String, String)> {
    let mut octets = [0; 64];
    let (length, from) = socket.recv_from(&mut octets).ok()?;
    Some((String::from_utf8_lossy(&octets[..length]).into_owned(), from.ip().to_string()))
}

fn heard(text: &str, from: &str) -> Option<(String, String)> {
    Some((text.to_owned(), from.to_owned()))
}

#[test]
fn hosts_on_board_reach_the_hosts_in_the_area_that_have_joined() {
    if !possible() {
        return;
    }
    let vehicles = Vehicles::new("query_interval = '20s', query_response_interval = '1s'");
    let [_, middle, east] = &vehicles.passengers;
    // The area is around the vehicle in the east; the vehicle in the middle is outside of it.
    let (inside, outside) = (member(east, GROUP), member(middle, GROUP));
    [1, 2].iter().for_each(|vehicle| vehicles.wait_for_listener(*vehicle, GROUP));
    // The kernel has joined the group on its virtual interface.
    let joined = vehicles.line.hosts[2].ip("-6 maddr show dev gn0");
    assert!(joined.contains(GROUP), "{joined}");
    vehicles.send(0, GROUP, 8, "hello");
    assert_eq!(hears(&inside), heard("hello", "2001:db8:a0::64"));
    // A packet with hop limit 1 must not leave its link.
    vehicles.send(0, GROUP, 1, "too near");
    vehicles.send(0, NOWHERE, 8, "nobody");
    // The packet passes two routers and three links, so hop limit 3 is enough.
    vehicles.send(0, GROUP, 3, "again");
    assert_eq!(hears(&inside), heard("again", "2001:db8:a0::64"));
    assert_eq!((hears(&inside), hears(&outside)), (None, None));
    assert_eq!(vehicles.stations[0].counter("geonet.multicast.upstream"), 2);
    assert_eq!(vehicles.stations[0].counter("geonet.multicast.dropped.hop_limit"), 1);
    assert_eq!(vehicles.stations[0].counter("geonet.multicast.dropped.no_area"), 1);
    assert_eq!(vehicles.stations[2].counter("geonet.multicast.downstream"), 2);
    assert_eq!(
        vehicles.stations[2].counter("geonet.multicast.interfaces.sent"),
        2 + queries(&vehicles.stations[2])
    );

    // The host's kernel leaves the group, and does not answer the query. After that the proxy forwards
    // nothing.
    drop(inside);
    wait_until("the station knows that nobody listens", seconds(10), || vehicles.groups(2).is_empty());
    let joined = vehicles.line.hosts[2].ip("-6 maddr show dev gn0");
    assert!(!joined.contains(GROUP), "{joined}");
    vehicles.send(0, GROUP, 8, "anybody?");
    wait_until("the packet has come", seconds(10), || {
        vehicles.stations[2].counter("geonet.ipv6.received") >= 3
    });
    assert_eq!(vehicles.stations[2].counter("geonet.multicast.downstream"), 2);
    vehicles.end();
}

fn queries(station: &Station) -> u64 {
    station.counter("geonet.multicast.queries")
}

/// An operator sets an area around another vehicle, for a group that the config does not have.
#[test]
fn group_of_area_set_at_run_time_reaches_the_area() {
    if !possible() {
        return;
    }
    let vehicles = Vehicles::new("robustness = 3");
    let [_, middle, east] = &vehicles.passengers;
    let (near, far) = (member(middle, NOWHERE), member(east, NOWHERE));
    [1, 2].iter().for_each(|vehicle| vehicles.wait_for_listener(*vehicle, NOWHERE));
    vehicles.send(0, NOWHERE, 8, "nowhere");
    let west = &vehicles.stations[0];
    let middle =
        vehicles.stations[1].show("status")["geonet"]["gn_address"].as_str().expect("one").to_owned();
    let area = ["area", "convoy", "--around", &middle, "--radius", "50m", "--group", NOWHERE];
    let set = west.ask(&area);
    assert!(set.status.success(), "{}", said(&set));
    vehicles.send(0, NOWHERE, 8, "convoy");
    assert_eq!(hears(&near), heard("convoy", "2001:db8:a0::64"));
    assert_eq!((hears(&near), hears(&far)), (None, None));
    let gone = west.ask(&["area", "convoy", "--remove"]);
    assert!(gone.status.success(), "{}", said(&gone));
    vehicles.send(0, NOWHERE, 8, "nowhere");
    assert_eq!((hears(&near), hears(&far)), (None, None));
    vehicles.end();
}

/// With `unmapped`, packets to groups without an area reach all stations that are one or two hops away.
#[test]
fn groups_without_an_area_reach_every_station_if_the_config_allows_it() {
    if !possible() {
        return;
    }
    let vehicles = Vehicles::new("unmapped = true");
    let [_, middle, east] = &vehicles.passengers;
    let (near, far) = (member(middle, NOWHERE), member(east, NOWHERE));
    [1, 2].iter().for_each(|vehicle| vehicles.wait_for_listener(*vehicle, NOWHERE));
    vehicles.send(0, NOWHERE, 8, "all");
    assert_eq!(
        (hears(&near), hears(&far)),
        (heard("all", "2001:db8:a0::64"), heard("all", "2001:db8:a0::64"))
    );
    vehicles.end();
}
