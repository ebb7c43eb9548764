//! The part of the API that is about GeoNetworking.

use std::convert::Infallible;

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::{get, post};
use carnet_api::model::{
    AreaRemoval, AreaRequest, AreaShape, GnArea, GnAround, GnNextHeader, GnPingRequest, GnSendRequest,
    GnTransport, missed,
};
use futures_util::stream::{self, Stream};
use tokio::sync::broadcast::error::RecvError;

use super::{App, Refusal, unix_time, when};
use crate::request::Request;

/// Requests of one ping: they are numbered with 16 bits.
const MAX_PINGS: u32 = 65535;
/// The shortest interval between them, and the longest.
const PING_INTERVAL_MS: std::ops::RangeInclusive<u64> = 1..=3_600_000;
/// itsGnMaxPacketLifetime
const MAX_LIFETIME_MS: u64 = 600_000;
/// Characters of an area's name.
const NAME: usize = 64;
/// How long an area may last: a year. Without a lifetime it lasts as long as the station.
const MAX_AREA_LIFETIME_MS: u64 = 366 * 24 * 3_600_000;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route(
            "/v1/neighbours",
            get(|State(app): State<App>| async move { app.ask_whether(Request::Neighbours).await }),
        )
        .route(
            "/v1/locations",
            get(|State(app): State<App>| async move { app.ask_whether(Request::Locations).await }),
        )
        .route(
            "/v1/areas",
            get(|State(app): State<App>| async move { app.ask_whether(Request::Areas).await }).post(set_area),
        )
        .route("/v1/areas/remove", post(remove_area))
        .route(
            "/v1/groups",
            get(|State(app): State<App>| async move { app.ask_whether(Request::Groups).await }),
        )
        .route("/v1/gnsend", post(send))
        .route("/v1/gnping", post(ping))
        .route("/v1/gnrecv", get(receive))
}

/// `POST /v1/areas`
async fn set_area(
    State(app): State<App>,
    body: Result<Json<AreaRequest>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(area) = body.map_err(Refusal::body)?;
    if let Some(mistake) = mistake_in_area(&area) {
        return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, mistake));
    }
    app.try_answer(|reply| Request::SetArea { area, reply }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/areas/remove`
async fn remove_area(
    State(app): State<App>,
    body: Result<Json<AreaRemoval>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(AreaRemoval { name }) = body.map_err(Refusal::body)?;
    app.try_answer(|reply| Request::RemoveArea { name, reply }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What is wrong with an area whatever the station is.
fn mistake_in_area(area: &AreaRequest) -> Option<String> {
    let name = &area.name;
    if name.is_empty() || name.chars().count() > NAME || name.chars().any(char::is_control) {
        return Some(format!(
            "name is {name:?}, expected 1 to {NAME} characters, none of them a control character"
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
        GnAround::Place(place) => off_the_globe(place.latitude, place.longitude),
        GnAround::Here | GnAround::Station(_) => None,
    }
}

/// What is wrong with a place.
fn off_the_globe(latitude: f64, longitude: f64) -> Option<String> {
    let is_on = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
    (!is_on).then(|| {
        format!(
            "{latitude}, {longitude} is not on the globe, expected a latitude from -90 to 90 and a longitude from \
             -180 to 180"
        )
    })
}

/// `POST /v1/gnsend`
async fn send(
    State(app): State<App>,
    body: Result<Json<GnSendRequest>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(packet) = body.map_err(Refusal::body)?;
    if let Some(mistake) = mistake_in_packet(&packet) {
        return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, mistake));
    }
    app.try_answer(|reply| Request::GnSend { packet, reply }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What is wrong with a packet whatever the station is.
fn mistake_in_packet(packet: &GnSendRequest) -> Option<String> {
    let shb = matches!(packet.transport, GnTransport::Shb {});
    let btp = matches!(packet.next_header, GnNextHeader::BtpA | GnNextHeader::BtpB);
    if packet.port.is_some() && !btp {
        return Some("a port goes with BTP only, expected a next_header of btp-a or btp-b".to_owned());
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
            off_the_globe(circle.latitude, circle.longitude).or(empty)
        }
        _ => None,
    }
}

/// `POST /v1/gnping`
async fn ping(
    State(app): State<App>,
    body: Result<Json<GnPingRequest>, JsonRejection>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let Json(ping) = body.map_err(Refusal::body)?;
    let unprocessable = |mistake| Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, mistake));
    if !(1..=MAX_PINGS).contains(&ping.count) {
        return unprocessable(format!("count is {}, expected 1 to {MAX_PINGS}", ping.count));
    }
    for (name, value) in [("interval_ms", ping.interval_ms), ("timeout_ms", ping.timeout_ms)] {
        if !PING_INTERVAL_MS.contains(&value) {
            let (low, high) = (PING_INTERVAL_MS.start(), PING_INTERVAL_MS.end());
            return unprocessable(format!("{name} is {value}, expected {low} to {high}"));
        }
    }
    let answers = app.try_answer(|reply| Request::GnPing { ping, reply }).await?;
    let stream = stream::unfold((answers, app.stopped), |(mut answers, stopped)| async {
        let event = tokio::select! {
            event = answers.recv() => event?,
            () = when(stopped.clone()) => return None,
        };
        Some((Ok(message(&event)), (answers, stopped)))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

/// `GET /v1/gnrecv`
async fn receive(
    State(app): State<App>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let received = app.try_answer(Request::GnReceive).await?;
    let stream = stream::unfold((received, app.stopped), |(mut received, stopped)| async {
        let event = tokio::select! {
            payload = received.recv() => match payload {
                Ok(payload) => message(&payload),
                Err(RecvError::Lagged(count)) => message(&missed(unix_time(), count)),
                Err(RecvError::Closed) => return None,
            },
            () = when(stopped.clone()) => return None,
        };
        Some((Ok(event), (received, stopped)))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

/// A message of an event stream. These types always become JSON; were it otherwise, an empty message would
/// say no less.
fn message<T: serde::Serialize>(value: &T) -> Event {
    Event::default().json_data(value).unwrap_or_default()
}
