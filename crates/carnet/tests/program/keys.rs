//! Keys of RFC 4285 in a running station.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::hosts::{assert_same_state, can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CARE_OF_ADDRESSES, Testbed};

pub(crate) const OLD_KEY: &str = "auth = { spi = 300, key = '000102030405060708090a0b0c0d0e0f' }";
pub(crate) const NEW_AND_OLD_KEY: &str = "auth = { spi = 301, key = 'f0e1d2c3b4a5968778695a4b3c2d1e0f', \
                    former = [{ spi = 300, key = '000102030405060708090a0b0c0d0e0f' }] }";
pub(crate) const NEW_KEY: &str = "auth = { spi = 301, key = 'f0e1d2c3b4a5968778695a4b3c2d1e0f' }";

/// The operator follows the three steps of docs/operating.md to change the key, and then changes it back.
#[test]
fn a_key_is_changed_under_traffic_and_no_packet_is_lost() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (agent, router) = bed.start_stations();
    let traffic = bed.start_echo(1000);
    traffic.wait_for_further_answers();
    let before = (bed.agent.kernel_state(), bed.router.kernel_state());
    let bindings = agent.bindings();
    let acknowledged = || router.counter("mobility.received.binding_acknowledgement");
    for [first, both, last] in [[OLD_KEY, NEW_AND_OLD_KEY, NEW_KEY], [NEW_KEY, NEW_AND_OLD_KEY, OLD_KEY]] {
        let renew = |auth: &str| {
            let count = acknowledged();
            router.reload(&bed.router_config().replace(OLD_KEY, auth));
            wait_until("the registration is renewed", seconds(10), || acknowledged() > count);
        };
        agent.reload(&bed.agent_config().replace(OLD_KEY, both));
        renew(first);
        renew(last);
        agent.reload(&bed.agent_config().replace(OLD_KEY, last));
        renew(last);
    }
    assert_eq!(agent.bindings(), bindings);
    assert_same_state(&before.0, &bed.agent.kernel_state(), "after keys were changed, at the home agent");
    assert_same_state(&before.1, &bed.router.kernel_state(), "after keys were changed, at the mobile router");
    for reason in
        ["unknown_spi", "authentication_failed", "authentication_missing", "rate_limited", "refused"]
    {
        for station in [&agent, &router] {
            assert_eq!(station.counter(&format!("mobility.dropped.{reason}")), 0, "{reason}");
        }
    }
    let report = traffic.stop();
    assert_eq!(report.lost_packets, 0, "{report:?}");
    println!(
        "two changes of a key: {} packets, longest silence {:?}",
        report.sent_packets, report.longest_silence
    );

    // Control: the home agent has no node with the removed key any more, so it drops a message with that key.
    let unknown = agent.counter("mobility.dropped.unknown_spi");
    router.reload(&bed.router_config().replace(OLD_KEY, NEW_KEY));
    wait_until("it is not believed", seconds(10), || agent.counter("mobility.dropped.unknown_spi") > unknown);
    assert_eq!(agent.bindings()[0].1, CARE_OF_ADDRESSES[0], "the binding lasts for what is left of it");
}

/// Returns the areas of the station's writable memory that contain these octets. An attacker who controls the
/// process could read them there.
fn memory_areas_with(station: &Station, octets: &[u8]) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", station.pid())).expect("its maps");
    let memory = File::open(format!("/proc/{}/mem", station.pid())).expect("its memory");
    let mut places = Vec::new();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|mode| mode.starts_with("rw")))
    {
        let (begin, end) = line.split(' ').next().and_then(|place| place.split_once('-')).expect("a place");
        let address = |text| u64::from_str_radix(text, 16).expect("an address");
        let (begin, end) = (address(begin), address(end));
        // Mapped memory of a device may be unreadable.
        let mut content = vec![0; usize::try_from(end - begin).expect("a size")];
        if memory.read_exact_at(&mut content, begin).is_ok() {
            let windows = content.windows(octets.len()).enumerate().filter(|(_, window)| *window == octets);
            places.extend(windows.map(|(at, _)| format!("octet {at} of {line}")));
        }
    }
    places
}

/// Returns a key in two forms: as octets, and as the hexadecimal digits in the config.
fn key_representations(digits: &str) -> [Vec<u8>; 2] {
    let octet = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
    [(0..digits.len()).step_by(2).map(octet).collect(), digits.as_bytes().to_vec()]
}

/// A process has in its memory only the keys that it needs, and no copy of the config's text.
#[test]
fn a_key_is_in_memory_only_where_the_program_needs_it() {
    if !can_run_or_report() {
        return;
    }
    const FIRST_KEY: &str = "9f3a71c5d2e8460b97f1ac5e23d8b604";
    const SECOND_KEY: &str = "5be07d1398cf4a62e4b9731f06ad8c25";
    let bed = Testbed::new();
    let with = |config: String, key: &str| config.replace("000102030405060708090a0b0c0d0e0f", key);
    let agent = Station::start(&bed.agent, &with(bed.agent_config(), FIRST_KEY));
    let router = Station::start(&bed.router, &with(bed.router_config(), FIRST_KEY));
    router.wait_until_registered();
    let acknowledged = || router.counter("mobility.received.binding_acknowledgement");
    // A home agent has the key with which it verifies messages. A mobile router has two keys: the key of its
    // config, and a key for this home agent that it derives from the config's key.
    let expect = |key: &str, in_agent: usize, in_router: usize, changing: bool| {
        let [octets, digits] = key_representations(key);
        for (station, number) in [(&agent, in_agent), (&router, in_router)] {
            let (places, texts) = (memory_areas_with(station, &octets), memory_areas_with(station, &digits));
            // A node with two keys has a pointer to both keys. Besides these, the memory may contain a second
            // copy of one of them.
            let most = if changing { number.min(1) + number } else { number };
            let config = station.config_file.display();
            assert!(texts.is_empty(), "digits in {config}: {texts:#?}");
            assert!((number..=most).contains(&places.len()), "{config}: {places:#?}, expected {number}");
        }
    };
    expect(FIRST_KEY, 1, 2, false);

    let renew = |of_agent: &str, of_router: &str| {
        let before = acknowledged();
        agent.reload(&bed.agent_config().replace(OLD_KEY, of_agent));
        router.reload(&bed.router_config().replace(OLD_KEY, of_router));
        wait_until("the registration is renewed", seconds(10), || acknowledged() > before);
    };
    let first = format!("{{ spi = 300, key = '{FIRST_KEY}' }}");
    let second = format!("auth = {{ spi = 301, key = '{SECOND_KEY}'");
    renew(&format!("{second}, former = [{first}] }}"), &format!("{second} }}"));
    expect(FIRST_KEY, 1, 0, true);
    expect(SECOND_KEY, 1, 2, true);
    renew(&format!("{second} }}"), &format!("{second} }}"));
    expect(FIRST_KEY, 0, 0, false);
    expect(SECOND_KEY, 1, 2, false);

    // A process must not keep the key of a config that it has refused.
    let third = "c4d81e6f2b93507a1d8e64f0a7b2593c";
    let refused = bed.agent_config().replace(OLD_KEY, &format!("auth = {{ spi = 3, key = '{third}' }}"));
    agent.reload(&refused);
    assert!(agent.log_text().contains("cannot apply the changed config"), "{}", agent.log_text());
    expect(third, 0, 0, false);
}
