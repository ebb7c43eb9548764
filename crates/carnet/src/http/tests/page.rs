//! Compares `docs/api.md` with the server.

use carnet_api::model::{
    AreaRemoval, AreaRequest, ChannelRequest, DenmRequest, DrainRequest, GnPingRequest, GnSendRequest,
    HandoverRequest, PortalRequest, PseudonymRequest, RevokeRequest, SignalRequest, Vehicle,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::TestServer;

const API_PAGE: &str = include_str!("../../../../../docs/api.md");
/// Source files that contain the paths of the server.
const ROUTE_SOURCES: [&str; 3] =
    [include_str!("../../http.rs"), include_str!("../geonet.rs"), include_str!("../facilities.rs")];

/// Returns method and path of every request in the tables of `docs/api.md`.
fn requests_on_page() -> Vec<(&'static str, &'static str)> {
    let rows = API_PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let requests = rows.filter_map(|(request, _)| request.split_once(' '));
    requests.filter(|(method, _)| ["GET", "POST"].contains(method)).collect()
}

/// Returns the example of a request body in `docs/api.md`, after the heading of this request.
fn example_body_of(path: &str) -> Value {
    let heading = |method| API_PAGE.split_once(&format!("\n`{method} {path}`"));
    let (_, rest) = heading("POST").or_else(|| heading("PUT")).unwrap_or_else(|| panic!("no body of {path}"));
    let (_, rest) = rest.split_once("```json\n").expect("a body");
    let (json, _) = rest.split_once("\n```").expect("its end");
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn api_page_lists_every_path_of_the_server() {
    for source in ROUTE_SOURCES {
        for path in source.split('"').filter(|text| text.starts_with("/v1/")) {
            assert!(requests_on_page().iter().any(|(_, listed)| *listed == path), "{path}");
        }
    }
}

#[tokio::test]
async fn server_has_every_request_of_the_api_page() {
    assert!(requests_on_page().len() > 15);
    let bench = TestServer::start_answering().await;
    for (method, path) in requests_on_page() {
        let answer = match method {
            "GET" => bench.api_client.follow_events(path).await.map(drop),
            _ => bench.api_client.post_and_follow(path, &example_body_of(path)).await.map(drop),
        };
        if let Err(error) = answer {
            let error = error.to_string();
            assert!(
                !["no such path", "this method", "about to stop"].iter().any(|text| error.contains(text)),
                "{method} {path}: {error}"
            );
        }
    }
}

/// Returns method and path of every request in `docs/openapi.json`, which `carnet-api` generates from the
/// types.
fn requests_in_openapi() -> Vec<(String, String)> {
    let description = include_str!("../../../../../docs/openapi.json");
    let description: Value = serde_json::from_str(description).expect("JSON");
    let paths = description["paths"].as_object().expect("paths").clone();
    let requests = paths.into_iter().flat_map(|(path, methods)| {
        let methods: Vec<String> = methods.as_object().expect("methods").keys().cloned().collect();
        methods.into_iter().map(move |method| (method.to_uppercase(), path.clone()))
    });
    requests.collect()
}

#[test]
fn openapi_has_every_request_of_the_api_page() {
    let described = requests_in_openapi();
    let has = |method: &str, path: &str| described.iter().any(|(m, p)| m == method && p == path);
    for (method, path) in requests_on_page().into_iter().chain([("PUT", "/v1/vehicle")]) {
        assert!(has(method, path), "{method} {path} is not in docs/openapi.json");
    }
    assert_eq!(described.len(), requests_on_page().len() + 1);
}

#[tokio::test]
async fn server_accepts_exactly_the_methods_of_openapi() {
    let bench = TestServer::start_answering().await;
    let described = requests_in_openapi();
    for (_, path) in &described {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let mut stream = tokio::net::UnixStream::connect(bench.socket()).await.expect("a connection");
            let request = format!("{method} {path} HTTP/1.1\r\nHost: carnet\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("sent");
            // Read only the status code in the first line of the answer.
            let mut line = [0; 12];
            stream.read_exact(&mut line).await.expect("an answer");
            let is_described = described.iter().any(|(m, p)| m == method && p == path);
            let line = String::from_utf8_lossy(&line);
            assert_eq!(line != "HTTP/1.1 405", is_described, "{method} {path}: {line}");
            assert_ne!(line, "HTTP/1.1 404", "{path}");
        }
    }
}

#[tokio::test]
async fn request_body_must_be_a_json_object() {
    let bench = TestServer::start_answering().await;
    // serde would read a struct from an array, too: here a handover, and an event on the road.
    for (path, body) in
        [("/v1/handover", serde_json::json!(["wlan0"])), ("/v1/denm", serde_json::json!([null, 94]))]
    {
        let error = bench.api_client.post_json(path, &body).await.expect_err(path).to_string();
        assert!(error.contains("expected an object"), "{path}: {error}");
    }
}

#[test]
fn server_accepts_every_example_body_of_the_api_page() {
    fn assert_body_is_readable<T: serde::de::DeserializeOwned>(path: &str) {
        serde_json::from_value::<T>(example_body_of(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    for (_, path) in requests_on_page().into_iter().filter(|(method, _)| *method == "POST") {
        match path {
            "/v1/handover" => assert_body_is_readable::<HandoverRequest>(path),
            "/v1/portal" => assert_body_is_readable::<PortalRequest>(path),
            "/v1/drain" => assert_body_is_readable::<DrainRequest>(path),
            "/v1/drain/end" | "/v1/keys/read" => assert_body_is_readable::<Value>(path),
            "/v1/revoke" => assert_body_is_readable::<RevokeRequest>(path),
            "/v1/channel" => assert_body_is_readable::<ChannelRequest>(path),
            "/v1/pseudonym" => assert_body_is_readable::<PseudonymRequest>(path),
            "/v1/signal" => assert_body_is_readable::<SignalRequest>(path),
            "/v1/areas" => assert_body_is_readable::<AreaRequest>(path),
            "/v1/areas/remove" => assert_body_is_readable::<AreaRemoval>(path),
            "/v1/denm" | "/v1/denm/update" | "/v1/denm/cancel" | "/v1/denm/negate" => {
                assert_body_is_readable::<DenmRequest>(path);
            }
            "/v1/gnsend" => assert_body_is_readable::<GnSendRequest>(path),
            "/v1/gnping" => assert_body_is_readable::<GnPingRequest>(path),
            other => panic!("{other}: what is its body?"),
        }
    }
    assert_body_is_readable::<Vehicle>("/v1/vehicle");
}

/// Source file that declares the events.
const EVENTS_SOURCE: &str = include_str!("../../../../mobility/src/event.rs");

#[test]
fn api_page_lists_every_event_with_its_fields() {
    let (_, table) = API_PAGE.split_once("| event | fields | when |").expect("the table of events");
    let (_, declared) = EVENTS_SOURCE.split_once("pub enum Event {").expect("the events");
    let mut row = "";
    for line in declared.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let name = line.trim().trim_end_matches(" {");
        if line.starts_with("    ") && line.ends_with(" {") {
            let mut snake = String::new();
            for letter in name.chars() {
                if letter.is_uppercase() && !snake.is_empty() {
                    snake.push('_');
                }
                snake.extend(letter.to_lowercase());
            }
            let start = format!("| `{snake}` |");
            row = table.lines().find(|row| row.starts_with(&start)).unwrap_or_else(|| panic!("{snake}"));
        } else if let Some((field, _)) = name.split_once(": ") {
            assert!(row.contains(&format!("`{field}`")), "{field}: {row}");
        }
    }
}

#[test]
fn example_program_of_the_api_page_is_the_tested_one() {
    let (_, rest) = API_PAGE.split_once("```python\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    assert_eq!(example, include_str!("../../../../../docs/examples/stop-ahead.py"));
    assert!(example.lines().count() <= 20);
}
