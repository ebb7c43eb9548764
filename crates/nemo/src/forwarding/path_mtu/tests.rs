//! Tests of many paths at once: their common rate limit, and the state after the paths are gone.

use super::*;

fn tunnel(index: u32, transmit: bool) -> Tunnel {
    let address =
        |prefix: u128| Ipv6Addr::from((0x2001_0db8_u128 << 96) | (prefix << 80) | u128::from(index));
    Tunnel {
        end: TunnelEnd::HomeAgent,
        home_address: address(1),
        bid: None,
        local: AGENT.into(),
        remote: address(0xf1).into(),
        inner: Vec::new(),
        transmit,
        mtu: 1460,
        session: None,
    }
}

const AGENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);

fn mtus() -> PathMtus {
    let mut mtus = PathMtus::new(Rng::new(1));
    mtus.set_home_agent(TunnelEnd::HomeAgent, AGENT);
    mtus
}

fn ends(tunnel: &Tunnel) -> Ends {
    (tunnel.local, tunnel.remote)
}

/// Runs the timers until `end`. Returns how many probes were sent, and on how many paths.
fn run(mtus: &mut PathMtus, mut now: Time, end: Time) -> (usize, usize) {
    let (mut probes, mut paths) = (0, std::collections::BTreeSet::new());
    loop {
        mtus.handle_timeout(now);
        while let Some(order) = mtus.poll_order() {
            if let Order::Probe(ends, _) = order {
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
fn returning_fleet_probes_within_rate_limit() {
    const FLEET: u32 = 2000;
    let mut mtus = mtus();
    for index in 0..FLEET {
        assert_eq!(mtus.admit(Time::ZERO, &tunnel(index, true)), 1460);
    }
    let (probes, paths) = run(&mut mtus, Time::ZERO, Time::from_secs(1));
    assert!(probes <= 500 + 64 + 20 && paths > 400, "{probes} probes for {paths} paths");
    // No probe is answered. Each path sends its probes in turn; then probing stops, because no packet uses a
    // path.
    let (probes, paths) = run(&mut mtus, Time::from_secs(1), Time::from_secs(3600));
    assert!(paths == FLEET as usize && probes < 20 * FLEET as usize, "{probes} probes for {paths} paths");
    assert_eq!(mtus.poll_timeout(), None);
    assert_eq!(run(&mut mtus, Time::from_secs(3600), Time::from_secs(7200)), (0, 0));
}

#[test]
fn removed_path_leaves_no_state() {
    let mut mtus = mtus();
    for index in 0..500 {
        mtus.admit(Time::ZERO, &tunnel(index, true));
        mtus.handle_too_big(Time::ZERO, ends(&tunnel(index, true)), 1300);
        if index % 2 == 0 {
            mtus.send(Time::ZERO);
        }
    }
    for index in 0..500 {
        mtus.remove(ends(&tunnel(index, true)), tunnel(index, true).home_address);
    }
    assert!(mtus.paths.is_empty() && mtus.queue.is_empty());
    assert_eq!(mtus.poll_timeout(), None);
    // A Packet Too Big for an unknown path does not create a path.
    mtus.handle_too_big(Time::ZERO, ends(&tunnel(1, true)), 1300);
    assert!(mtus.paths.is_empty() && mtus.poll_timeout().is_none());
}

#[test]
fn a_path_that_only_receives_is_not_probed() {
    let mut mtus = mtus();
    mtus.admit(Time::ZERO, &tunnel(1, false));
    assert_eq!(run(&mut mtus, Time::ZERO, Time::from_secs(100)), (0, 0));
    mtus.admit(Time::from_secs(100), &tunnel(1, true));
    assert_eq!(run(&mut mtus, Time::from_secs(100), Time::from_secs(100)).1, 1);
    mtus.admit(Time::from_secs(100), &tunnel(1, false));
    assert_eq!(run(&mut mtus, Time::from_secs(100), Time::from_secs(200)), (0, 0));
}

#[test]
fn bindings_that_share_a_path_share_its_mtu() {
    let mut mtus = mtus();
    let first = tunnel(1, true);
    let second = Tunnel { home_address: "2001:db8:1::77".parse().expect("address"), ..first.clone() };
    mtus.admit(Time::ZERO, &first);
    mtus.handle_too_big(Time::ZERO, ends(&first), 1300);
    assert!(std::iter::from_fn(|| mtus.poll_order()).any(|order| order == Order::Changed(ends(&first))));
    assert_eq!(mtus.admit(Time::ZERO, &second), 1300);
    assert_eq!(mtus.users(ends(&first)).map(|(_, users)| users.len()), Some(2));
    mtus.remove(ends(&first), first.home_address);
    assert_eq!(mtus.effective(ends(&first)), Some(1300));
    mtus.handle_too_big(Time::ZERO, ends(&first), 1100);
    assert_eq!(mtus.effective(ends(&first)), Some(1240), "no path carries less");
}

#[test]
fn unproven_mtu_starts_search_and_lowers_nothing() {
    let mut mtus = mtus();
    let wide = Tunnel {
        local: "udp:192.0.2.1:4191".parse().expect("endpoint"),
        remote: "udp:198.51.100.7:40000".parse().expect("endpoint"),
        mtu: 1472,
        ..tunnel(1, true)
    };
    let path = ends(&wide);
    mtus.admit(Time::ZERO, &wide);
    let sizes = |mtus: &mut PathMtus| -> Vec<Vec<u8>> {
        std::iter::from_fn(|| mtus.poll_order())
            .filter_map(|order| match order {
                Order::Probe(_, probe) => Some(probe),
                _ => None,
            })
            .collect()
    };
    mtus.send(Time::ZERO);
    let answer = carnet_wire::icmpv6::echo_reply(&sizes(&mut mtus)[0]).expect("a probe");
    assert!(mtus.handle_inner(Time::ZERO, path, &answer));
    assert_eq!(mtus.effective(path), Some(1472));
    for mtu in [1500, 1501, u32::MAX] {
        mtus.handle_hint(Time::ZERO, path, mtu);
        mtus.send(Time::ZERO);
        assert!(sizes(&mut mtus).is_empty(), "{mtu} is no news");
    }
    mtus.handle_hint(Time::ZERO, path, 1300);
    assert_eq!(mtus.effective(path), Some(1472));
    mtus.send(Time::ZERO);
    let probes = sizes(&mut mtus);
    assert_eq!(probes.iter().map(Vec::len).collect::<Vec<_>>(), [1472, 1272]);
    // The hint is wrong: the path still carries the larger size.
    let answer = carnet_wire::icmpv6::echo_reply(&probes[0]).expect("a probe");
    assert!(mtus.handle_inner(Time::ZERO, path, &answer));
    assert_eq!(mtus.effective(path), Some(1472));
    // The hint is right: the path carries only the smaller size.
    mtus.handle_hint(Time::ZERO, path, 1300);
    let mut now = Time::ZERO;
    for _ in 0..10 {
        mtus.handle_timeout(now);
        for probe in sizes(&mut mtus).iter().filter(|probe| probe.len() <= 1272) {
            let answer = carnet_wire::icmpv6::echo_reply(probe).expect("a probe");
            assert!(mtus.handle_inner(now, path, &answer));
        }
        now += Duration::from_millis(500);
    }
    assert_eq!(mtus.effective(path), Some(1272));
}
