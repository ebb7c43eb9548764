//! Signal strengths of the uplinks: from a file, and from programs that use the API.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::Testbed;

/// Sends `POST /v1/signal`; returns the first line of the answer, and its body.
fn post_signal(station: &Station, body: &str) -> (String, String) {
    let mut stream = UnixStream::connect(&station.control_socket).expect("the station listens");
    let head =
        "POST /v1/signal HTTP/1.1\r\nHost: station\r\nConnection: close\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("asks");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.lines().next().unwrap_or_default().into(), body.into())
}

#[test]
fn signal_strength_comes_from_file_or_api() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let file = bed.scratch.path_of("wlan0.signal");
    let plain = bed.router_config();
    let config = plain.replace("priority = 10\n", &format!("signal_file = '{}'\n", file.display()));
    assert_ne!(plain, config);
    let router = Station::start(&bed.router, &config);
    let signals = |router: &Station| {
        let uplinks = router.show_json("uplinks");
        json!([uplinks[0]["signal_dbm"], uplinks[1]["signal_dbm"]])
    };
    assert_eq!(signals(&router), json!([null, null]));

    fs::write(&file, "-49\n").expect("writes");
    wait_until("the signal of the file", seconds(5), || signals(&router) == json!([-49, null]));
    assert_eq!(post_signal(&router, r#"{"uplink": "wwan0", "dbm": -93}"#).0, "HTTP/1.1 204 No Content");
    assert_eq!(signals(&router), json!([-49, -93]));

    for (body, reason) in [
        (r#"{"uplink": "eth9", "dbm": -61}"#, "cannot find the uplink eth9, expected one of: wlan0, wwan0"),
        (r#"{"uplink": "wlan0", "dbm": 4000}"#, "4000 dBm is no signal"),
    ] {
        let (status, answer) = post_signal(&router, body);
        assert!(status.contains("409") && answer.contains(reason), "{status}: {answer}");
    }
    // After a reload the station goes on reading the file. If the config no longer names the file, the last
    // reported value stays.
    router.reload(&config.replace("lifetime = '60s'", "lifetime = '59s'"));
    fs::write(&file, "-70\n").expect("writes");
    wait_until("the next signal", seconds(5), || signals(&router) == json!([-70, -93]));
    router.reload(&plain);
    fs::write(&file, "-80\n").expect("writes");
    std::thread::sleep(seconds(1));
    assert_eq!(signals(&router), json!([-70, -93]));
}

/// If a program stops writing its signal file, the signal becomes unknown. If it writes the same value again,
/// the signal stays known.
#[test]
fn a_signal_without_renewal_becomes_unknown() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let file = bed.scratch.path_of("wlan0.signal");
    let lines = format!("signal_file = '{}'\nsignal_timeout = '5s'\n", file.display());
    let router = Station::start(&bed.router, &bed.router_config().replace("priority = 10\n", &lines));
    let signal = || router.show_json("uplinks")[0]["signal_dbm"].clone();
    for _ in 0..8 {
        fs::write(&file, "-61\n").expect("writes");
        wait_until("the signal of the file", seconds(5), || signal() == json!(-61));
        std::thread::sleep(seconds(1));
        assert_eq!(signal(), json!(-61));
    }
    wait_until("it to be unknown", seconds(15), || signal().is_null());
    assert!(
        router.log_text().contains("the signal of wlan0 is unknown: no program has reported it in time"),
        "{}",
        router.log_text()
    );
    fs::write(&file, "-61\n").expect("writes");
    wait_until("the next one", seconds(5), || signal() == json!(-61));
}
