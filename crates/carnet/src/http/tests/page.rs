//! `docs/api.md` against the server.

use carnet_api::model::{
    AreaRemoval, AreaRequest, DrainRequest, GnPingRequest, GnSendRequest, HandoverRequest, RevokeRequest,
    SignalRequest,
};
use serde_json::Value;

use super::Bench;

const PAGE: &str = include_str!("../../../../../docs/api.md");
/// Where the paths stand in the sources.
const SOURCES: [&str; 2] = [include_str!("../../http.rs"), include_str!("../geonet.rs")];

/// Method and path of every request of the page.
fn requests() -> Vec<(&'static str, &'static str)> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let requests = rows.filter_map(|(request, _)| request.split_once(' '));
    requests.filter(|(method, _)| ["GET", "POST"].contains(method)).collect()
}

/// The example of a body, behind the name of its request.
fn body(path: &str) -> Value {
    let (_, rest) =
        PAGE.split_once(&format!("\n`POST {path}`")).unwrap_or_else(|| panic!("no body of {path}"));
    let (_, rest) = rest.split_once("```json\n").expect("a body");
    let (json, _) = rest.split_once("\n```").expect("its end");
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_page_has_every_path_of_the_server() {
    for source in SOURCES {
        for path in source.split('"').filter(|text| text.starts_with("/v1/")) {
            assert!(requests().iter().any(|(_, listed)| *listed == path), "{path}");
        }
    }
}

#[tokio::test]
async fn the_server_has_every_request_of_the_page() {
    assert!(requests().len() > 15);
    let bench = Bench::answering().await;
    for (method, path) in requests() {
        let answer = match method {
            "GET" => bench.client.follow(path).await.map(drop),
            _ => bench.client.post_and_follow(path, &body(path)).await.map(drop),
        };
        if let Err(error) = answer {
            let error = error.to_string();
            assert!(
                !["no such path", "that method", "about to stop"].iter().any(|text| error.contains(text)),
                "{method} {path}: {error}"
            );
        }
    }
}

#[test]
fn every_body_of_the_page_is_read() {
    fn read<T: serde::de::DeserializeOwned>(path: &str) {
        serde_json::from_value::<T>(body(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    for (_, path) in requests().into_iter().filter(|(method, _)| *method == "POST") {
        match path {
            "/v1/handover" => read::<HandoverRequest>(path),
            "/v1/drain" => read::<DrainRequest>(path),
            "/v1/drain/end" => read::<Value>(path),
            "/v1/revoke" => read::<RevokeRequest>(path),
            "/v1/signal" => read::<SignalRequest>(path),
            "/v1/areas" => read::<AreaRequest>(path),
            "/v1/areas/remove" => read::<AreaRemoval>(path),
            "/v1/gnsend" => read::<GnSendRequest>(path),
            "/v1/gnping" => read::<GnPingRequest>(path),
            other => panic!("{other}: what is its body?"),
        }
    }
}

/// Where events are declared.
const EVENTS: &str = include_str!("../../../../mobility/src/event.rs");

#[test]
fn the_page_has_every_event_with_its_fields() {
    let (_, table) = PAGE.split_once("| event | fields | when |").expect("the table of events");
    let (_, declared) = EVENTS.split_once("pub enum Event {").expect("the events");
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
