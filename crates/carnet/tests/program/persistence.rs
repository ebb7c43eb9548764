//! A binding that the home agent has acknowledged survives any end of the station. The home agent
//! acknowledges no binding that it cannot store.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv6Addr;
use std::time::Instant;

use carnet_mobility::{ReplayProtection, SecurityAssociation};
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::ipv6::protocol;
use carnet_wire::mobility::{
    BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder, MobilityOption, message_type,
};
use nix::sys::signal::Signal;

use crate::hosts::{assert_same_state, can_run_or_report, seconds, wait_for, wait_until};
use crate::station::{CARNET_PROGRAM, Station};
use crate::testbed::{HOME_AGENT_ADDRESS, Testbed, config_with_station_line, parse_address};
use crate::traffic::{PacketSniffer, RawSender};

/// Binding Acknowledgement status 135, "sequence number out of window" (RFC 6275 6.1.8).
const SEQUENCE_OUT_OF_WINDOW: u8 = 135;

fn security_association() -> SecurityAssociation {
    let key = std::array::from_fn(|index| index as u8);
    SecurityAssociation { spi: 300, key: key.into(), replay: ReplayProtection::Sequence }
}

fn home_address(number: u16) -> Ipv6Addr {
    parse_address(&format!("2001:db8:1::a:{number:x}"))
}

/// Returns an unused address of the core's links. The test captures the packets to it.
fn care_of_address(number: u16) -> Ipv6Addr {
    parse_address(&format!("2001:db8:f1::a:{number:x}"))
}

/// Returns the config of a home agent of `nodes` nodes, which all have the key of the testbed.
fn config_with_nodes(bed: &Testbed, nodes: u16) -> String {
    let tables = (0..nodes).map(|number| {
        format!(
            "\n[[home_agent.mobile_router]]\nhome_address = '{}'\nauth = {{ spi = 300, key = \
             '000102030405060708090a0b0c0d0e0f' }}\n",
            home_address(number)
        )
    });
    let directory = format!("state_dir = '{}'", bed.scratch.path_of("state").display());
    config_with_station_line(&bed.agent_config(), &directory) + &tables.collect::<String>()
}

/// Returns a Binding Update of a node.
fn binding_update(number: u16, sequence: u16) -> Vec<u8> {
    let flags = BindingUpdateFlags { acknowledge: true, home_registration: true, ..Default::default() };
    let mut mobility_header = MobilityHeaderBuilder::binding_update(sequence, flags, 100)
        .option(&MobilityOption::AlternateCareOfAddress(care_of_address(number)))
        .option(&security_association().empty_authentication_option())
        .finish();
    security_association().sign(&mut mobility_header, care_of_address(number), home_address(number));
    ControlPacket {
        source: care_of_address(number),
        destination: parse_address(HOME_AGENT_ADDRESS),
        hop_limit: 64,
        home_address: Some(home_address(number)),
        routing_home_address: None,
        mobility_header: &mut mobility_header,
    }
    .emit()
}

/// Returns care-of address, status and sequence number of each Binding Acknowledgement among the packets.
fn read_acknowledgements(packets: &[Vec<u8>]) -> Vec<(Ipv6Addr, u8, u16)> {
    let read = |packet: &Vec<u8>| {
        let found = ExtensionHeaders::parse(packet).ok().filter(|it| it.protocol == protocol::MOBILITY)?;
        let header = packet.get(found.upper_layer_offset..found.upper_layer_offset + 12)?;
        let destination: [u8; 16] = packet[24..40].try_into().ok()?;
        (header[2] == message_type::BINDING_ACKNOWLEDGEMENT)
            .then(|| (destination.into(), header[6], u16::from_be_bytes([header[8], header[9]])))
    };
    packets.iter().filter_map(read).collect()
}

/// Returns the sequence numbers of the home agent's bindings, by home address.
fn sequence_numbers(agent: &Station) -> BTreeMap<Ipv6Addr, u16> {
    let bindings = agent.show_json("bindings");
    let one = |binding: &serde_json::Value| {
        let home_address = binding["home_address"].as_str()?.parse().ok()?;
        Some((home_address, u16::try_from(binding["sequence"].as_u64()?).ok()?))
    };
    bindings.as_array().expect("an array").iter().filter_map(one).collect()
}

