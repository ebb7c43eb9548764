//! Tests of printed tables.

mod geonet;

use serde_json::json;

use super::*;

fn show_table(table: Table, answer: Value, width: Option<usize>) -> String {
    format_answer(table, answer, width).expect("a table")
}

fn two_bindings() -> Value {
    json!([
        {"role": "home_agent", "home_address": "2001:db8:1::1234", "care_of_address": "2001:db8:f::7",
         "stay_s": 93_784, "bid": null, "prefixes": ["2001:db8:a::/64", "2001:db8:b::/\
             64"], "state": "registered",
         "lifetime_s": 60, "remaining_s": 57, "sequence": 7, "added_later": true},
        {"role": "home_agent", "home_address": "2001:db8:1::5", "care_of_address": null,
         "bid": null, "prefixes": [], "state": "at_home", "lifetime_s": 0, "remaining_s": 0,
         "sequence": 65535},
    ])
}

#[test]
fn show_bindings_prints_a_table() {
    let expected = "\
HOME ADDRESS      CARE-OF ADDRESS  FOR    PREFIXES                         STATE       LEFT        SEQUENCE
2001:db8:1::1234  2001:db8:f::7    1d 2h  2001:db8:a::/64 2001:db8:b::/64  registered  57 of 60 s  7
2001:db8:1::5     -                -      -                                at home     0 of 0 s    65535
";
    assert_eq!(show_table(Table::Bindings, two_bindings(), None), expected);
    // The table needs 107 columns. If the terminal has fewer, the table leaves out the sequence number and
    // needs 97.
    assert_eq!(show_table(Table::Bindings, two_bindings(), Some(107)), expected);
    let narrow = "\
HOME ADDRESS      CARE-OF ADDRESS  FOR    PREFIXES                         STATE       LEFT
2001:db8:1::1234  2001:db8:f::7    1d 2h  2001:db8:a::/64 2001:db8:b::/64  registered  57 of 60 s
2001:db8:1::5     -                -      -                                at home     0 of 0 s
";
    assert_eq!(show_table(Table::Bindings, two_bindings(), Some(106)), narrow);
    assert_eq!(show_table(Table::Bindings, two_bindings(), Some(97)), narrow);
}

#[test]
fn show_bindings_fits_a_narrow_terminal() {
    let expected = "\
home address     2001:db8:1::1234
care-of address  2001:db8:f::7
for              1d 2h
prefixes         2001:db8:a::/64 2001:db8:b::/64
state            registered
left             57 of 60 s
sequence         7

home address     2001:db8:1::5
care-of address  -
for              -
prefixes         -
state            at home
left             0 of 0 s
sequence         65535
";
    assert_eq!(show_table(Table::Bindings, two_bindings(), Some(96)), expected);
}

#[test]
fn show_names_the_role_of_each_binding_of_a_station_with_both_roles() {
    let mut bindings = two_bindings();
    bindings[1]["role"] = json!("mobile_router");
    let text = show_table(Table::Bindings, bindings, None);
    let starts: Vec<&str> = text.lines().map(|line| &line[..15]).collect();
    assert_eq!(starts, ["ROLE           ", "home agent     ", "mobile router  "]);
}

#[test]
fn show_uplinks_prints_a_table() {
    let uplink = |interface: &str, active: bool, signal: Value, used: Value, volume: Value| {
        json!({"interface": interface, "state": "registered", "care_of_address": "2001:db8:f::7", "bid": null,
               "priority": 10, "signal_dbm": signal, "rtt_ms": 12.34, "loss": 0.005, "active": active,
               "capacity_kbit_s": if active { json!(48_500) } else { json!(900) },
               "volume_used": used, "volume": volume, "volume_period": "month"})
    };
    assert_eq!(
        show_table(
            Table::Uplinks,
            json!([
                uplink("wlan0", true, json!(-61), json!(999), Value::Null),
                uplink("wwan0", false, Value::Null, json!(1_234_567_890), json!(5_000_000_000_u64)),
                uplink("wwan1", false, Value::Null, Value::Null, json!(2000)),
            ]),
            None
        ),
        "\
UPLINK   STATE       CARE-OF ADDRESS  PRIORITY  SIGNAL   RTT      LOSS   CAPACITY     VOLUME
wlan0 *  registered  2001:db8:f::7    10        -61 dBm  12.3 ms  0.5 %  48.5 Mbit/s  999 B this month
wwan0    registered  2001:db8:f::7    10        -        12.3 ms  0.5 %  900 kbit/s   1.2 GB of 5.0 GB this \
month
wwan1    registered  2001:db8:f::7    10        -        12.3 ms  0.5 %  900 kbit/s   -
"
    );
}

