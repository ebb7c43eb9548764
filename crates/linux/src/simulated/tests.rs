//! Tests the installer while the simulated kernel refuses requests, or executes them and loses the answers.

use std::path::Path;
use std::sync::Arc;

use carnet_nemo::forwarding::desired::{
    ForwardingEntry, InterfaceAddress, Ipv4Route, Ipv4Rule, Route, RouteAction, Rule, SysctlSetting,
    TABLE_TUNNEL, TABLE_UPLINK, priority,
};

use super::*;

const UNDO_FILE: &str = "/run/undo";

fn new_platform(seed: u64) -> (SimulatedKernel, SimulatedDisk, SimulatedPlatform) {
    let mut rng = Rng::new(seed);
    let kernel = SimulatedKernel::new(rng.fork_generator());
    for name in ["w0", "i0"] {
        kernel.add_link(name);
        kernel.set_link(name, true, true);
    }
    let disk = SimulatedDisk::new(rng);
    let mut machine = SimulatedPlatform::open(&kernel, &disk, Path::new(UNDO_FILE)).expect("opens");
    machine.poll_events().expect("looks");
    (kernel, disk, machine)
}

/// Ends carnet on the simulated machine. With `is_killed`, first kills carnet and starts it again.
fn end_process(
    mut machine: SimulatedPlatform,
    kernel: &SimulatedKernel,
    disk: &SimulatedDisk,
    is_killed: bool,
) {
    if is_killed {
        drop(machine);
        kernel.end_process();
        machine = SimulatedPlatform::open(kernel, disk, Path::new(UNDO_FILE)).expect("opens again");
    }
    machine.close().expect("closes");
}

fn parse_ipv6_net(text: &str) -> Ipv6Net {
    text.parse().expect("a prefix")
}

/// Returns one entry of each kind.
fn one_entry_of_each_kind() -> Vec<Arc<ForwardingEntry>> {
    let setting = |interface: &str, name: &str, value: &str| {
        ForwardingEntry::Setting(Box::new(SysctlSetting {
            interface: interface.into(),
            name: name.into(),
            value: value.into(),
        }))
    };
    let rule = |priority| {
        let input_interface = Some("w0".into());
        ForwardingEntry::Rule(Box::new(Rule {
            priority,
            input_interface,
            from: None,
            to: None,
            table: TABLE_TUNNEL,
            ..Rule::default()
        }))
    };
    let route = |destination, action| {
        ForwardingEntry::Route(Route {
            table: TABLE_TUNNEL,
            destination: parse_ipv6_net(destination),
            metric: 7,
            action,
            source: None,
        })
    };
    let entries = [
        setting("w0", "accept_ra", "2"),
        setting("all", "forwarding", "1"),
        setting("w0", "forwarding", "0"),
        ForwardingEntry::Address(InterfaceAddress {
            interface: "i0".into(),
            address: "2001:db8:a::1".parse().expect("an address"),
            prefix_length: 64,
            deprecated: false,
        }),
        route("2001:db8:c::/64", RouteAction::Forward { interface: "w0".into(), gateway: None }.into()),
        route("::/0", RouteAction::Unreachable.into()),
        rule(priority::TUNNEL_CAPTURE),
        rule(priority::FROM_LAN),
    ];
    entries.into_iter().chain(ipv4_entries()).map(Arc::new).collect()
}

/// Returns the entries of an uplink's IPv4 table.
fn ipv4_entries() -> [ForwardingEntry; 3] {
    let route = Ipv4Route {
        table: TABLE_UPLINK,
        destination: Ipv4Net::default(),
        interface: "w0".into(),
        gateway: Some(parse_ipv4_address("10.2.0.1")),
    };
    let rule = |priority, table, without_default| {
        let (from, output_interface) = (parse_ipv4_address("10.2.0.185"), "w0".into());
        ForwardingEntry::Ipv4Rule(Box::new(Ipv4Rule {
            priority,
            from,
            output_interface,
            table,
            without_default,
        }))
    };
    [
        ForwardingEntry::Ipv4Route(Box::new(route)),
        rule(priority::SPECIFIC_IPV4_ROUTES, TABLE_MAIN, true),
        rule(priority::FROM_CARE_OF_ADDRESS, TABLE_UPLINK, false),
    ]
}