/// Returns the content of each file in the state directory.
fn stored_files(bed: &Testbed) -> Vec<Vec<u8>> {
    let files = fs::read_dir(bed.scratch.path_of("state")).expect("a state directory");
    files.filter_map(|file| fs::read(file.ok()?.path()).ok()).collect()
}

/// A recorded Binding Update must be refused after the config has lacked its node, or the whole home agent,
/// for some time. The test changes the config by reloads, restarts and kills. If the home agent has run
/// without the node, the node's binding is gone.
#[test]
fn recorded_update_is_refused_after_node_returns_to_config() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (with, without) = (config_with_nodes(&bed, 2), config_with_nodes(&bed, 1));
    let (station, _) = with.split_once("\n[home_agent]").expect("a home agent");
    let router = bed.router_config();
    let (_, router) = router.split_once("\n[mobile_router]").expect("a mobile router");
    let router = format!("{station}\n[mobile_router]{router}");
    let cannon = RawSender::new(&bed.core);
    let answer = |sequence: u16| {
        let sniffer = PacketSniffer::start(&bed.core, &["ha"]);
        let packet = binding_update(1, sequence);
        // The home agent may refuse a repeated update while the original has not been stored and
        // acknowledged, so wait between two attempts.
        let mut again = Instant::now();
        let status = wait_for("an answer", seconds(10), || {
            if again <= Instant::now() {
                cannon.send_packet(&packet, parse_address(HOME_AGENT_ADDRESS), 0);
                again = Instant::now() + seconds(3);
            }
            let answers = read_acknowledgements(&sniffer.seen_packets());
            answers.iter().find(|answer| answer.2 >= sequence).map(|answer| (answer.1, answer.2))
        });
        sniffer.stop();
        status
    };
    let mut agent = Station::start(&bed.agent, &with);
    let mut sequence = 10;
    // The config changes by a reload, or while the station is down after a kill.
    for (number, way) in [
        &[(&without, true), (&without, false), (&without, false), (&with, false)][..],
        &[(&without, false), (&router, false), (&without, true), (&with, false)],
        &[(&router, true), (&with, true)],
        &[(&router, true), (&with, false)],
        &[(&router, false), (&with, true)],
        &[(&router, true), (&without, true), (&with, false)],
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(answer(sequence), (0, sequence));
        assert_eq!(answer(sequence + 1), (0, sequence + 1));
        for (config, by_reload) in way {
            if *by_reload {
                let before = stored_files(&bed);
                agent.reload(config);
                // The next step may be a kill, so wait until the end of the binding is on the disk.
                if **config == without {
                    wait_until("the end of the binding is stored", seconds(10), || {
                        stored_files(&bed) != before
                    });
                }
            } else {
                agent.end_by_signal(Signal::SIGKILL);
                agent = Station::start(&bed.agent, config);
            }
        }
        assert_eq!(answer(sequence), (SEQUENCE_OUT_OF_WINDOW, sequence + 1), "way {number}");
        let is_bound = !way.iter().any(|(config, _)| **config == without);
        assert_eq!(sequence_numbers(&agent).contains_key(&home_address(1)), is_bound, "way {number}");
        sequence += 10;
    }
    agent.end_by_signal(Signal::SIGTERM);
}

