//! Tests of server and client over a real socket, with a small run loop that answers the requests.

mod facilities;
mod geonet;
mod page;
mod tcp;

use std::net::Ipv6Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdListener;

use carnet_api::model::{Binding, Counters, HandoverRequest, Keys, Role, Status, event};
use serde_json::json;

use super::*;
use crate::client::ApiClient;
use crate::scratch::ScratchFolder;

/// Answers requests like a station whose only uplink is wlan0.
async fn answer_requests(mut requests: mpsc::Receiver<StationRequest>) {
    while let Some(request) = requests.recv().await {
        match request {
            StationRequest::Status(reply) => drop(reply.send(test_status())),
            StationRequest::Bindings(reply) => drop(reply.send(vec![test_binding()])),
            StationRequest::Uplinks(reply) => drop(reply.send(Vec::new())),
            StationRequest::Tunnels(reply) => drop(reply.send(Vec::new())),
            StationRequest::Routes(reply) => drop(reply.send(Vec::new())),
            StationRequest::Policies(reply) => drop(reply.send(Vec::new())),
            StationRequest::Lan(reply) => drop(reply.send(Vec::new())),
            StationRequest::Keys(reply) => {
                drop(reply.send(Ok(Keys { public_keys: Vec::new(), missing: Vec::new() })));
            }
            StationRequest::ReadKeys(reply) => drop(reply.send(Ok(()))),
            StationRequest::Counters(reply) => {
                drop(reply.send(Counters::from([("tunnel.encapsulated".to_owned(), u64::MAX)])));
            }
            StationRequest::Signal { signal, reply } => drop(reply.send(match signal.uplink.as_str() {
                "eth9" => Err("eth9 is not an uplink".into()),
                _ => Ok(()),
            })),
            StationRequest::Handover { handover, reply } => {
                drop(reply.send(match handover.uplink.as_deref() {
                    Some("wwan0") if handover.policy.as_deref() == Some("video") => Ok(()),
                    None | Some("wlan0") => Ok(()),
                    Some(other) => Err(format!("{other} is not an uplink")),
                }))
            }
            StationRequest::Portal { portal, reply } => drop(reply.send(match portal.uplink.as_str() {
                "eth9" => Err("eth9 is not an uplink".into()),
                _ => Ok(()),
            })),
            request => geonet::answer_request(request),
        }
    }
}

fn test_status() -> Status {
    Status {
        name: "bus-42".into(),
        version: "0.1.0".into(),
        uptime_s: 1.5,
        roles: vec![Role::HomeAgent],
        dataplane: Some("tun".into()),
        dataplane_loading: None,
        encryption: None,
        mobile_router: None,
        home_agent: None,
        geonet: None,
        obstacles: Vec::new(),
        sandbox: None,
    }
}

fn test_binding() -> Binding {
    Binding {
        role: Role::HomeAgent,
        home_address: "2001:db8:1::1234".parse().expect("an address"),
        care_of_address: None,
        udp_port: None,
        stay_s: Some(3),
        bid: None,
        prefixes: vec!["2001:db8:a::/64".parse().expect("a prefix")],
        ipv4_prefixes: Vec::new(),
        state: "registered".into(),
        lifetime_s: 60,
        remaining_s: 57,
        sequence: 7,
    }
}

struct TestServer {
    scratch_folder: ScratchFolder,
    api_server: ApiServer,
    api_client: ApiClient,
    events: broadcast::Sender<Value>,
}

impl TestServer {
    fn socket(&self) -> PathBuf {
        self.scratch_folder.path().join("run/s.sock")
    }

    /// Creates a server and a client. Also returns the receiver of the requests, so that the test itself can
    /// answer as the run loop.
    async fn new() -> (TestServer, mpsc::Receiver<StationRequest>) {
        let scratch = ScratchFolder::new();
        let socket = scratch.path().join("run/s.sock");
        let (requests, receiver) = mpsc::channel(4);
        let (events, _) = broadcast::channel(4);
        let server = serve_api(&socket, None, requests, events.clone()).await.expect("a server");
        let client = ApiClient::find_station(Some(socket), Path::new("/nowhere")).expect("a client");
        (TestServer { scratch_folder: scratch, api_server: server, api_client: client, events }, receiver)
    }