fn parse_ipv4_address(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

fn parse_ipv4_net(text: &str) -> Ipv4Net {
    text.parse().expect("a prefix")
}

/// Returns the IPv4 routers in the last event about an interface; `None` if there was no event about the
/// interface.
fn ipv4_routers(machine: &mut SimulatedPlatform, name: &str) -> Option<Vec<Ipv4Addr>> {
    let events = machine.poll_events().expect("looks").into_iter();
    let mut told = events.filter_map(|event| match event {
        PlatformEvent::Interface(it) if it.name == name => Some(it.ipv4_routers),
        _ => None,
    });
    told.next_back().map(|routers| routers.iter().map(|router| router.gateway).collect())
}

/// ConnMan installs a default route for one service only, and for each service a route to its gateway.
#[test]
fn gateway_with_host_route_is_the_router_if_no_default_route_exists() {
    let (kernel, _, mut machine) = new_platform(5);
    kernel.add_ipv4_address("w0", parse_ipv4_net("10.2.0.185/24"));
    assert_eq!(ipv4_routers(&mut machine, "w0"), Some(vec![]));
    for host in ["10.2.0.1/32", "169.254.169.254/32", "10.2.0.185/32", "10.2.0.53/32"] {
        kernel.set_ipv4_route(parse_ipv4_net(host), None, "w0");
    }
    let gateways = vec![parse_ipv4_address("10.2.0.1"), parse_ipv4_address("10.2.0.53")];
    assert_eq!(ipv4_routers(&mut machine, "w0"), Some(gateways), "neither its own nor link-local ones");
    // If the main table has a default route by the uplink, its gateway is the uplink's router. Routes to
    // hosts then do not matter.
    kernel.set_ipv4_route(parse_ipv4_net("0.0.0.0/0"), Some(parse_ipv4_address("10.2.0.254")), "w0");
    assert_eq!(ipv4_routers(&mut machine, "w0"), Some(vec![parse_ipv4_address("10.2.0.254")]));
    // A host with a route through a gateway does not count as a router.
    kernel.set_ipv4_route(parse_ipv4_net("192.0.2.7/32"), Some(parse_ipv4_address("10.9.0.1")), "i0");
    assert_eq!(ipv4_routers(&mut machine, "i0"), None);
    machine.close().expect("closes");
    assert_eq!(kernel.leftover_objects(), Vec::<String>::new());
}

/// DHCP exchanges an interface's only IPv4 address. The kernel then drops all IPv4 routes of the interface
/// without an event.
#[test]
fn uplink_table_is_restored_after_kernel_drops_it_with_last_address() {
    let (kernel, _, mut machine) = new_platform(6);
    let (own, home_agent, gateway) = (
        parse_ipv4_address("10.2.0.185"),
        parse_ipv4_address("198.51.100.2"),
        parse_ipv4_address("10.2.0.1"),
    );
    kernel.add_ipv4_address("w0", parse_ipv4_net("10.2.0.185/24"));
    assert_eq!(kernel.ipv4_next_hop("w0", own, home_agent), None);
    for entry in ipv4_entries() {
        machine.apply_change(&EntryChange::Set(Arc::new(entry))).expect("there");
    }
    machine.poll_events().expect("looks");
    assert_eq!(kernel.ipv4_next_hop("w0", own, home_agent), Some(Some(gateway)));
    // For packets of the uplink's address, the uplink's default route precedes that of the main table. All
    // other routes of the main table precede both default routes.
    kernel.set_ipv4_route(parse_ipv4_net("0.0.0.0/0"), Some(parse_ipv4_address("10.2.0.9")), "w0");
    kernel.set_ipv4_route(parse_ipv4_net("203.0.113.0/24"), Some(parse_ipv4_address("10.2.0.8")), "w0");
    assert_eq!(kernel.ipv4_next_hop("w0", own, home_agent), Some(Some(gateway)));
    assert_eq!(
        kernel.ipv4_next_hop("w0", own, parse_ipv4_address("203.0.113.7")),
        Some(Some(parse_ipv4_address("10.2.0.8")))
    );
    kernel.delete_ipv4_address("w0", parse_ipv4_net("10.2.0.185/24"));
    assert_eq!(machine.differences().len(), 1, "{:?}", machine.differences());
    kernel.add_ipv4_address("w0", parse_ipv4_net("10.2.0.185/24"));
    machine.poll_events().expect("looks");
    assert_eq!(machine.differences(), Vec::<String>::new());
    assert_eq!(kernel.ipv4_next_hop("w0", own, home_agent), Some(Some(gateway)));
    // Another program removes carnet's routes and rules.
    for number in 0..3 {
        kernel.remove_own_object(number);
        assert_eq!(machine.differences().len(), 1, "{:?}", machine.differences());
        machine.poll_events().expect("looks");
        assert_eq!(machine.differences(), Vec::<String>::new());
    }
    // carnet installs a default route with another gateway.
    let [ForwardingEntry::Ipv4Route(default), ..] = ipv4_entries() else { panic!("the default route") };
    let other = Ipv4Route { gateway: Some(parse_ipv4_address("10.2.0.254")), ..*default };
    machine
        .apply_change(&EntryChange::Set(Arc::new(ForwardingEntry::Ipv4Route(Box::new(other)))))
        .expect("there");
    assert_eq!(kernel.ipv4_next_hop("w0", own, home_agent), Some(Some(parse_ipv4_address("10.2.0.254"))));
    end_process(machine, &kernel, &SimulatedDisk::new(Rng::new(1)), true);
    assert_eq!(kernel.leftover_objects(), Vec::<String>::new());
}

/// The kernel sends no event when a lack of memory ends. So carnet must try a refused entry again without an
/// event.
#[test]
fn refused_entry_is_tried_again_without_event() {
    // With the seed 3 the simulated operator adds none of these entries before carnet does.
    let (kernel, _, mut machine) = new_platform(3);
    kernel.set_failure_probability(1.0);
    for entry in one_entry_of_each_kind() {
        let _ = machine.apply_change(&EntryChange::Set(entry));
    }
    assert!(machine.has_refused_requests() && !machine.differences().is_empty());
    kernel.set_failure_probability(0.0);
    let mut seconds = 0;
    while machine.has_refused_requests() && seconds < 10 {
        machine.advance_one_second();
        seconds += 1;
    }
    assert_eq!(machine.differences(), Vec::<String>::new());
    assert!(seconds <= 2, "after {seconds} s: {:?}", machine.obstacle_messages());
    machine.close().expect("closes");
    assert_eq!(kernel.leftover_objects(), Vec::<String>::new());
}

/// While the kernel refuses an entry, carnet tries again less and less often.
#[test]
fn entry_that_stays_refused_is_tried_every_half_minute() {
    let (kernel, _, mut machine) = new_platform(2);
    // Another program has a route with the key of carnet's route.
    let entry = &one_entry_of_each_kind()[4];
    kernel.add_route(TABLE_TUNNEL, parse_ipv6_net("2001:db8:c::/64"), 7, "w0");
    let refused = machine.apply_change(&EntryChange::Set(entry.clone())).expect_err("taken");
    assert_eq!(refused.raw_os_error(), Some(libc::EEXIST), "{refused}");
    let mut attempts = Vec::new();
    let mut before = machine.state_keeper.entry_installer.requests.write_requests;
    for second in 1..200 {
        machine.advance_one_second();
        let after = machine.state_keeper.entry_installer.requests.write_requests;
        if after > before {
            attempts.push(second);
        }
        before = after;
    }
    assert_eq!(attempts, [1, 3, 7, 15, 31, 63, 95, 127, 159, 191]);
    machine.apply_change(&EntryChange::Remove(entry.clone())).expect("gone");
    (0..32).for_each(|_| machine.advance_one_second());
    assert!(!machine.has_refused_requests());
    machine.close().expect("closes");
    assert_eq!(kernel.leftover_objects(), Vec::<String>::new(), "the route is not ours");
}

fn operator_messages(machine: &mut SimulatedPlatform) -> Vec<String> {
    let events = machine.poll_events().expect("looks").into_iter();
    events
        .filter_map(|event| if let PlatformEvent::Notice(text) = event { Some(text) } else { None })
        .collect()
}

/// When another program changes a setting, the kernel sends only an event about the setting.
#[test]
fn setting_changed_by_another_program_is_restored_and_reported_at_once() {
    let (kernel, _, mut machine) = new_platform(8);
    for entry in one_entry_of_each_kind() {
        machine.apply_change(&EntryChange::Set(entry)).expect("there");
    }
    assert_eq!(operator_messages(&mut machine), Vec::<String>::new(), "its own changes are not others'");
    kernel.set_setting("all", "forwarding", "0");
    let said = operator_messages(&mut machine);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("net.ipv6.conf.all.forwarding is 0, 1 is needed"), "{said:?}");
    assert_eq!(machine.differences(), Vec::<String>::new());
    assert_eq!(machine.obstacle_messages(), Vec::<String>::new());
    // An uplink that forwards ignores Router Advertisements.
    kernel.set_setting("w0", "forwarding", "1");
    assert!(operator_messages(&mut machine)[0].contains("net.ipv6.conf.w0.forwarding is 1, 0 is needed"));
    assert_eq!(machine.differences(), Vec::<String>::new());
    machine.close().expect("closes");
    // carnet restores 0. Its own write to `all` had already set 1 for the interface. So carnet could not
    // notice that the operator set 1 for the interface, too.
    assert_eq!(kernel.leftover_objects(), ["w0.forwarding is 0, was 1"]);
}

