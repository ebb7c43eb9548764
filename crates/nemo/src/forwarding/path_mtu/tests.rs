//! Tests of many paths at once: their common rate limit, and the state after the paths are gone.

use super::*;

fn new_tunnel(index: u32, transmit: bool) -> Tunnel {
    let address =
        |prefix: u128| Ipv6Addr::from((0x2001_0db8_u128 << 96) | (prefix << 80) | u128::from(index));
    Tunnel {
        end: TunnelEnd::HomeAgent,
        home_address: address(1),
        bid: None,
        local: HOME_AGENT_ADDRESS.into(),
        remote: address(0xf1).into(),
        inner: Vec::new(),
        transmit,
        mtu: 1460,
        session: None,
    }
}

const HOME_AGENT_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);

fn new_path_mtus() -> PathMtus {
    let mut mtus = PathMtus::new(Rng::new(1));
    mtus.set_home_agent(TunnelEnd::HomeAgent, HOME_AGENT_ADDRESS);
    mtus
}

fn tunnel_ends(tunnel: &Tunnel) -> TunnelEnds {
    (tunnel.local, tunnel.remote)
}

/// Runs the timers until `end`. Returns how many probes were sent, and on how many paths.
fn run_timers(mtus: &mut PathMtus, mut now: Time, end: Time) -> (usize, usize) {
    let (mut probes, mut paths) = (0, std::collections::BTreeSet::new());
    loop {
        mtus.handle_timeout(now);
        while let Some(order) = mtus.poll_output() {
            if let PathMtuOutput::Probe(ends, _) = order {
                probes += 1;
                paths.insert(ends);
            }
        }
        match mtus.poll_timeout() {
            Some(next) if next <= end => now = next.max(now),
            _ => return (probes, paths.len()),
        }
    }
}

#[test]
fn path_mtu_probes_of_2000_returning_routers_stay_within_rate_limit() {
    const FLEET_SIZE: u32 = 2000;
    let mut mtus = new_path_mtus();
    for index in 0..FLEET_SIZE {
        assert_eq!(mtus.add_path(Time::ZERO, &new_tunnel(index, true)), 1460);
    }
    let (probes, paths) = run_timers(&mut mtus, Time::ZERO, Time::from_secs(1));
    assert!(probes <= 500 + 64 + 20 && paths > 400, "{probes} probes for {paths} paths");
    // No probe is answered. After each path has sent its probes, probing stops, because no packet uses a
    // path.
    let (probes, paths) = run_timers(&mut mtus, Time::from_secs(1), Time::from_secs(3600));
    assert!(
        paths == FLEET_SIZE as usize && probes < 20 * FLEET_SIZE as usize,
        "{probes} probes for {paths} paths"
    );
    assert_eq!(mtus.poll_timeout(), None);
    assert_eq!(run_timers(&mut mtus, Time::from_secs(3600), Time::from_secs(7200)), (0, 0));
}

#[test]
fn removed_path_leaves_no_state() {
    let mut mtus = new_path_mtus();
    for index in 0..500 {
        mtus.add_path(Time::ZERO, &new_tunnel(index, true));
        mtus.handle_too_big(Time::ZERO, tunnel_ends(&new_tunnel(index, true)), 1300);
        if index % 2 == 0 {
            mtus.send_due_probes(Time::ZERO);
        }
    }
    for index in 0..500 {
        mtus.remove_path_user(tunnel_ends(&new_tunnel(index, true)), new_tunnel(index, true).home_address);
    }
    assert!(mtus.paths.is_empty() && mtus.due_paths.is_empty());
    assert_eq!(mtus.poll_timeout(), None);
    // A Packet Too Big for an unknown path does not create a path.
    mtus.handle_too_big(Time::ZERO, tunnel_ends(&new_tunnel(1, true)), 1300);
    assert!(mtus.paths.is_empty() && mtus.poll_timeout().is_none());
}