/// The station is killed (kill -9) three times in the middle of many registrations. After each kill, every
/// acknowledged binding is there with its sequence number, and the home agent refuses replays of accepted
/// updates.
#[test]
fn a_crash_loses_no_acknowledged_binding() {
    const NODE_COUNT: u16 = 100;
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let config = config_with_nodes(&bed, NODE_COUNT);
    let cannon = RawSender::new(&bed.core);
    let fire = |packet: &[u8]| cannon.send_packet(packet, parse_address(HOME_AGENT_ADDRESS), 0);
    let mut sequence = 0;
    for round in 0..3 {
        let mut agent = Station::start(&bed.agent, &config);
        let sniffer = PacketSniffer::start(&bed.core, &["ha"]);
        // The loop ends when many updates have an answer, so that the kill interrupts further updates.
        let enough = usize::from(NODE_COUNT) * (1 + round);
        wait_for("acknowledgements", seconds(30), || {
            sequence += 1;
            for number in 0..NODE_COUNT {
                fire(&binding_update(number, sequence));
            }
            (read_acknowledgements(&sniffer.seen_packets()).len() >= enough).then_some(())
        });
        sequence += 1;
        for number in 0..NODE_COUNT {
            fire(&binding_update(number, sequence));
        }
        agent.end_by_signal(Signal::SIGKILL);
        let mut acknowledged = BTreeMap::new();
        for (destination, status, number) in read_acknowledgements(&sniffer.stop()) {
            assert_eq!(status, 0, "of {destination}");
            let last = acknowledged.entry(destination).or_insert(number);
            *last = number.max(*last);
        }
        assert_eq!(acknowledged.len(), usize::from(NODE_COUNT));

        let mut agent = Station::start(&bed.agent, &config);
        let found = sequence_numbers(&agent);
        for number in 0..NODE_COUNT {
            let (promised, there) =
                (acknowledged[&care_of_address(number)], found.get(&home_address(number)).copied());
            assert!(there >= Some(promised), "{}: {there:?}, acknowledged {promised}", home_address(number));
        }
        let sniffer = PacketSniffer::start(&bed.core, &["ha"]);
        wait_for("an answer to what is sent again", seconds(10), || {
            fire(&binding_update(7, acknowledged[&care_of_address(7)]));
            read_acknowledgements(&sniffer.seen_packets())
                .first()
                .map(|answer| assert_eq!(answer.1, SEQUENCE_OUT_OF_WINDOW))
        });
        sniffer.stop();
        agent.end_by_signal(Signal::SIGKILL);
    }
}

/// A full disk: the home agent acknowledges no binding that it cannot store. It logs this once, and continues
/// when the disk has room again.
#[test]
fn a_full_disk_is_logged_and_no_update_is_acknowledged_until_it_has_space() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let directory = bed.scratch.path_of("state");
    fs::create_dir_all(&directory).expect("a directory");
    // The state file is on a small file system that contains nothing else. The test then fills this file
    // system.
    let script = format!(
        "mount -t tmpfs -o size=12k tmpfs {0} && head -c 8192 /dev/zero > {0}/filler && exec \"$@\"",
        directory.display()
    );
    let wrapper = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    let mut agent = Station::start_wrapped(&bed.agent, &config_with_nodes(&bed, 1), &wrapper, CARNET_PROGRAM);
    let (cannon, sniffer) = (RawSender::new(&bed.core), PacketSniffer::start(&bed.core, &["ha"]));
    let mut sequence = 0;
    let complaint = "acknowledges no registration until it can: No space left on device";
    wait_until("the disk to be full", seconds(30), || {
        sequence += 1;
        cannon.send_packet(&binding_update(0, sequence), parse_address(HOME_AGENT_ADDRESS), 0);
        agent.log_text().contains(complaint)
    });
    let last = || {
        read_acknowledgements(&sniffer.seen_packets()).iter().map(|answer| answer.2).max().unwrap_or_default()
    };
    let before = last();
    assert!(before > 0 && before < sequence, "{before} of {sequence}");
    sequence += 1;
    cannon.send_packet(&binding_update(0, sequence), parse_address(HOME_AGENT_ADDRESS), 0);
    std::thread::sleep(seconds(3));
    assert_eq!(last(), before, "acknowledged what is not on the disk");
    assert_eq!(agent.log_text().matches(complaint).count(), 1, "{}", agent.log_text());
    let inside = format!("/proc/{}/root{}/filler", agent.pid(), directory.display());
    fs::remove_file(inside).expect("the filler");
    wait_until("the acknowledgement", seconds(10), || last() == sequence);
    assert!(agent.log_text().contains("the state is being written again"), "{}", agent.log_text());
    agent.terminate();
}