/// A hardening file turns a setting off that was on before carnet started. When carnet ends, the setting
/// stays off.
#[test]
fn setting_that_the_operator_changed_during_the_run_is_not_undone() {
    let (kernel, _, mut machine) = new_platform(12);
    kernel.set_setting("all", "forwarding", "1");
    machine.apply_change(&EntryChange::Set(one_entry_of_each_kind()[1].clone())).expect("there");
    kernel.set_setting("all", "forwarding", "0");
    machine.poll_events().expect("looks");
    assert_eq!(machine.differences(), Vec::<String>::new());
    machine.close().expect("closes");
    assert_eq!(kernel.leftover_objects(), Vec::<String>::new());
}

#[test]
fn strict_rp_filter_of_all_interfaces_is_overridden_and_reported() {
    let (kernel, _, mut machine) = new_platform(9);
    let setting = SysctlSetting { interface: "w0".into(), name: "rp_filter".into(), value: "2".into() };
    machine
        .apply_change(&EntryChange::Set(Arc::new(ForwardingEntry::Setting(Box::new(setting)))))
        .expect("there");
    assert_eq!(operator_messages(&mut machine), Vec::<String>::new());
    kernel.set_setting("all", "rp_filter", "1");
    let said = operator_messages(&mut machine);
    assert!(said[0].contains("net.ipv4.conf.all.rp_filter is 1, 2 is needed"), "{said:?}");
    assert_eq!(kernel.0.borrow().setting_value("w0", "rp_filter").as_deref(), Some("2"));
    assert_eq!(
        kernel.0.borrow().setting_value("all", "rp_filter").as_deref(),
        Some("1"),
        "that is the operator's"
    );
    machine.close().expect("closes");
    assert_eq!(kernel.leftover_objects(), Vec::<String>::new());
}

