//! The first inputs of the corpora of stories: the recorded cases and frames of the captures, in the format
//! of `carnet_fuzz::story`. `cargo test -p carnet-fuzz --test seeds -- --ignored` writes them into
//! `fuzz/corpus`. Run it when that format has changed.

#![allow(clippy::disallowed_methods, reason = "it writes files")]

use std::fs;
use std::path::{Path, PathBuf};

use carnet_base::LinkMessage;
use carnet_fuzz::story::{self, EventKind};
use carnet_settings::recording::{RecordedInput, RecordedInputs};
use carnet_station::io::Input;
use carnet_wire::geonet::{ShortPositionVector, set_destination};
use serde_json::Value;

/// Helpers that read the fixtures of the codec's tests.
mod common {
    pub fn parse_hex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
    }
}

#[path = "../../wire/tests/geonet/fixtures.rs"]
#[allow(dead_code, reason = "tests of the codec use more of it")]
mod fixtures;

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn write_corpus_file(target: &str, name: &str, octets: &[u8]) {
    let folder = repository_root().join("fuzz/corpus").join(target);
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(name), octets).expect("written");
}

/// Returns a recorded case as a story. If `signed` is true, the messages carry an authenticator, which the
/// target computes again with its own key.
fn story_from_recording(choice: u8, signed: bool, lines: impl Iterator<Item = RecordedInput>) -> Vec<u8> {
    let mut story = vec![choice];
    let mut before = 0;
    for line in lines {
        let now = line.time.as_nanos() / 1_000_000;
        let delay = story::encode_delay(now.saturating_sub(before));
        before = now.max(before);
        match line.input {
            Input::Timeout => story::append_event(&mut story, EventKind::Wait, 0, delay, &[]),
            Input::Packet(packet) => {
                let kind = if signed { EventKind::Signed } else { EventKind::Packet };
                story::append_event(&mut story, kind, 0, delay, &packet);
            }
            Input::Icmpv6(LinkMessage { interface, source, destination, hop_limit, message, .. }) => {
                let number = ["w0", "w1", "i0", "h0"].iter().position(|name| *name == interface).unwrap_or(0);
                let mut content = vec![number as u8, hop_limit];
                content.extend(source.octets().into_iter().chain(destination.octets()).chain(message));
                story::append_event(&mut story, EventKind::Icmpv6, 0, delay, &content);
            }
            other => {
                let text = serde_json::to_vec(&other).expect("an input is JSON");
                story::append_event(&mut story, EventKind::Input, 0, delay, &text);
            }
        }
    }
    story
}

#[test]
#[ignore = "writes into the sources"]
fn write_recorded_cases_as_corpus() {
    let configs = ["home-agent.toml", "home-link.toml", "ipv4.toml", "mobile-router.toml", "implicit.toml"];
    for standard in ["rfc3963", "rfc4285", "rfc5555", "rfc5648", "rfc6089", "rfc6275"] {
        for entry in
            fs::read_dir(repository_root().join("conformance/recorded").join(standard)).expect("cases")
        {
            let path = entry.expect("an entry").path();
            let Some(name) = path
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.strip_suffix(".in.jsonl"))
            else {
                continue;
            };
            let text = fs::read_to_string(&path).expect("a case");
            let head: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("a header");
            let config = head["config"].as_str().expect("the name of a config");
            let number = configs.iter().position(|known| *known == config).expect("a config of ours");
            let (target, choice) =
                if number < 3 { ("home_agent", number) } else { ("mobile_router", number - 3) };
            let (_, inputs) = RecordedInputs::open(&path).expect("a recording");
            let story = story_from_recording(
                choice as u8,
                standard == "rfc4285",
                inputs.map(|line| line.expect("an input")),
            );
            write_corpus_file(target, &format!("{standard}-{name}"), &story);
        }
    }
    // The story of a mobile router that registers, moves, loses packets that it sends, and leaves.
    for choice in 0..3 {
        let mut story = vec![choice];
        let arrives = |story: &mut Vec<u8>, count| {
            for _ in 0..count {
                story::append_event(story, EventKind::Deliver, 0, story::encode_delay(10), &[0, 0, 0, 0]);
            }
        };
        arrives(&mut story, 8);
        let away = br#"{"interface_gone":{"name":"w0"}}"#;
        story::append_event(&mut story, EventKind::Input, 0, story::encode_delay(4000), away);
        arrives(&mut story, 8);
        story::append_event(
            &mut story,
            EventKind::Deliver,
            0,
            story::encode_delay(10),
            &[story::packet_fate::LOST, 0, 0, 0],
        );
        story::append_event(&mut story, EventKind::Wait, 0, story::encode_delay(30_000), &[]);
        arrives(&mut story, 8);
        story::append_event(
            &mut story,
            EventKind::Input,
            0,
            story::encode_delay(1000),
            br#"{"command":"shutdown"}"#,
        );
        arrives(&mut story, 8);
        write_corpus_file("mobile_router", &format!("registers-{choice}"), &story);
        let mut drained = story.clone();
        story::append_event(
            &mut drained,
            EventKind::Input,
            1,
            0,
            br#"{"command":{"drain":{"to":[],"within_s":60}}}"#,
        );
        arrives(&mut drained, 8);
        write_corpus_file("mobile_router", &format!("drained-{choice}"), &drained);
    }
}

