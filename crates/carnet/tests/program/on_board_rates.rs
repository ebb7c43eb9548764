//! `rate_limit`: the maximum rate of each host on board, on each data path.

use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use crate::hosts::{Host, can_run_or_report, output_text, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, ON_BOARD_HOST, Testbed, parse_address};

/// Address of a second host at the same interface.
const SECOND_HOST_ADDRESS: &str = "2001:db8:a::20";
/// Length of a packet's payload in octets. All packets together have 1.2 MB.
const PAYLOAD_LENGTH: usize = 1000;
const PACKET_COUNT: usize = 1200;

fn on_board_config(bed: &Testbed, keys: &str, path: &str) -> String {
    let config = bed.router_config().replace("lan = ['lan0']\n", "");
    let table = format!("[[mobile_router.lan]]\ninterface = 'lan0'\ninbound = 'any'\n{keys}\n");
    format!("{config}\n{table}[dataplane]\npath = '{path}'\n")
}

/// Sends UDP packets from one host to another. Returns the number of received packets, and the maximum number
/// that a rate of 100 kB/s permits in the flow's duration. The octets of one second and 64 KiB may pass at
/// once.
fn send_flow(from: (&Host, &str), to: (&Host, &str)) -> (usize, usize) {
    let socket = |host: &Host, own: Ipv6Addr| {
        host.run_in_namespace(move || UdpSocket::bind(SocketAddrV6::new(own, 0, 0, 0)).expect("a socket"))
    };
    let (sender, receiver) = (socket(from.0, parse_address(from.1)), socket(to.0, parse_address(to.1)));
    let destination = receiver.local_addr().expect("an address");
    receiver.set_read_timeout(Some(Duration::from_secs(2))).expect("a time limit");
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        std::iter::from_fn(|| receiver.recv(&mut buffer).ok()).count()
    });
    let start = Instant::now();
    for number in 0..PACKET_COUNT {
        sender.send_to(&[0; PAYLOAD_LENGTH], destination).expect("a packet");
        let due = Duration::from_micros(number as u64 * 400);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    // Allow ten percent more, because the kernel measures with its own clock.
    let octets = 182_000.0 + 110_000.0 * start.elapsed().as_secs_f64();
    (reader.join().expect("a count"), (octets / (PAYLOAD_LENGTH + 48) as f64) as usize + 1)
}

fn check_rate_limits(path: &str) {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    bed.host.run_ip(&format!("-6 addr add {SECOND_HOST_ADDRESS}/64 dev eth0 nodad"));
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let limited = on_board_config(&bed, "rate_limit = '800kbit'", path);
    let mut router = Station::start(&bed.router, &limited);
    router.wait_until_registered();
    router.wait_for_fast_path();
    wait_until("the tunnel", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    assert!(router.log_text().contains("rate_limit on lan0"), "{}", router.log_text());
    let inside = (&bed.host, ON_BOARD_HOST);
    let core = (&bed.core, CORRESPONDENT);

    for (from, to) in [(inside, core), (core, inside)] {
        let (passed, most) = send_flow(from, to);
        assert!((100..=most).contains(&passed), "{passed} packets pass on {path}, at most {most} may");
    }
    // Two addresses of the same host share one rate limit.
    let ((passed, most), (more, _)) = std::thread::scope(|scope| {
        let other = scope.spawn(|| send_flow((&bed.host, SECOND_HOST_ADDRESS), core));
        (send_flow(inside, core), other.join().expect("a flow"))
    });
    assert!(passed + more <= most, "{passed} and {more} packets of one host pass on {path}, {most} may");
    assert!(
        bed.host
            .run_program(&["ping", "-6", "-c1", "-W2", "-I", SECOND_HOST_ADDRESS, CORRESPONDENT])
            .status
            .success()
    );

    let list = bed.router.run_program(&["nft", "list", "table", "inet", "carnet_rules"]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned() + &output_text(&list);
    assert!(
        list.contains("from6-lan0") && list.contains(ON_BOARD_HOST) && list.contains(SECOND_HOST_ADDRESS),
        "{list}"
    );

    // After a reload without `rate_limit`, all packets pass, and the packet filter has no table for it.
    router.reload(&on_board_config(&bed, "", path));
    wait_until("no rules", seconds(10), || {
        !bed.router.run_program(&["nft", "list", "table", "inet", "carnet_rules"]).status.success()
    });
    for (from, to) in [(inside, core), (core, inside)] {
        let (passed, _) = send_flow(from, to);
        assert!(passed > PACKET_COUNT * 9 / 10, "{passed} packets pass without a limit on {path}");
    }
    router.terminate();
}

#[test]
fn host_rate_limits_each_host_on_tun() {
    check_rate_limits("tun");
}

#[test]
fn host_rate_limits_each_host_on_bpf() {
    check_rate_limits("bpf");
}

#[test]
fn host_rate_limits_each_host_on_xdp() {
    check_rate_limits("xdp");
}