/// carnet restores a setting that another program keeps changing, with growing pauses, and never stops.
#[test]
fn repeatedly_changed_setting_is_restored_after_growing_pauses() {
    let (kernel, _, mut machine) = new_platform(10);
    for entry in one_entry_of_each_kind() {
        machine.apply_change(&EntryChange::Set(entry)).expect("there");
    }
    let forwards = |kernel: &SimulatedKernel| {
        kernel.0.borrow().setting_value("all", "forwarding").as_deref() == Some("1")
    };
    let mut pauses = Vec::new();
    for _ in 0..11 {
        kernel.set_setting("all", "forwarding", "0");
        machine.poll_events().expect("looks");
        let mut seconds = 0;
        while !forwards(&kernel) {
            let obstacles = machine.obstacle_messages();
            assert!(obstacles[0].contains("net.ipv6.conf.all.forwarding is 0, 1 is needed"), "{obstacles:?}");
            // Other events during the pause do not shorten it.
            kernel.set_link("i0", true, seconds % 2 == 0);
            machine.poll_events().expect("looks");
            machine.advance_one_second();
            seconds += 1;
            assert!(seconds < 100, "it is given up");
        }
        pauses.push(seconds);
        assert_eq!(machine.differences(), Vec::<String>::new());
    }
    assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 64]);
    assert!(
        machine.obstacle_messages()[0].contains("that this station needs 11 times so far"),
        "{:?}",
        machine.obstacle_messages()
    );
    (0..121).for_each(|_| machine.advance_one_second());
    assert_eq!(machine.obstacle_messages(), Vec::<String>::new(), "nothing stands in the way any more");
    machine.close().expect("closes");
    assert_eq!(kernel.leftover_objects(), Vec::<String>::new());
}

