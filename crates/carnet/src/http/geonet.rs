//! The GeoNetworking part of the API.

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::http::StatusCode;
use axum::response::Response;
use carnet_api::model::{
    AreaRemoval, AreaRequest, AreaShape, GnArea, GnAround, GnNextHeader, GnPingRequest, GnSendRequest,
    GnTransport, missed_events,
};
use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;

use super::{
    ApiRefusal, ApiState, bad_query_refusal, get_route, get_route_with_query, post_route, read_json_body,
    stream_message, unix_time, wait_until_stopped,
};
use crate::request::StationRequest;

/// Maximum number of requests of one ping, because their sequence number has 16 bits.
const MAX_PING_COUNT: u32 = 65535;
/// Shortest and longest interval between two requests of a ping, milliseconds.
const PING_INTERVAL_MS: std::ops::RangeInclusive<u64> = 1..=3_600_000;
/// Longest lifetime of a packet in milliseconds (itsGnMaxPacketLifetime).
const MAX_LIFETIME_MS: u64 = 600_000;
/// Largest number of characters of an area's name.
const MAX_AREA_NAME_LENGTH: usize = 64;
/// Longest lifetime of an area in milliseconds: a year. An area without a lifetime lasts as long as the
/// station runs.
const MAX_AREA_LIFETIME_MS: u64 = 366 * 24 * 3_600_000;

pub(super) fn geonet_router() -> Router<ApiState> {
    Router::new()
        .route("/v1/neighbours", get_route(|app, _| app.query_or_refuse(StationRequest::Neighbours)))
        .route("/v1/locations", get_route(|app, _| app.query_or_refuse(StationRequest::Locations)))
        .route("/v1/areas", get_route(|app, _| app.query_or_refuse(StationRequest::Areas)))
        .route("/v1/areas", post_route(|app, body| Box::pin(set_area(app, body))))
        .route(
            "/v1/areas/remove",
            post_route(|app, body| {
                app.command_with_body(body, |AreaRemoval { name }, reply| StationRequest::RemoveArea {
                    name,
                    reply,
                })
            }),
        )
        .route("/v1/groups", get_route(|app, _| app.query_or_refuse(StationRequest::Groups)))
        .route("/v1/dcc", get_route(|app, _| app.query_or_refuse(StationRequest::Dcc)))
        .route(
            "/v1/channel",
            post_route(|app, body| {
                app.command_with_body(body, |channel, reply| StationRequest::Channel { channel, reply })
            }),
        )
        .route("/v1/security", get_route(|app, _| app.query_or_refuse(StationRequest::Security)))
        .route(
            "/v1/pseudonym",
            post_route(|app, body| {
                app.command_with_body(body, |pseudonym, reply| StationRequest::Pseudonym { pseudonym, reply })
            }),
        )
        .route("/v1/gnsend", post_route(|app, body| Box::pin(handle_gnsend(app, body))))
        .route("/v1/gnping", post_route(|app, body| Box::pin(handle_gnping(app, body))))
        .route("/v1/gnrecv", get_route_with_query(|app, request| Box::pin(handle_gnrecv(app, request))))
}

fn unprocessable_refusal(mistake: String) -> ApiRefusal {
    ApiRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, mistake)
}

/// Answers `POST /v1/areas`.
async fn set_area(app: ApiState, body: HttpRequest) -> Result<Response, ApiRefusal> {
    let area = read_json_body(body).await?;
    match mistake_in_area(&area) {
        Some(mistake) => Err(unprocessable_refusal(mistake)),
        None => app.empty_answer(|reply| StationRequest::SetArea { area, reply }).await,
    }
}

/// Returns the mistake in an area that no station would accept; `None` for any other area.
fn mistake_in_area(area: &AreaRequest) -> Option<String> {
    let name = &area.name;
    if name.is_empty() || name.chars().count() > MAX_AREA_NAME_LENGTH || name.chars().any(char::is_control) {
        return Some(format!(
            "name is {name:?}, expected 1 to {MAX_AREA_NAME_LENGTH} characters, \
             none of them a control character"
        ));
    }
    let circle = area.shape == AreaShape::Circle;
    if circle && (area.distance_b_m.is_some() || area.angle_deg.is_some()) {
        return Some("a circle has no distance_b_m and no angle_deg, expected distance_a_m alone".to_owned());
    }
    if !circle && area.distance_b_m.is_none() {
        return Some("distance_b_m is missing: only a circle has none".to_owned());
    }
    if area.distance_a_m == 0 || area.distance_b_m == Some(0) {
        return Some("a distance is 0, expected 1 to 65535".to_owned());
    }
    if let Some(angle) = area.angle_deg.filter(|angle| *angle >= 360) {
        return Some(format!("angle_deg is {angle}, expected 0 to 359"));
    }
    if let Some(lifetime) = area.lifetime_ms.filter(|lifetime| !(1..=MAX_AREA_LIFETIME_MS).contains(lifetime))
    {
        return Some(format!("lifetime_ms is {lifetime}, expected 1 to {MAX_AREA_LIFETIME_MS}"));
    }
    match area.around {
        GnAround::Place(place) => mistake_in_coordinates(place.latitude, place.longitude),
        GnAround::Here | GnAround::Station(_) => None,
    }
}