#[test]
fn a_path_that_only_receives_is_not_probed() {
    let mut mtus = new_path_mtus();
    mtus.add_path(Time::ZERO, &new_tunnel(1, false));
    assert_eq!(run_timers(&mut mtus, Time::ZERO, Time::from_secs(100)), (0, 0));
    mtus.add_path(Time::from_secs(100), &new_tunnel(1, true));
    assert_eq!(run_timers(&mut mtus, Time::from_secs(100), Time::from_secs(100)).1, 1);
    mtus.add_path(Time::from_secs(100), &new_tunnel(1, false));
    assert_eq!(run_timers(&mut mtus, Time::from_secs(100), Time::from_secs(200)), (0, 0));
}

#[test]
fn bindings_that_share_a_path_share_its_mtu() {
    let mut mtus = new_path_mtus();
    let first = new_tunnel(1, true);
    let second = Tunnel { home_address: "2001:db8:1::77".parse().expect("address"), ..first.clone() };
    mtus.add_path(Time::ZERO, &first);
    mtus.handle_too_big(Time::ZERO, tunnel_ends(&first), 1300);
    assert!(
        std::iter::from_fn(|| mtus.poll_output())
            .any(|order| order == PathMtuOutput::Changed(tunnel_ends(&first)))
    );
    assert_eq!(mtus.add_path(Time::ZERO, &second), 1300);
    assert_eq!(mtus.users_of_path(tunnel_ends(&first)).map(|(_, users)| users.len()), Some(2));
    mtus.remove_path_user(tunnel_ends(&first), first.home_address);
    assert_eq!(mtus.effective_mtu(tunnel_ends(&first)), Some(1300));
    mtus.handle_too_big(Time::ZERO, tunnel_ends(&first), 1100);
    assert_eq!(mtus.effective_mtu(tunnel_ends(&first)), Some(1240), "no path carries less");
}

#[test]
fn unproven_mtu_starts_search_and_lowers_nothing() {
    let mut mtus = new_path_mtus();
    let wide = Tunnel {
        local: "udp:192.0.2.1:4191".parse().expect("endpoint"),
        remote: "udp:198.51.100.7:40000".parse().expect("endpoint"),
        mtu: 1472,
        ..new_tunnel(1, true)
    };
    let path = tunnel_ends(&wide);
    mtus.add_path(Time::ZERO, &wide);
    let sizes = |mtus: &mut PathMtus| -> Vec<Vec<u8>> {
        std::iter::from_fn(|| mtus.poll_output())
            .filter_map(|order| match order {
                PathMtuOutput::Probe(_, probe) => Some(probe),
                _ => None,
            })
            .collect()
    };
    mtus.send_due_probes(Time::ZERO);
    let answer = carnet_wire::icmpv6::answer_echo_request(&sizes(&mut mtus)[0]).expect("a probe");
    assert!(mtus.handle_inner_packet(Time::ZERO, path, &answer));
    assert_eq!(mtus.effective_mtu(path), Some(1472));
    for mtu in [1500, 1501, u32::MAX] {
        mtus.handle_unproven_mtu(Time::ZERO, path, mtu);
        mtus.send_due_probes(Time::ZERO);
        assert!(sizes(&mut mtus).is_empty(), "{mtu} is no news");
    }
    mtus.handle_unproven_mtu(Time::ZERO, path, 1300);
    assert_eq!(mtus.effective_mtu(path), Some(1472));
    mtus.send_due_probes(Time::ZERO);
    let probes = sizes(&mut mtus);
    assert_eq!(probes.iter().map(Vec::len).collect::<Vec<_>>(), [1472, 1272]);
    // The ICMP message was wrong: the path still carries the larger size.
    let answer = carnet_wire::icmpv6::answer_echo_request(&probes[0]).expect("a probe");
    assert!(mtus.handle_inner_packet(Time::ZERO, path, &answer));
    assert_eq!(mtus.effective_mtu(path), Some(1472));
    // The ICMP message was right: the path carries only the smaller size.
    mtus.handle_unproven_mtu(Time::ZERO, path, 1300);
    let mut now = Time::ZERO;
    for _ in 0..10 {
        mtus.handle_timeout(now);
        for probe in sizes(&mut mtus).iter().filter(|probe| probe.len() <= 1272) {
            let answer = carnet_wire::icmpv6::answer_echo_request(probe).expect("a probe");
            assert!(mtus.handle_inner_packet(now, path, &answer));
        }
        now += Duration::from_millis(500);
    }
    assert_eq!(mtus.effective_mtu(path), Some(1272));
}