#[test]
#[ignore = "writes into the sources"]
fn write_geonetworking_frames_as_corpus() {
    let hears = |story: &mut Vec<u8>, packet: &[u8]| {
        let mut content = vec![2, 0, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        content.extend(packet);
        story::append_event(story, EventKind::Frame, 0, story::encode_delay(100), &content);
    };
    for (number, mut packet) in fixtures::all_packets().into_iter().enumerate() {
        let mut story = vec![0];
        hears(&mut story, &packet);
        // A packet to a single station gets the address of the fuzzed station as its destination.
        let to = ShortPositionVector { address: carnet_fuzz::stations::GN_ADDRESS, ..Default::default() };
        if set_destination(&mut packet, &to).is_ok() {
            hears(&mut story, &packet);
        }
        story::append_event(&mut story, EventKind::Deliver, 0, story::encode_delay(10), &[0, 0, 0, 0]);
        story::append_event(&mut story, EventKind::Wait, 0, story::encode_delay(2000), &[]);
        write_corpus_file("geonet_station", &format!("frame-{number:02}"), &story);
    }

    let wishes: [&str; 8] = [
        concat!(
            r#"{"geonet":{"transport":"single_hop","next_header":2,"traffic_class":0,"#,
            r#""store_carry_forward":false,"lifetime_ms":null,"hop_limit":null,"payload":"07d10000"}}"#
        ),
        concat!(
            r#"{"geonet":{"transport":{"geo_unicast":72620543991349250},"next_header":2,"traffic_class":0,"#,
            r#""store_carry_forward":true,"lifetime_ms":1000,"hop_limit":3,"payload":"002a0000c0ffee"}}"#
        ),
        concat!(
            r#"{"geonet":{"transport":{"geo_broadcast":{"shape":"circle","latitude":488375000,"#,
            r#""longitude":21008000,"distance_a":300,"distance_b":0,"angle":0}},"next_header":2,"#,
            r#""traffic_class":0,"store_carry_forward":true,"lifetime_ms":1000,"hop_limit":3,"#,
            r#""payload":"002a0000c0ffee"}}"#
        ),
        r#"{"virtual_addresses":{"link":1,"addresses":[["fe80::ff:fe00:1",64]]}}"#,
        r#"{"lan_addresses":{"interface":"i0","addresses":[["2001:db8:a::1",64]]}}"#,
        r#"{"channel_busy":600}"#,
        r#"{"command":"reset_geonet"}"#,
        concat!(
            r#"{"position":{"timestamp":1002000,"latitude":488375500,"longitude":21008100,"#,
            r#""accurate":true,"speed":600,"heading":950}}"#
        ),
    ];

    let mut story = vec![0];
    for wish in wishes {
        serde_json::from_str::<Input>(wish).unwrap_or_else(|error| panic!("{error}: {wish}"));
        story::append_event(&mut story, EventKind::Input, 0, story::encode_delay(300), wish.as_bytes());
        story::append_event(&mut story, EventKind::Deliver, 0, story::encode_delay(10), &[0, 0, 0, 0]);
        story::append_event(&mut story, EventKind::Deliver, 0, story::encode_delay(10), &[0, 0, 0, 0]);
    }
    write_corpus_file("geonet_station", "wishes", &story);
}

#[test]
#[ignore = "writes into the sources"]
fn write_signed_messages_as_corpus() {
    for number in 0..12_u8 {
        let mut story = vec![0];
        let mut arrives = |changes: &[u8]| {
            let content = [&[number], changes].concat();
            story::append_event(&mut story, EventKind::Deliver, 0, story::encode_delay(10), &content);
        };
        // Each packet arrives unchanged, a second time, with another hop limit, and with another payload.
        arrives(&[]);
        arrives(&[]);
        arrives(&[0, 3, 1]);
        arrives(&[0, 60, 1]);
        story::append_event(&mut story, EventKind::Wait, 0, story::encode_delay(4000), &[]);
        write_corpus_file("secured", &format!("sent-{number:02}"), &story);
    }
    for (number, packet) in fixtures::all_packets().into_iter().enumerate() {
        let mut story = vec![0];
        story::append_event(&mut story, EventKind::Frame, 0, story::encode_delay(10), &packet);
        write_corpus_file("secured", &format!("frame-{number:02}"), &story);
    }
}