/// Returns the mistake in coordinates that are not on the globe; `None` for valid coordinates.
fn mistake_in_coordinates(latitude: f64, longitude: f64) -> Option<String> {
    let is_on = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
    (!is_on).then(|| {
        format!(
            "{latitude}, {longitude} is not on the globe, expected a latitude from -90 to 90 and a longitude \
             from -180 to 180"
        )
    })
}

/// Answers `POST /v1/gnsend`.
async fn handle_gnsend(app: ApiState, body: HttpRequest) -> Result<Response, ApiRefusal> {
    let packet = read_json_body(body).await?;
    match mistake_in_packet(&packet) {
        Some(mistake) => Err(unprocessable_refusal(mistake)),
        None => app.empty_answer(|reply| StationRequest::GnSend { packet, reply }).await,
    }
}

/// Returns the mistake in a packet that no station would send; `None` for any other packet.
fn mistake_in_packet(packet: &GnSendRequest) -> Option<String> {
    let shb = matches!(packet.transport, GnTransport::Shb {});
    let btp = matches!(packet.next_header, GnNextHeader::BtpA | GnNextHeader::BtpB);
    if packet.port.is_some() && !btp {
        return Some("a port needs BTP, expected a next_header of btp-a or btp-b".to_owned());
    }
    match packet.hop_limit {
        Some(0) => return Some("hop_limit is 0, expected 1 to 255".to_owned()),
        Some(hops) if shb && hops != 1 => {
            return Some(format!("hop_limit is {hops}, expected none or 1: shb goes one hop"));
        }
        _ => {}
    }
    if let Some(lifetime) = packet.lifetime_ms.filter(|lifetime| !(50..=MAX_LIFETIME_MS).contains(lifetime)) {
        return Some(format!("lifetime_ms is {lifetime}, expected 50 to {MAX_LIFETIME_MS}"));
    }
    match &packet.transport {
        GnTransport::Gac { area: GnArea::Circle(circle) }
        | GnTransport::Gbc { area: GnArea::Circle(circle) } => {
            let empty = (circle.radius_m == 0).then(|| "radius_m is 0, expected 1 to 65535".to_owned());
            mistake_in_coordinates(circle.latitude, circle.longitude).or(empty)
        }
        _ => None,
    }
}

/// Answers `POST /v1/gnping`.
async fn handle_gnping(app: ApiState, body: HttpRequest) -> Result<Response, ApiRefusal> {
    let ping: GnPingRequest = read_json_body(body).await?;
    if !(1..=MAX_PING_COUNT).contains(&ping.count) {
        return Err(unprocessable_refusal(format!(
            "count is {}, expected 1 to {MAX_PING_COUNT}",
            ping.count
        )));
    }
    for (name, value) in [("interval_ms", ping.interval_ms), ("timeout_ms", ping.timeout_ms)] {
        if !PING_INTERVAL_MS.contains(&value) {
            let (low, high) = (PING_INTERVAL_MS.start(), PING_INTERVAL_MS.end());
            return Err(unprocessable_refusal(format!("{name} is {value}, expected {low} to {high}")));
        }
    }
    let answers = app.answer_or_refusal(|reply| StationRequest::GnPing { ping, reply }).await?;
    Ok(super::stream_response(stream::unfold((answers, app.stop_receiver), |(mut answers, stopped)| async {
        let event = tokio::select! {
            event = answers.recv() => event?,
            () = wait_until_stopped(stopped.clone()) => return None,
        };
        Some((stream_message(&event), (answers, stopped)))
    })))
}

/// Parses the ports in `port=` of a query. An empty list selects payloads to any port, and payloads without a
/// port.
fn parse_ports(query: &str) -> Result<Vec<u16>, String> {
    let mut ports = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key != "port" {
            return Err(format!("{key:?} is not known, expected port"));
        }
        for word in value.split(',') {
            let port = word.parse();
            ports.push(port.map_err(|_| format!("port is {word:?}, expected a number from 0 to 65535"))?);
        }
    }
    Ok(ports)
}

/// Answers `GET /v1/gnrecv`.
async fn handle_gnrecv(app: ApiState, request: HttpRequest) -> Result<Response, ApiRefusal> {
    let ports = parse_ports(request.uri().query().unwrap_or_default()).map_err(bad_query_refusal)?;
    let received = app.answer_or_refusal(StationRequest::GnReceive).await?;
    let state = (received, app.stop_receiver, ports);
    Ok(super::stream_response(stream::unfold(state, |(mut received, stopped, ports)| async {
        let message = loop {
            tokio::select! {
                payload = received.recv() => match payload {
                    Ok(payload) if ports.is_empty() => break stream_message(&payload),
                    Ok(payload) if payload.port.is_some_and(|port| ports.contains(&port)) => {
                        break stream_message(&payload);
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(count)) => break stream_message(&missed_events(unix_time(), count)),
                    Err(RecvError::Closed) => return None,
                },
                () = wait_until_stopped(stopped.clone()) => return None,
            }
        };
        Some((message, (received, stopped, ports)))
    })))
}