/// While a network manager configures an interface anew, it disables IPv6 on it for a moment. The log gets a
/// message only if IPv6 stays disabled.
#[test]
fn only_lasting_refusal_of_kernel_is_logged() {
    let (kernel, _, mut machine) = new_platform(13);
    for entry in one_entry_of_each_kind() {
        machine.apply_change(&EntryChange::Set(entry)).expect("there");
    }
    machine.poll_events().expect("looks");
    // Object 0 is the route over the uplink. carnet has two objects. After it has installed the route again,
    // the route is the last one, number 1.
    for (seconds, told, route) in [(1, 0, 0), (20, 1, 1)] {
        kernel.disable_ipv6("w0", true);
        kernel.remove_own_object(route);
        machine.poll_events().expect("looks");
        assert_eq!(machine.differences().len(), 1, "{:?}", machine.differences());
        let mut obstacles = 0;
        for _ in 0..seconds {
            machine.advance_one_second();
            obstacles = machine.obstacle_messages().len();
        }
        assert_eq!(obstacles, told, "{:?}", machine.obstacle_messages());
        kernel.disable_ipv6("w0", false);
        (0..64).for_each(|_| machine.advance_one_second());
        assert_eq!(machine.differences(), Vec::<String>::new());
        assert_eq!(machine.obstacle_messages(), Vec::<String>::new());
    }
    machine.close().expect("closes");
    assert_eq!(kernel.leftover_objects(), Vec::<String>::new());
}

#[test]
fn local_rule_restored_by_another_program_is_removed_again() {
    let (kernel, _, mut machine) = new_platform(11);
    for entry in one_entry_of_each_kind() {
        machine.apply_change(&EntryChange::Set(entry)).expect("there");
    }
    machine.poll_events().expect("looks");
    let mut pauses = Vec::new();
    for _ in 0..6 {
        kernel.restore_local_rule();
        machine.poll_events().expect("looks");
        let mut seconds = 0;
        while !machine.differences().is_empty() {
            assert!(
                machine.obstacle_messages()[0].contains("back to priority 0"),
                "{:?}",
                machine.obstacle_messages()
            );
            machine.advance_one_second();
            machine.poll_events().expect("looks");
            seconds += 1;
            assert!(seconds < 100, "it is given up");
        }
        pauses.push(seconds);
    }
    assert_eq!(pauses, [0, 0, 0, 1, 2, 4]);
    machine.close().expect("closes");
    assert_eq!(kernel.leftover_objects(), Vec::<String>::new());
}

/// Requests fail with or without being executed, while entries are added and removed.
#[test]
fn entry_in_unknown_state_is_installed_and_removed_correctly() {
    for seed in 0..300 {
        let (kernel, disk, mut machine) = new_platform(seed);
        let mut rng = Rng::new(seed);
        if seed % 2 == 0 {
            kernel.set_setting("i0", "forwarding", "1");
        }
        kernel.set_failure_probability(0.4);
        disk.set_failure_probability(rng.is_true_with_probability(0.2), 0.2);
        let entries = one_entry_of_each_kind();
        for _ in 0..40 {
            let entry = entries[rng.number_below(entries.len() as u64) as usize].clone();
            let change = if rng.is_true_with_probability(0.6) {
                EntryChange::Set(entry)
            } else {
                EntryChange::Remove(entry)
            };
            let _ = machine.apply_change(&change);
            if rng.is_true_with_probability(0.2) {
                machine.advance_one_second();
            }
        }
        kernel.set_failure_probability(0.0);
        disk.set_failure_probability(false, 0.0);
        for _ in 0..64 {
            machine.advance_one_second();
            machine.poll_events().expect("looks");
        }
        let differences = machine.differences();
        assert!(differences.is_empty(), "{seed}: {differences:#?}");
        machine.close().unwrap_or_else(|error| panic!("{seed}: {error}"));
        let left = kernel.leftover_objects();
        assert!(left.is_empty(), "{seed}: {left:#?}");
        assert!(!disk.file_exists(Path::new(UNDO_FILE)), "{seed}");
    }
}

