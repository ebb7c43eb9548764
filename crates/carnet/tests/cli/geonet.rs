//! Tests of the GeoNetworking commands.

use super::{answer_one_request, http_response, new_scratch_folder, run_carnet, stderr_text, stdout_text};

/// Runs a command against a station that answers `answer`. Returns the printed text and the request that the
/// station received.
fn run_with_answer(
    name: &str,
    command: &[&str],
    answer: String,
) -> (Option<i32>, String, String, String, String) {
    let path = new_scratch_folder(name);
    let station = answer_one_request(&path, answer);
    let output = run_carnet(&[command, &["--socket", path.to_str().expect("a path")]].concat());
    let (request, body) = station.join().expect("a request");
    std::fs::remove_file(&path).expect("gone");
    (output.status.code(), stdout_text(&output), stderr_text(&output), request, body)
}

fn event_stream(events: &[&str]) -> String {
    let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    format!("HTTP/1.1 200 OK\r\n\r\n{events}")
}

const PING_ANSWER: &str = concat!(
    r#"{"event":"answer","sequence":1,"gn_address":"1400:0200:0000:000a","mac":"02:00:00:00:00:0a","#,
    r#""latitude":48.8375,"longitude":2.1008,"rtt_ms":0.25,"hops":2,"path":null}"#
);

#[test]
fn show_neighbours_prints_stations() {
    let body = r#"[{"gn_address":"1400:0200:0000:000a","mac":"02:00:00:00:00:0a","latitude":48.8375,
                    "longitude":2.1008,"speed_mps":0,"heading_deg":0,"age_ms":1,"neighbour":true}]"#;
    let (status, out, _, request, _) =
        run_with_answer("neighbours.sock", &["show", "neighbours"], http_response("200 OK", body));
    assert_eq!((status, request.as_str()), (Some(0), "GET /v1/neighbours HTTP/1.1"));
    assert!(out.starts_with("ADDRESS ") && out.contains("\n1400:0200:0000:000a  02:00:00:00:00:0a"), "{out}");

    let refusal = http_response("409 Conflict", "{\"error\":\"this station does no GeoNetworking\"}");
    let (status, _, error, request, _) = run_with_answer("areas.sock", &["show", "areas", "--json"], refusal);
    assert_eq!((status, request.as_str()), (Some(1), "GET /v1/areas HTTP/1.1"));
    assert_eq!(error, "carnet: this station does no GeoNetworking\n");
}