#[test]
fn a_silent_uplink_shows_the_time_of_its_next_attempt() {
    let uplink = |interface: &str, state: &str, retry: Value| {
        json!({"interface": interface, "state": state, "retry_s": retry, "care_of_address": null, "bid": null,
               "priority": 10, "signal_dbm": null, "rtt_ms": null, "loss": null, "active": false})
    };
    let full = |mut uplink: Value| {
        uplink["full"] = json!(true);
        uplink
    };
    assert_eq!(
        show_table(
            Table::Uplinks,
            json!([
                uplink("w0", "silent", json!(40)),
                uplink("w1", "silent", Value::Null),
                uplink("w2", "registering", Value::Null),
                uplink("w3", "down: no carrier", Value::Null),
                full(uplink("w4", "active", Value::Null)),
                uplink("w5", "refused: wrong key (status 146)", json!(8)),
            ]),
            None
        ),
        "\
UPLINK  STATE                                          PRIORITY
w0      no answer, again in 40 s                       10
w1      no answer                                      10
w2      registering                                    10
w3      down: no carrier                               10
w4      full                                           10
w5      refused: wrong key (status 146), again in 8 s  10
"
    );
    let mut with_router = uplink("w0", "silent", json!(40));
    with_router["silent_router"] = json!("fe80::1");
    assert_eq!(
        show_table(Table::Uplinks, json!([with_router]), None),
        "\
UPLINK  STATE                           PRIORITY
w0      router fe80::1 does not answer  10
"
    );
}

#[test]
fn show_uplinks_names_each_obstacle_of_the_machine_once() {
    let uplink = |interface: &str| {
        json!({"interface": interface, "state": "silent", "retry_s": null, "care_of_address": null, "bi\
            d": null,
               "priority": 10, "signal_dbm": null, "rtt_ms": null, "loss": null, "active": false,
               "obstacle": "x is 0, 1 is needed"})
    };
    assert_eq!(
        show_table(Table::Uplinks, json!([uplink("w0"), uplink("w1")]), None),
        "\
UPLINK  STATE      PRIORITY
w0      no answer  10
w1      no answer  10

on this machine: x is 0, 1 is needed
"
    );
}

#[test]
fn show_uplinks_prints_the_host_with_access_to_a_captive_portal() {
    let uplink = |dns: Value| {
        json!({"interface": "w0", "state": "silent", "retry_s": null, "care_of_address": null, "bid": null,
               "priority": 10, "signal_dbm": null, "rtt_ms": null, "loss": null, "active": false,
               "portal_access": {"host": "02:00:00:00:00:09", "interface": "i0", "dns": dns,
                                 "remaining_s": 290}})
    };
    let servers = [(json!(["192.0.2.53", "2001:db8::53"]), "192.0.2.53 2001:db8::53"), (json!([]), "-")];
    for (dns, text) in servers {
        let expected = format!(
            "\
UPLINK  STATE      PRIORITY
w0      no answer  10

w0: host 02:00:00:00:00:09 at i0 has access to the captive portal for 4m 50s, DNS at {text}
"
        );
        assert_eq!(show_table(Table::Uplinks, json!([uplink(dns)]), None), expected);
    }
}

#[test]
fn show_policies_prints_selectors_and_uplinks() {
    let policy = |name: &str, wanted: Value, takes: Value, home_agent: &str| {
        json!({"name": name, "action": "failover", "selectors": 1, "uplinks": ["w1", "w0"], "wanted_uplin\
            k": wanted,
               "takes": takes, "home_agent": home_agent})
    };
    assert_eq!(
        show_table(
            Table::Policies,
            json!([
                policy("voice", json!("w2"), json!(["w2"]), "agreed"),
                policy("bulk", Value::Null, json!([]), "unknown"),
            ]),
            None
        ),
        "\
POLICY  ACTION    UPLINKS  ASKED FOR  TAKES      HOME AGENT
voice   failover  w1 w0    w2         w2         agreed
bulk    failover  w1 w0    -          as others  knows no flows
"
    );
}