/// An operator removes carnet's address and adds an equal one. The address then belongs to the operator and
/// must stay, even if carnet is killed at any time.
#[test]
fn operators_address_that_replaced_carnets_address_stays() {
    let address = &one_entry_of_each_kind()[3];
    let ForwardingEntry::Address(InterfaceAddress { interface, address: own, prefix_length, .. }) =
        &**address
    else {
        panic!("an address");
    };
    for (looks, is_killed) in [(true, true), (true, false), (false, true), (false, false)] {
        let (kernel, disk, mut machine) = new_platform(3);
        machine.apply_change(&EntryChange::Set(address.clone())).expect("added");
        machine.poll_events().expect("looks");
        // Object 0 is carnet's only object, the address.
        kernel.remove_own_object(0);
        kernel.add_address(interface, *own, *prefix_length);
        if looks {
            machine.poll_events().expect("looks");
            assert_eq!(machine.differences(), Vec::<String>::new());
            assert_eq!(machine.state_keeper.entry_installer.restored_entries, 0, "nothing was put back");
        }
        if is_killed {
            drop(machine);
            kernel.end_process();
            machine = SimulatedPlatform::open(&kernel, &disk, Path::new(UNDO_FILE)).expect("opens again");
        } else {
            machine.apply_change(&EntryChange::Remove(address.clone())).expect("no longer wanted");
        }
        machine.close().expect("closes");
        assert_eq!(kernel.leftover_objects(), Vec::<String>::new(), "looked {looks}, killed {is_killed}");
        let way = kernel.packet_path("lo", *own, *own, 58);
        assert_eq!(way, PacketPath::Local, "looked {looks}, killed {is_killed}");
    }
}

/// Writing `all` overwrites all interfaces. An interface that forwarded before carnet must forward after it,
/// even if carnet dies in between.
#[test]
fn operators_setting_is_restored_whenever_carnet_dies() {
    let mut deaths = 0;
    for steps in 1..60 {
        let (kernel, disk, mut machine) = new_platform(5);
        kernel.set_setting("i0", "forwarding", "1");
        for entry in one_entry_of_each_kind() {
            machine.apply_change(&EntryChange::Set(entry)).expect("there");
        }
        kernel.set_steps_until_death(Some((steps, disk.clone())));
        let _ = machine.close();
        deaths += u32::from(kernel.has_process_died());
        kernel.set_steps_until_death(None);
        kernel.end_process();
        disk.release_locks();
        let machine = SimulatedPlatform::open(&kernel, &disk, Path::new(UNDO_FILE)).expect("opens again");
        machine.close().expect("closes");
        let left = kernel.leftover_objects();
        assert!(left.is_empty(), "after {steps} steps: {left:#?}");
        assert!(!disk.file_exists(Path::new(UNDO_FILE)), "after {steps} steps");
    }
    assert!((20..59).contains(&deaths), "{deaths} deaths");
}

/// The directory of the undo file is full or gone. When carnet ends, the machine stops forwarding anyway.
#[test]
fn settings_are_restored_although_undo_file_cannot_be_written() {
    let (kernel, disk, mut machine) = new_platform(6);
    kernel.set_setting("i0", "forwarding", "1");
    for entry in one_entry_of_each_kind() {
        machine.apply_change(&EntryChange::Set(entry)).expect("there");
    }
    disk.set_failure_probability(true, 0.0);
    machine.close().expect_err("the disk is full");
    assert_eq!(kernel.leftover_objects(), Vec::<String>::new());
    disk.set_failure_probability(false, 0.0);
    let machine = SimulatedPlatform::open(&kernel, &disk, Path::new(UNDO_FILE)).expect("opens again");
    machine.close().expect("closes");
    assert_eq!(kernel.leftover_objects(), Vec::<String>::new());
}