#[test]
fn a_ping_prints_answers_and_fails_without_any() {
    let answered = event_stream(&[
        PING_ANSWER,
        r#"{"event":"timeout","sequence":2}"#,
        r#"{"event":"done","sent":2,"answered":1}"#,
    ]);
    let command = ["gnping", "area:crossing", "--count", "2", "--interval", "10ms", "--timeout", "1s"];
    let (status, out, error, request, body) = run_with_answer("ping.sock", &command, answered.clone());
    assert_eq!((status, request.as_str()), (Some(0), "POST /v1/gnping HTTP/1.1"), "{error}");
    assert_eq!(body, r#"{"target":"area:crossing","count":2,"interval_ms":10,"timeout_ms":1000}"#);
    assert_eq!(
        out,
        "1: 1400:0200:0000:000a (02:00:00:00:00:0a) at 48.8375000, 2.1008000, 2 hops, 0.250 ms\n\
         2: no answer\n\
         area:crossing: 2 sent, 1 answered, least 0.250 ms, median 0.250 ms, most 0.250 ms\n"
    );

    let (status, out, ..) = run_with_answer("ping-json.sock", &["gnping", "fe80::1", "--json"], answered);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((status, lines.len()), (Some(0), 3));
    assert_eq!(lines[1], r#"{"event":"timeout","sequence":2}"#);

    let silent =
        event_stream(&[r#"{"event":"timeout","sequence":1}"#, r#"{"event":"done","sent":1,"answered":0}"#]);
    let (status, out, error, _, body) =
        run_with_answer("silent.sock", &["gnping", "02:00:00:00:00:0A"], silent);
    assert_eq!(
        (status, error.as_str()),
        (Some(1), "carnet: GeoNetworking ping: no station answered at 02:00:00:00:00:0a\n")
    );
    assert_eq!(out, "1: no answer\n02:00:00:00:00:0a: 1 sent, 0 answered\n");
    assert!(body.ends_with(r#""count":4,"interval_ms":1000,"timeout_ms":3000}"#), "{body}");

    let (status, _, error, ..) =
        run_with_answer("cut.sock", &["gnping", "fe80::1"], event_stream(&[PING_ANSWER]));
    assert_eq!(
        (status, error.as_str()),
        (Some(1), "carnet: the station ended the GeoNetworking ping before its last packet\n")
    );
}

#[test]
fn geonet_send_sends_the_packet_that_its_options_describe() {
    let rest = concat!(
        r#""next_header":"any","port":null,"hop_limit":null,"#,
        r#""lifetime_ms":null,"scf":false,"payload":"0102"}"#
    );
    let cases: [(&[&str], String); 5] = [
        (
            &["guc", "--to", "1400:0200:0000:000a"],
            format!(r#"{{"transport":{{"type":"guc","to":"1400:0200:0000:000a"}},{rest}"#),
        ),
        (
            &["gac", "--circle", "-48.5,2.5,300"],
            [
                r#"{"transport":{"type":"gac","area":{"circle":{"latitude":-48.5,"longitude":2.5,"#,
                r#""radius_m":300}}},"#,
                rest,
            ]
            .concat(),
        ),
        (
            &["gbc", "--to", "area:crossing"],
            format!(r#"{{"transport":{{"type":"gbc","area":{{"name":"crossing"}}}},{rest}"#),
        ),
        (
            &["shb", "--hops", "1"],
            format!(
                r#"{{"transport":{{"type":"shb"}},{}"#,
                rest.replace(
                    "\"hop_limit\"\
            :null",
                    "\"hop_limit\":1"
                )
            ),
        ),
        (
            &[
                "tsb",
                "--hops",
                "3",
                "--lifetime",
                "1m30s",
                "--scf",
                "--next-header",
                "btp-b",
                "--port",
                "200\
                2",
            ],
            [
                r#"{"transport":{"type":"tsb"},"next_header":"btp-b","port":2002,"hop_limit":3,"#,
                r#""lifetime_ms":90000,"scf":true,"payload":"0102"}"#,
            ]
            .concat(),
        ),
    ];
    for (arguments, expected) in cases {
        let command = [&["gnsend"], arguments, &["--payload", "0102"]].concat();
        let answer = "HTTP/1.1 204 No Content\r\n\r\n".to_owned();
        let (status, out, error, request, body) = run_with_answer("send.sock", &command, answer);
        assert_eq!((status, out.as_str()), (Some(0), ""), "{error}");
        assert_eq!(request, "POST /v1/gnsend HTTP/1.1");
        assert_eq!(body, expected);
    }
}

#[test]
fn gnrecv_prints_payloads_and_reports_losses_on_standard_error() {
    let payload = concat!(
        r#"{"latitude":48.5,"longitude":2.5,"next_header":"any","payload":"beef","#,
        r#""remaining_hop_limit":1,"source":"1400:0200:0000:000a","type":"shb"}"#
    );
    let answer = event_stream(&[r#"{"event":"missed","time":0,"count":3}"#, payload]);
    let (status, out, error, request, _) = run_with_answer("receive.sock", &["gnrecv"], answer);
    assert_eq!((status, request.as_str()), (Some(0), "GET /v1/gnrecv HTTP/1.1"));
    assert_eq!(out, format!("{payload}\n"));
    assert_eq!(error, "carnet: 1970-01-01T00:00:00.000Z missed count=3\n");
}

/// A client of `carnet gnrecv` that waits for payloads to a port does not get the Router Advertisements on
/// `gn0`.
#[test]
fn gnrecv_selects_payloads_by_kind_and_port() {
    let payload = |kind: &str, port: &str| {
        format!(
            concat!(
                r#"{{"latitude":48.5,"longitude":2.5,"next_header":"{kind}","payload":"beef","#,
                r#""port":{port},"remaining_hop_limit":1,"source":"1400:0200:0000:000a","type":"shb"}}"#
            ),
            kind = kind,
            port = port
        )
    };
    let (ipv6, a, b) = (payload("ipv6", "null"), payload("btp-a", "2002"), payload("btp-b", "2001"));
    for (arguments, expected) in [
        (&["gnrecv"][..], vec![&ipv6, &a, &b]),
        (&["gnrecv", "--port", "2002"], vec![&a]),
        (&["gnrecv", "--next-header", "btp-b"], vec![&b]),
        (&["gnrecv", "--next-header", "btp-b", "--port", "2002"], vec![]),
        (&["gnrecv", "--next-header", "ipv6"], vec![&ipv6]),
    ] {
        let (status, out, error, _, _) =
            run_with_answer("chosen.sock", arguments, event_stream(&[&ipv6, &a, &b]));
        assert_eq!((status, error.as_str()), (Some(0), ""));
        assert_eq!(out.lines().collect::<Vec<_>>(), expected, "{arguments:?}");
    }
}

#[test]
fn wrong_geonet_arguments_have_exit_status_2_and_name_the_expectation() {
    let payload = ["--payload", "00"];
    let cases: [(&[&str], &str); 13] = [
        (&["gnping"], "<TARGET>"),
        (&["gnping", "bus-42"], "\"bus-42\" is no target, expected a GeoNetworking address"),
        (&["gnping", "fe80::1", "--count", "0"], "0 is not in 1..=65535"),
        (&["gnping", "fe80::1", "--interval", "1"], "\"1\" is no duration"),
        (&["gnsend", "guc"], "guc goes to a station, expected --to TARGET"),
        (&["gnsend", "guc", "--to", "area:a"], "guc goes to a station, expected --to TARGET"),
        (&["gnsend", "gbc", "--to", "fe80::1"], "gac and gbc go to an area, expected --area NAME or"),
        (&["gnsend", "gbc", "--area", "a", "--circle", "1,2,3"], "cannot be used with"),
        (&["gnsend", "gbc", "--circle", "1,2"], "\"1,2\" is no circle"),
        (&["gnsend", "tsb", "--area", "a"], "tsb and shb go to all stations in range"),
        (&["gnsend", "shb", "--hops", "2"], "shb goes one hop, expected no --hops, or tsb"),
        (&["gnsend", "shb", "--port", "1"], "a port needs BTP"),
        (&["gnsend", "cam"], "[possible values: guc, gac, gbc, tsb, shb]"),
    ];
    for (arguments, reason) in cases {
        let more: &[&str] = if arguments[0] == "gnsend" { &payload } else { &[] };
        let output = run_carnet(&[arguments, more].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = stderr_text(&output);
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
    let output = run_carnet(&["gnsend", "shb", "--payload", "0"]);
    assert!(stderr_text(&output).contains("\"0\" is no string of octets, expected two hexadecimal digits"));
}

#[test]
fn area_command_sets_and_removes_an_area() {
    let done = || http_response("204 No Content", "");
    let command =
        ["area", "near", "--around", "here", "--radius", "1km", "--group", "ff1e::42", "--lifetime", "10m"];
    let (status, _, error, request, body) = run_with_answer("area.sock", &command, done());
    assert_eq!((status, request.as_str()), (Some(0), "POST /v1/areas HTTP/1.1"), "{error}");
    let sent: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(
        (&sent["around"], &sent["distance_a_m"], &sent["lifetime_ms"]),
        (&"here".into(), &1000.into(), &600_000.into())
    );
    let (status, _, error, request, body) =
        run_with_answer("area-gone.sock", &["area", "near", "--remove"], done());
    assert_eq!((status, request.as_str()), (Some(0), "POST /v1/areas/remove HTTP/1.1"), "{error}");
    assert_eq!(body, r#"{"name":"near"}"#);
    for (wrong, said) in [
        (&["area", "near"][..], "--around"),
        (&["area", "near", "--around", "there", "--radius", "1m"], "is no position"),
        (&["area", "near", "--around", "here"], "a circle has a radius, expected --radius LENGTH"),
        (&["area", "near", "--around", "here", "--shape", "ellipse", "--distance-a", "1m"], "--distance-b"),
        (
            &["area", "near", "--around", "here", "--radius", "1m", "--group", "ff02::1"],
            "does not leave its link",
        ),
        (&["area", "near", "--remove", "--radius", "1m"], "cannot be used with"),
    ] {
        let output = run_carnet(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(stderr_text(&output).contains(said), "{}", stderr_text(&output));
    }
}