#[test]
fn show_tunnels_and_counters_print_tables() {
    assert_eq!(
        show_table(
            Table::Tunnels,
            json!([
                {"home_address": "2001:db8:1::5",
                 "local": "2001:db8:f::7", "remote": "2001:db8:1::1", "encapsulation": "ipv6", "mtu": 1460,
                 "path": "tun", "packets_in": 12, "octets_in": 3456, "packets_out": 7, "octets_out": 890},
                {"local": "10.0.0.2", "remote": "192.0.2.1", "remote_port": 4191, "encapsulation": "udp",
                 "bid": 2, "mtu": 1472, "path": "tun"}
            ]),
            Some(120)
        ),
        "\
HOME ADDRESS   LOCAL          REMOTE          BID  ENCAPSULATION  MTU   PATH  PACKETS IN (OCTETS)  PACKETS \
OUT (OCTETS)
2001:db8:1::5  2001:db8:f::7  2001:db8:1::1   -    ipv6           1460  tun   12 (3456)            7 (890)
-              10.0.0.2       192.0.2.1:4191  2    udp            1472  tun   0 (0)                0 (0)
"
    );
    assert_eq!(
        show_table(
            Table::Counters,
            json!({"tunnel.encapsulated": 12345, "mobility.dropped.bad_mac": 7}),
            Some(20)
        ),
        "\
mobility.dropped.bad_mac      7
tunnel.encapsulated       12345
"
    );
}

#[test]
fn show_routes_prints_path_and_reason() {
    assert_eq!(
        show_table(
            Table::Routes,
            json!([
                {"prefix": "2001:db8:b::/\
                            64", "path": "direct", "interface": "gn0", "station": "02:00:00:00:00:0b",
                 "next_hop": "fe80::ff:fe00:b", "rtt_ms": 2.34, "age_s": 63.5, "reason": "reached straight"},
                {"prefix": "::/0", "path": "home_agent", "interface": "wwan0", "station": null,
                 "next_hop": "2001:db8:1::1", "rtt_ms": null, "age_s": null, "reason": "registered"}
            ]),
            Some(130)
        ),
        "\
NETWORK          PATH        INTERFACE  STATION            NEXT HOP         RTT     FOR    WHY
2001:db8:b::/64  direct      gn0        02:00:00:00:00:0b  fe80::ff:fe00:b  2.3 ms  1m 3s  reached straight
::/0             home agent  wwan0      -                  2001:db8:1::1    -       -      registered
"
    );
}

#[test]
fn empty_tables_print_a_sentence() {
    for (what, text) in [
        (Table::Bindings, "no bindings\n"),
        (Table::Uplinks, "no uplinks\n"),
        (Table::Tunnels, "no tunnels\n"),
        (Table::Routes, "no routes\n"),
        (Table::Policies, "no policies\n"),
    ] {
        assert_eq!(show_table(what, json!([]), None), text);
    }
    assert_eq!(show_table(Table::Counters, json!({}), None), "no counters\n");
    assert_eq!(
        show_table(
            Table::Keys,
            json!({"public_keys": ["B=", "A="], "missing": ["mobile router 2001:db8::5"]}),
            None
        ),
        "key      B=\nold key  A=\nmissing  mobile router 2001:db8::5\n"
    );
    assert!(format_answer(Table::Bindings, json!([{"state": "x"}]), None).is_err());
}