    /// Creates a server and a client with a run loop that answers.
    async fn start_answering() -> TestServer {
        let (bench, receiver) = TestServer::new().await;
        tokio::spawn(answer_requests(receiver));
        bench
    }

    async fn refusal_of_path(&self, path: &str) -> String {
        format!("{:#}", self.api_client.get(path).await.expect_err(path))
    }
}

#[tokio::test]
async fn get_requests_are_answered_in_json() {
    let bench = TestServer::start_answering().await;
    assert_eq!(
        bench.api_client.get("/v1/status").await.expect("status"),
        json!({"name": "bus-42", "version": "0.1.0", "uptime_s": 1.5, "roles": ["home_agent"],
               "dataplane": "tun", "dataplane_loading": null, "encryption": null,
               "obstacles": [], "mobile_router": null, "home_agent": null, "geonet": null, "sandbox": null})
    );
    assert_eq!(
        bench.api_client.get("/v1/bindings").await.expect("bindings"),
        json!([{"role": "home_agent", "home_address": "2001:db8:1::1234", "care_of_address": null,
                "stay_s": 3, "bid": null, "prefixes": ["2001:db8:a::/\
                    64"], "state": "registered", "lifetime_s": 60,
                "remaining_s": 57, "sequence": 7}])
    );
    assert_eq!(bench.api_client.get("/v1/uplinks").await.expect("uplinks"), json!([]));
    assert_eq!(bench.api_client.get("/v1/tunnels").await.expect("tunnels"), json!([]));
    assert_eq!(bench.api_client.get("/v1/policies").await.expect("policies"), json!([]));
    assert_eq!(bench.api_client.get("/v1/routes").await.expect("routes"), json!([]));
    assert_eq!(
        bench.api_client.get("/v1/counters").await.expect("counters"),
        json!({"tunnel.encapsulated": u64::MAX})
    );
}

#[tokio::test]
async fn handover_request_succeeds_or_is_refused_with_reason() {
    let bench = TestServer::start_answering().await;
    for uplink in [Some("wlan0".to_owned()), None] {
        let request = HandoverRequest { uplink, policy: None };
        bench.api_client.post_json("/v1/handover", &request).await.expect("done");
    }
    let request = HandoverRequest { uplink: Some("wwan0".into()), policy: Some("video".into()) };
    bench.api_client.post_json("/v1/handover", &request).await.expect("done");
    let request = HandoverRequest { uplink: Some("eth9".into()), policy: None };
    let error = bench.api_client.post_json("/v1/handover", &request).await.expect_err("refused");
    assert_eq!(error.to_string(), "eth9 is not an uplink");
}

