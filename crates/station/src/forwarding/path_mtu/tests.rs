//! Many paths at once: what they may send together, and what they leave behind.

use super::*;

fn tunnel(index: u32, transmit: bool) -> Tunnel {
    let address =
        |prefix: u128| Ipv6Addr::from((0x2001_0db8_u128 << 96) | (prefix << 80) | u128::from(index));
    Tunnel {
        end: TunnelEnd::HomeAgent,
        home_address: address(1),
        local: "2001:db8:1::1".parse().expect("address"),
        remote: address(0xf1),
        inner: Vec::new(),
        transmit,
        mtu: 1460,
    }
}

fn ends(tunnel: &Tunnel) -> Ends {
    (tunnel.local, tunnel.remote)
}

/// Runs until `end`; how many probes went out, and to how many paths.
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
fn a_fleet_that_comes_back_at_once_causes_no_storm() {
    const FLEET: u32 = 2000;
    let mut mtus = PathMtus::new(Rng::new(1));
    for index in 0..FLEET {
        assert_eq!(mtus.admit(Time::ZERO, &tunnel(index, true)), 1460);
    }
    let (probes, paths) = run(&mut mtus, Time::ZERO, Time::from_secs(1));
    assert!(probes <= 500 + 64 + 20 && paths > 400, "{probes} probes for {paths} paths");
    // Nobody answers. Each has its turn, and then there is silence, for nobody uses a path.
    let (probes, paths) = run(&mut mtus, Time::from_secs(1), Time::from_secs(3600));
    assert!(paths == FLEET as usize && probes < 20 * FLEET as usize, "{probes} probes for {paths} paths");
    assert_eq!(mtus.poll_timeout(), None);
    assert_eq!(run(&mut mtus, Time::from_secs(3600), Time::from_secs(7200)), (0, 0));
}

#[test]
fn nothing_is_kept_of_a_path_that_is_gone() {
    let mut mtus = PathMtus::new(Rng::new(1));
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
    // Strangers teach nothing.
    mtus.handle_too_big(Time::ZERO, ends(&tunnel(1, true)), 1300);
    assert!(mtus.paths.is_empty() && mtus.poll_timeout().is_none());
}

#[test]
fn a_path_that_only_receives_is_not_probed() {
    let mut mtus = PathMtus::new(Rng::new(1));
    mtus.admit(Time::ZERO, &tunnel(1, false));
    assert_eq!(run(&mut mtus, Time::ZERO, Time::from_secs(100)), (0, 0));
    mtus.admit(Time::from_secs(100), &tunnel(1, true));
    assert_eq!(run(&mut mtus, Time::from_secs(100), Time::from_secs(100)).1, 1);
    mtus.admit(Time::from_secs(100), &tunnel(1, false));
    assert_eq!(run(&mut mtus, Time::from_secs(100), Time::from_secs(200)), (0, 0));
}

#[test]
fn bindings_that_share_a_path_share_its_mtu() {
    let mut mtus = PathMtus::new(Rng::new(1));
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
    assert_eq!(mtus.effective(ends(&first)), Some(BASE), "no path carries less");
}