#[test]
fn status_prints_role_state_and_addresses() {
    let answer = json!({
        "name": "bus-42", "version": "0.1.0", "uptime_s": 93784.9, "roles": ["mobile_router", "home_agent"],
        "dataplane": "tun", "dataplane_loading": "bpf",
        "mobile_router": {"state": "at_home", "home_address": "2001:db8:1::1234", "home_agent": "2001:db8:1::\
            1",
                          "care_of_address": null, "uplink": "wlan0", "wanted_uplink": "wlan0",
                          "care_of_addresses": ["2001:db8:f::7", "10.0.0.2"], "prefixes": ["2001:db8:a::/64"],
                          "lan": [{"interface": "lan0", "state": "up", "inbound": "any"},
                                  {"interface": "lan1", "state": "up", "inbound": "established",
                                   "closed": "no nf_tables"},
                                  {"interface": "lan7", "state": "no_such_interface"}],
                          "moved_policies": {"voice": "wwan0"}},
        "home_agent": {"address": "2001:db8:2::1", "bindings": 3,
                       "keys_to_change": ["2001:db8:1::5"],
                       "nat": [{"family": "ipv4", "interface": "eth0", "in_force": true, "failure": null,
                                "translated": {"packets_out": 7, "octets_out": 700, "packets_in": 5,
                                               "octets_in": 5000}},
                               {"family": "ipv6", "interface": "eth0", "in_force": false,
                                "failure": "no nf_tables",
                                "translated": {"packets_out": 0, "octets_out": 0, "packets_in": 0,
                                               "octets_in": 0}}],
                       "ndp_proxy": {"interface": "eth0", "state": "up", "addresses": 4, "prefixes": 3,
                                     "answered": 9, "refused": 1}},
        "sandbox": {"capabilities": ["CAP_NET_ADMIN", "CAP_NET_RAW"], "landlock": null, "seccomp": true,
                    "lacking": ["no Landlock here"]},
        "obstacles": ["x is 0, 1 is needed; this station restores it in 2 s"],
    });
    let uplink = |interface: &str, state: &str, retry_s: Value| {
        json!({"interface": interface, "state": state, "retry_s": retry_s, "care_of_address": null, "bi\
            d": null,
               "priority": 10, "signal_dbm": null, "rtt_ms": null, "loss": null, "active": false})
    };
    let mut behind_portal = uplink("wlan1", "silent", json!(7));
    behind_portal["captive_portal"] = json!("https://portal.example/");
    let uplinks = json!([
        behind_portal,
        uplink("wlan0", "home", json!(null)),
        uplink("wwan0", "silent", json!(7)),
        uplink("wwan1", "silent", json!(0)),
        uplink("wwan2", "down: the volume is used up", json!(null)),
    ]);
    assert_eq!(
        format_status(answer, uplinks).expect("a status"),
        "\
station           bus-42, carnet 0.1.0
up                1d 2h 3m 4s
dataplane         tun while bpf is being loaded
mobile router     at home
  home address    2001:db8:1::1234
  prefixes        2001:db8:a::/64
  lan             lan0, open to packets from outside
  lan             lan1, gets no packets from others: no nf_tables
  lan             lan7: no such interface
  home agent      2001:db8:1::1
  care-of address 2001:db8:f::7 10.0.0.2
  uplink          wlan0
    wlan1         no answer, captive portal https://portal.example/
    wlan0         home
    wwan0         no answer, again in 7 s
    wwan1         no answer, trying again now
    wwan2         down: the volume is used up
  asked for       wlan0
  asked for       wwan0 for policy voice
home agent        2001:db8:2::1
  bindings        3
  NAT of IPv4     eth0, in force, 7 packets (700 octets) out, 5 (5000) in
  NAT of IPv6     eth0, not in force: no nf_tables, 0 packets (0 octets) out, 0 (0) in
  ndp proxy       eth0 up, 4 addresses and 3 prefixes, 9 answers, 1 refused
  key to change   2001:db8:1::5 has few sequence numbers left
in the way        x is 0, 1 is needed; this station restores it in 2 s
sandbox           seccomp
  capabilities    CAP_NET_ADMIN CAP_NET_RAW
  lacking         no Landlock here
"
    );
}

/// Packets for encrypted sessions take the TUN device with each data path.
#[test]
fn status_names_the_data_path_of_encrypted_tunnels() {
    let lines = |path: &str, encryption: Value| {
        let answer = json!({
            "name": "bus-42", "version": "0.1.0", "uptime_s": 1, "roles": [], "dataplane": path,
            "encryption": encryption,
        });
        format_status(answer, json!([])).expect("a status").lines().skip(2).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        lines("bpf", json!("encrypted")),
        "dataplane         bpf, encrypted tunnels by tun\ntunnels           encrypted"
    );
    assert_eq!(lines("tun", json!("encrypted")), "dataplane         tun\ntunnels           encrypted");
    assert_eq!(lines("bpf", json!("in the clear")), "dataplane         bpf\ntunnels           in the clear");
}