#[tokio::test]
async fn signal_report_is_accepted_or_refused_with_reason() {
    let bench = TestServer::start_answering().await;
    bench.api_client.post_json("/v1/signal", &json!({"uplink": "wlan0", "dbm": -61})).await.expect("done");
    for (body, reason) in [
        (json!({"uplink": "eth9", "dbm": -61}), "eth9 is not an uplink"),
        (json!({"uplink": "wlan0"}), "missing field `dbm`"),
        (json!({"uplink": "wlan0", "dbm": "strong"}), "expected i32"),
    ] {
        let error = bench.api_client.post_json("/v1/signal", &body).await.expect_err("refused").to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[tokio::test]
async fn invalid_requests_get_an_error_as_json() {
    let bench = TestServer::start_answering().await;
    assert_eq!(bench.refusal_of_path("/v2").await, "no such path");
    assert_eq!(bench.refusal_of_path("/v1/handover").await, "this path does not support this method");
    for (body, reason) in [
        (json!({}), "missing field `uplink`"),
        (json!({"uplink": 5}), "invalid type: integer `5`, expected a string"),
        (json!({"uplink": null, "when": "now"}), "unknown field `when`, expected `uplink`"),
    ] {
        let error = bench.api_client.post_json("/v1/handover", &body).await.expect_err("refused").to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[tokio::test]
async fn event_stream_announces_the_stations_stop() {
    let (bench, receiver) = TestServer::new().await;
    drop(receiver);
    assert_eq!(bench.refusal_of_path("/v1/status").await, "the station is about to stop");
}

#[tokio::test(start_paused = true)]
async fn request_to_a_hanging_station_times_out() {
    let (bench, _receiver) = TestServer::new().await;
    assert_eq!(bench.refusal_of_path("/v1/status").await, "the station does not answer");
}

#[tokio::test]
async fn slow_client_of_event_stream_learns_how_many_events_it_missed() {
    let bench = TestServer::start_answering().await;
    let mut events = bench.api_client.follow_events("/v1/events").await.expect("a stream");
    let number = |n: u32| event(1.5, json!({"event": "warning", "message": format!("n{n}\n\u{e9}")}));
    bench.events.send(number(1)).expect("a reader");
    assert_eq!(events.next().await.expect("a stream"), Some(number(1)));

    // No other task runs during this loop. So the channel, which has room for four events, loses three
    // events.
    for n in 2..=8 {
        bench.events.send(number(n)).expect("a reader");
    }
    let note = events.next().await.expect("a stream").expect("a note");
    assert_eq!((&note["event"], &note["count"]), (&json!("missed"), &json!(3)));
    assert!(note["time"].as_f64().is_some_and(|time| time > 1.7e9), "{note}");
    for n in 5..=8 {
        assert_eq!(events.next().await.expect("a stream"), Some(number(n)));
    }

    bench.api_server.shutdown().await;
    let end = tokio::time::timeout(Duration::from_secs(5), events.next()).await.expect("no end");
    assert_eq!(end.expect("a stream"), None);
}

#[tokio::test]
async fn server_shutdown_does_not_wait_for_an_ended_station() {
    let (TestServer { api_server: server, api_client: client, scratch_folder: _scratch, .. }, mut receiver) =
        TestServer::new().await;
    let question = tokio::spawn(async move { client.get("/v1/status").await });
    let request = receiver.recv().await.expect("a request");
    let before = std::time::Instant::now();
    drop((request, receiver));
    server.shutdown().await;
    assert!(before.elapsed() < SHUTDOWN_TIMEOUT);
    let error = question.await.expect("a task").expect_err("no answer");
    assert_eq!(error.to_string(), "the station is about to stop");
}

#[tokio::test]
async fn api_socket_has_its_mode_and_is_removed_at_the_end() {
    let bench = TestServer::start_answering().await;
    let socket = bench.socket();
    assert_eq!(bench.api_server.socket(), socket);
    assert_eq!(fs::metadata(&socket).expect("a socket").permissions().mode() & 0o7777, 0o660);
    bench.api_server.shutdown().await;
    assert!(!socket.exists());
    let error = bench.api_client.get("/v1/status").await.expect_err("nobody");
    let expected = format!("cannot reach the station at {}: No such file or directory", socket.display());
    assert!(format!("{error:#}").starts_with(&expected), "{error:#}");
}

#[tokio::test]
async fn stopped_api_server_removes_only_its_own_socket() {
    let TestServer { api_server: server, scratch_folder: scratch, .. } = TestServer::start_answering().await;
    let socket = scratch.path().join("run/s.sock");
    let (requests, _receiver) = mpsc::channel(1);
    let (events, _) = broadcast::channel(1);
    // An operator removes the socket file by hand, and another station creates a new one at the same path.
    fs::remove_file(&socket).expect("a socket");
    let second = serve_api(&socket, None, requests, events).await.expect("a server");
    drop(server);
    assert!(socket.exists());
    drop(second);
    assert!(!socket.exists());
}

#[tokio::test]
async fn api_server_replaces_a_stale_socket_and_no_live_one() {
    let scratch = ScratchFolder::new();
    let socket = scratch.path().join("s.sock");
    let try_serve = || async {
        let (requests, receiver) = mpsc::channel(1);
        let (events, _) = broadcast::channel(1);
        serve_api(&socket, None, requests, events).await.map(|server| (server, receiver))
    };
    drop(StdListener::bind(&socket).expect("a socket"));
    assert!(socket.exists());
    let first = try_serve().await.expect("a server in place of the stale socket");
    let error = try_serve().await.expect_err("a live one");
    assert_eq!(
        error.to_string(),
        format!("cannot listen at {}: another running station uses this socket", socket.display())
    );
    assert!(socket.exists());
    drop(first);

    fs::write(&socket, "precious").expect("a file");
    let error = try_serve().await.expect_err("a file");
    assert_eq!(
        error.to_string(),
        format!(
            "cannot listen at {}: expected a socket or no file there, found another file",
            socket.display()
        )
    );
    assert_eq!(fs::read_to_string(&socket).expect("a file"), "precious");
}

/// `carnet revoke --all`: if a binding has disappeared meanwhile, the command succeeds. If a binding remains,
/// the command fails.
#[tokio::test]
async fn revoke_all_revokes_every_registered_node() {
    let home = |number: u16| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, number);
    for (stays, expected) in [(false, Ok(())), (true, Err("no binding".to_owned()))] {
        let (bench, mut requests) = TestServer::new().await;
        let answers = tokio::spawn(async move {
            let (mut registered, mut revoked) = (vec![home(1), home(2), home(3)], Vec::new());
            while let Some(request) = requests.recv().await {
                match request {
                    StationRequest::Bindings(reply) => {
                        let of = |home_address: &Ipv6Addr| Binding {
                            home_address: *home_address,
                            ..test_binding()
                        };
                        let mut bindings: Vec<Binding> = registered.iter().map(of).collect();
                        // A station may be both home agent and mobile router. `carnet revoke` must not revoke
                        // the binding of its own mobile router.
                        let own = Binding { role: Role::MobileRouter, ..of(&home(9)) };
                        bindings.extend([of(&home(1)), own]);
                        drop(reply.send(bindings));
                    }
                    StationRequest::Revoke { revoke, reply } if revoke.home_address == home(2) => {
                        registered.retain(|home_address| stays || *home_address != home(2));
                        drop(reply.send(Err("no binding".into())));
                    }
                    StationRequest::Revoke { revoke, reply } => {
                        assert!(revoke.bids.is_empty());
                        revoked.push(revoke.home_address);
                        drop(reply.send(Ok(())));
                    }
                    _ => panic!("unasked"),
                }
            }
            revoked
        });
        let result = crate::client::drain::revoke_all(&bench.api_client).await;
        assert_eq!(result.map_err(|error| error.to_string()), expected);
        drop(bench);
        let revoked = answers.await.expect("answers");
        assert_eq!(revoked, if stays { vec![home(1)] } else { vec![home(1), home(3)] });
    }
}

#[test]
fn whole_numbers_in_json_are_integers() {
    let whole = |text: &str| {
        write_whole_floats_as_integers(text.as_bytes()).map(|octets| String::from_utf8(octets).expect("text"))
    };
    for (text, expected) in [
        (r#"{"a": 24.0, "b": [2.4e1, -3.00, 0.0]}"#, r#"{"a": 24, "b": [24, -3, 0]}"#),
        (r#"{"24.0": "24.0 \" 1.0", "c": 1.5, "d": 1.0}"#, r#"{"24.0": "24.0 \" 1.0", "c": 1.5, "d": 1}"#),
    ] {
        assert_eq!(whole(text).as_deref(), Some(expected));
    }
    for text in [r#"{"a": 24, "b": 1.5, "c": "1.0", "d": 1e300, "e": true}"#, "", "\"1.0", "1.0.0", "-", "1e"]
    {
        assert_eq!(whole(text), None, "{text}");
    }
}