#[test]
fn a_station_does_not_start_with_a_part_of_its_state() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let config = config_with_nodes(&bed, 3);
    let mut agent = Station::start(&bed.agent, &config);
    let (cannon, sniffer) = (RawSender::new(&bed.core), PacketSniffer::start(&bed.core, &["ha"]));
    for sequence in 1..=3 {
        wait_for("an acknowledgement", seconds(10), || {
            cannon.send_packet(&binding_update(sequence % 3, sequence), parse_address(HOME_AGENT_ADDRESS), 0);
            let answers = read_acknowledgements(&sniffer.seen_packets());
            answers.iter().any(|answer| answer.2 == sequence).then_some(())
        });
    }
    agent.terminate();
    let path = bed.scratch.path_of("state/agent.state");
    let whole = fs::read(&path).expect("the state");
    let before = bed.agent.kernel_state();
    let mut damaged = whole.clone();
    let at = whole.len() / 2;
    damaged[at] ^= 0x10;
    fs::write(&path, &damaged).expect("writes");
    let mut station = Station::spawn_without_wait(&bed.agent, &config, &[], CARNET_PROGRAM);
    let end = station.wait_for_end(Instant::now());
    assert_eq!(end.status.code(), Some(1), "{}", station.log_text());
    for words in ["agent.state cannot be used", "does not start with a part of it", "are damaged"] {
        assert!(station.log_text().contains(words), "{}", station.log_text());
    }
    assert_same_state(&before, &bed.agent.kernel_state(), "after a start that failed");
    // An incomplete commit at the end of the file is no damage: the station starts, and reports the
    // truncation.
    fs::write(&path, [&whole[..], b"@ 300 0badc0de\n2001:db8:1::a:1 {\"home_add"].concat()).expect("writes");
    let mut agent = Station::start(&bed.agent, &config);
    assert_eq!(sequence_numbers(&agent).len(), 3);
    assert!(agent.log_text().contains("of a commit that a crash interrupted"), "{}", agent.log_text());
    agent.terminate();
}

/// Measures the number of acknowledged registrations a second, first with the state on the disk, and then
/// without. For useful results set CARNET_RELEASE_BINARY=target/release/carnet.
#[test]
fn thousand_simultaneous_registrations_are_stored() {
    const NODE_COUNT: u16 = 1000;
    if !can_run_or_report() {
        return;
    }
    let program = std::env::var("CARNET_RELEASE_BINARY").unwrap_or(CARNET_PROGRAM.to_owned());
    for kept in [false, true] {
        let bed = Testbed::new();
        let config = config_with_nodes(&bed, NODE_COUNT);
        let line = config.lines().find(|line| line.starts_with("state_dir")).expect("the line").to_owned();
        let config = if kept { config } else { config.replace(&line, "") };
        let mut agent = Station::start_wrapped(&bed.agent, &config, &[], &program);
        let (cannon, sniffer) = (RawSender::new(&bed.core), PacketSniffer::start(&bed.core, &["ha"]));
        let updates: Vec<Vec<u8>> = (0..NODE_COUNT).map(|number| binding_update(number, 1)).collect();
        let start = Instant::now();
        let mut took = None;
        wait_for("all acknowledgements", seconds(60), || {
            // A node without an answer sends its update again, as a router does.
            let answered: Vec<Ipv6Addr> =
                read_acknowledgements(&sniffer.seen_packets()).iter().map(|answer| answer.0).collect();
            if answered.len() >= usize::from(NODE_COUNT) {
                return Some(());
            }
            for (number, update) in (0..).zip(&updates) {
                if took.is_none() || !answered.contains(&care_of_address(number)) {
                    cannon.send_packet(update, parse_address(HOME_AGENT_ADDRESS), 0);
                }
            }
            took = Some(start.elapsed());
            let until = Instant::now() + seconds(1);
            while sniffer.packet_count() < usize::from(NODE_COUNT) && Instant::now() < until {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            took = Some(start.elapsed());
            None
        });
        let took = took.unwrap_or_default();
        println!(
            "{NODE_COUNT} registrations at once, {}: {took:?}, {:.0} a second",
            if kept { "kept on disk" } else { "not kept" },
            f64::from(NODE_COUNT) / took.as_secs_f64()
        );
        assert_eq!(sequence_numbers(&agent).len(), usize::from(NODE_COUNT));
        agent.terminate();
    }
}