/// A registration may still be valid when all uplinks are down. The printed state then says that the home
/// agent is not reachable.
#[test]
fn status_reports_a_router_without_path() {
    let refusal = |state: &str| (state == "refused").then_some("status 131, home registration not supported");
    let first = |state: &str, reachable: serde_json::Value| {
        let answer = json!({
            "name": "bus-42", "version": "0.1.0", "uptime_s": 1, "roles": ["mobile_router"], "dataplane": "tu\
                n",
            "mobile_router": {"state": state, "reachable": reachable, "refusal": refusal(state), "home_addres\
                s": "2001:db8:1::1234",
                              "home_agent": "2001:db8:1::1", "care_of_address": null, "uplink": null,
                              "wanted_uplink": null},
            "home_agent": null,
        });
        let text = format_status(answer, json!([])).expect("a status");
        text.lines().find(|line| line.starts_with("mobile router")).expect("the line").to_owned()
    };
    let cut_off = "mobile router     registered, but no uplink reaches the home agent";
    assert_eq!(first("registered", json!(false)), cut_off);
    let refused = "mobile router     refused: status 131, home registration not supported";
    assert_eq!(first("refused", json!(true)), refused);
    for reachable in [json!(true), json!(null)] {
        assert_eq!(first("registered", reachable), "mobile router     registered");
    }
    assert_eq!(first("registering", json!(false)), "mobile router     registering");
}

#[test]
fn watch_prints_one_line_for_each_event() {
    assert_eq!(
        format_event(&json!({"time": 1_709_210_096.789, "event": "handover", "from": null, "to": "wlan0",
                      "reason": "signal is good", "prefixes": ["2001:db8:a::/64"]})),
        "2024-02-29T12:34:56.789Z handover from=- prefixes=[\"2001:db8:a::/64\"] reason=\"signal is good\" \
         to=wlan0"
    );
    assert_eq!(
        format_event(&json!({"time": 0, "event": "missed", "count": 3})),
        "1970-01-01T00:00:00.000Z missed count=3"
    );
    assert_eq!(format_event(&json!(5)), "5");
    // The terminal must not receive a control character of a name.
    assert_eq!(format_event(&json!({"event": "x", "to": "a\u{1b}[2J"})), "- x to=\"a\\u001b[2J\"");
}

#[test]
fn show_prints_durations_in_short_form() {
    for (seconds, text) in [(0.0, "0s"), (59.9, "59s"), (3600.0, "1h 0m 0s"), (-1.0, "0s")] {
        assert_eq!(format_duration(seconds), text);
    }
    assert_eq!(format_utc(951_782_400.0), "2000-02-29T00:00:00.000Z");
    assert_eq!(format_utc(1_798_761_599.999_6), "2027-01-01T00:00:00.000Z");
}

#[test]
fn show_security_prints_lines() {
    let mut answer = json!({
        "policy": "accept_unsigned",
        "ticket": {"name": "5a1f0c6be21d9f37", "from": 1_795_300_000, "until": 1_795_904_800},
        "tickets_now": 5, "tickets_later": 2, "tickets_until": 1_796_000_000, "issuers": 2, "signers": 11,
        "queued": 3, "queue": 256, "parked": 1, "parking": 64, "verifications_per_second": 2000,
        "received": 431, "verified": 380, "copies": 12, "plain": 4, "verifications": 412, "signed": 61,
        "dropped": {"replayed": 9, "unknown_issuer": 30},
    });
    let expected = "\
policy            accept unsigned
ticket            5a1f0c6be21d9f37
  holds           2026-11-21T22:26:40Z to 2026-11-28T22:26:40Z
own tickets       5 now, 2 later, the last until 2026-11-30T00:53:20Z
known             2 issuers, 11 tickets of others
to be verified    3 of 256
certificate lacks 1 of 64
verifications     412, at most 2000 a second
signed            61
received          431
  believed        380 and 12 copies
  in the open     4
  dropped         9 replayed
  dropped         30 unknown issuer
";
    assert_eq!(show_table(Table::Security, answer.clone(), None), expected);
    answer["ticket"] = Value::Null;
    answer["tickets_until"] = Value::Null;
    let text = show_table(Table::Security, answer, None);
    assert!(text.contains("ticket            none: nothing is signed\nown tickets       5 now"), "{text}");
    assert!(text.contains("the last until -\n"), "{text}");
}

/// If a state contains a key of the config, the key keeps its spelling.
#[test]
fn show_keeps_underscores_of_json_keys() {
    assert_eq!(state_in_words("no_answer"), "no answer");
    let down = "down: IPv4 only, and mobile_router.home_agent_ipv4 is not set";
    assert_eq!(state_in_words(down), down);
}
