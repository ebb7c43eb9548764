//! Compares clamped packets with packets that scapy builds with the lower value, octet for octet.

#![allow(clippy::disallowed_methods, reason = "a test may ask its environment which tools there are")]

use std::process::Command;

use carnet_nemo::forwarding::mss;

/// Script that prints a line for each packet: the MTU, the packet, and the expected result.
const SCAPY_SCRIPT: &str = r#"
from scapy.all import *
import random
random.seed(5)
def build(mss, flags, before, after, extension, data):
    options = before + ([("MSS", mss)] if mss is not None else []) + after
    packet = IPv6(src="2001:db8:a::5", dst="2001:db8:c::1")
    packet = packet / extension if extension is not None else packet
    random.seed(7)
    return raw(packet / TCP(sport=1234, dport=80, seq=99, flags=flags, options=options) / data)
extensions = [None, IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt(options=[PadN(optdata=b"x" * 12)])]
for flags in ["S", "SA", "A"]:
    for extension in extensions:
        for before in [[], [("NOP", None)], [("SAckOK", b"")], [("NOP", None), ("WScale", 7), ("NOP", None)]]:
            for after in [[], [("Timestamp", (1, 2))], [("WScale", 3)]]:
                for data in [b"", b"odd"]:
                    for value in [None, 1300, 1301, 1440, 65535]:
                        for mtu in [1240, 1360, 8960]:
                            low = value
                            if "S" in flags and value is not None:
                                low = min(value, mtu - 60)
                            one = build(value, flags, before, after, extension, data)
                            print(mtu, one.hex(), build(low, flags, before, after, extension, data).hex())
"#;

fn octets_of_hex(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn router_advertisement_equals_the_one_that_scapy_builds() {
    let python = std::env::var("CARNET_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".into());
    let found = Command::new(&python).args(["-c", "import scapy.all"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref() != Ok("1"), "scapy is needed");
        println!("\nSKIPPED: scapy is missing (Debian package python3-scapy)");
        return;
    }
    let output = Command::new(python).args(["-c", SCAPY_SCRIPT]).output().expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (mut count, mut lowered) = (0, 0);
    for line in String::from_utf8(output.stdout).expect("text").lines() {
        let mut fields = line.split(' ');
        let mut field = || fields.next().expect("three fields");
        let mtu = field().parse().expect("a number");
        let (before, expected) = (octets_of_hex(field()), octets_of_hex(field()));
        let mut after = before.clone();
        assert_eq!(mss::clamp_mss(&mut after, mtu), before != expected, "{mtu} {before:02x?}");
        assert_eq!(after, expected, "{mtu} {before:02x?}");
        count += 1;
        lowered += usize::from(before != expected);
    }
    assert!(count > 3_000 && lowered > 800, "{lowered} of {count}");
}