/// While carnet forwards, an operator turns forwarding on or off for an interface, for new interfaces or for
/// all. Interfaces appear meanwhile. At its end, carnet must leave the operator's values.
#[test]
fn setting_changed_by_operator_meanwhile_stays() {
    for (is_killed, before, after) in
        [(false, "1", "0"), (true, "1", "0"), (false, "0", "0"), (true, "0", "0"), (false, "1", "1")]
    {
        let (kernel, disk, mut machine) = new_platform(7);
        kernel.set_setting("i0", "forwarding", before);
        kernel.set_setting("default", "forwarding", before);
        for entry in one_entry_of_each_kind() {
            machine.apply_change(&EntryChange::Set(entry)).expect("there");
        }
        kernel.set_setting("i0", "forwarding", after);
        kernel.add_link("i1");
        machine.poll_events().expect("looks");
        end_process(machine, &kernel, &disk, is_killed);
        let left = kernel.leftover_objects();
        assert!(left.is_empty(), "killed {is_killed}, {before} before, {after} meanwhile: {left:#?}");
    }
}

/// carnet needs a setting again while its restoration is not complete. It must set the setting again.
#[test]
fn forwarding_turned_off_by_operator_stays_off_after_interrupted_restore() {
    let mut failures = 0;
    for seed in 0..100 {
        let (kernel, _, mut machine) = new_platform(seed);
        let all = one_entry_of_each_kind()[1].clone();
        kernel.set_setting("i0", "forwarding", "1");
        machine.apply_change(&EntryChange::Set(all.clone())).expect("there");
        kernel.set_failure_probability(0.5);
        failures += u32::from(machine.apply_change(&EntryChange::Remove(all.clone())).is_err());
        kernel.set_failure_probability(0.0);
        machine.apply_change(&EntryChange::Set(all)).expect("there again");
        kernel.set_setting("all", "forwarding", "0");
        machine.close().expect("closes");
        let left = kernel.leftover_objects();
        assert!(left.is_empty(), "{seed}: {left:#?}");
    }
    assert!(failures > 20, "{failures}");
}

/// Before Linux 5.18 an address has no mark of carnet, so the undo file must list each address that carnet
/// has added.
#[test]
fn unmarked_address_is_recognised_by_undo_file() {
    let address = &one_entry_of_each_kind()[3];
    let longer = |length| {
        let ForwardingEntry::Address(it) = &**address else { panic!("an address") };
        Arc::new(ForwardingEntry::Address(InterfaceAddress { prefix_length: length, ..it.clone() }))
    };
    for is_killed in [true, false] {
        for refuses in [true, false] {
            let (kernel, disk, mut machine) = new_platform(4);
            kernel.store_no_address_protocols();
            machine.apply_change(&EntryChange::Set(address.clone())).expect("added");
            // The kernel refuses to remove the address. After that, carnet needs the address again.
            kernel.set_failure_probability(if refuses { 1.0 } else { 0.0 });
            let _ = machine.apply_change(&EntryChange::Remove(address.clone()));
            kernel.set_failure_probability(0.0);
            machine.apply_change(&EntryChange::Set(address.clone())).expect("there");
            machine.apply_change(&EntryChange::Set(longer(128))).expect("another length");
            machine.apply_change(&EntryChange::Set(longer(64))).expect("and back");
            assert_eq!(machine.differences(), Vec::<String>::new());
            end_process(machine, &kernel, &disk, is_killed);
            let left = kernel.leftover_objects();
            assert!(left.is_empty(), "killed {is_killed}, refused {refuses}: {left:#?}");
        }
    }
}

/// After a power cut the disk has some of the first writes since the last sync, and no later writes.
#[test]
fn simulated_disk_keeps_synced_data_after_crash() {
    use crate::disk::Disk;
    let mut whole = [false; 2];
    for seed in 0..50 {
        let disk = SimulatedDisk::new(Rng::new(seed));
        let path = Path::new("/state");
        let file = disk.create(path).expect("made");
        file.write_at(b"kept", 0).expect("written");
        file.sync_data().expect("kept");
        disk.sync_directory(Path::new("/")).expect("kept");
        file.write_at(b" and lost", 4).expect("written");
        assert_eq!(file.read_all().expect("read"), b"kept and lost");
        let found = disk.after_power_cut().read(path).expect("read").expect("there");
        assert!(b"kept and lost".starts_with(&found) && found.len() >= 4, "{found:?}");
        whole[usize::from(found.len() == 13)] = true;
        disk.set_failure_probability(true, 0.0);
        let full = file.write_at(b"more", 13).expect_err("full");
        assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    }
    assert_eq!(whole, [true; 2]);
}
