//! API of the facilities: the vehicle, events on the road, and the Local Dynamic Map.

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use carnet_api::model::{DenmRequest, missed};
use carnet_station::io::DenmWish;
use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;

use super::{App, Refusal, bad_query, get, get_with_query, json, message, post, put, read, unix_time, when};
use crate::facilities::{Filter, denm};
use crate::request::Request;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/v1/vehicle", get(|app, _| app.ask_whether(Request::Vehicle)))
        .route(
            "/v1/vehicle",
            put(|app, body| app.tell(body, |vehicle, reply| Request::SetVehicle { vehicle, reply })),
        )
        .route("/v1/denm", post(|app, body| Box::pin(speak(app, DenmWish::Trigger, body))))
        .route("/v1/denm/update", post(|app, body| Box::pin(speak(app, DenmWish::Update, body))))
        .route("/v1/denm/cancel", post(|app, body| Box::pin(speak(app, DenmWish::Cancel, body))))
        .route("/v1/denm/negate", post(|app, body| Box::pin(speak(app, DenmWish::Negate, body))))
        .route("/v1/ldm", get_with_query(|app, request| Box::pin(ldm(app, request))))
        .route("/v1/services", get(|app, _| app.ask_whether(Request::Services)))
        .route("/v1/messages", get_with_query(|app, request| Box::pin(messages(app, request))))
}

fn unprocessable(mistake: String) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, mistake)
}

/// Answers `POST /v1/denm` and the requests about an existing event.
async fn speak(app: App, wish: DenmWish, body: HttpRequest) -> Result<Response, Refusal> {
    let denm: Box<DenmRequest> = read(body).await?;
    let message = denm::message(wish, &denm).map_err(unprocessable)?;
    let triggered = app.try_answer(|reply| Request::Denm { wish, message, denm, reply }).await?;
    Ok(match triggered {
        Some(triggered) => json(&triggered),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Returns the filter that the query of a request contains.
fn filter(request: &HttpRequest) -> Result<Filter, Refusal> {
    Filter::parse(request.uri().query().unwrap_or_default()).map_err(bad_query)
}

/// Answers `GET /v1/ldm`.
async fn ldm(app: App, request: HttpRequest) -> Result<Response, Refusal> {
    let filter = filter(&request)?;
    Ok(json(&app.try_answer(|reply| Request::Ldm { filter, reply }).await?))
}

/// Answers `GET /v1/messages`.
async fn messages(app: App, request: HttpRequest) -> Result<Response, Refusal> {
    let filter = filter(&request)?;
    let subscription = app.try_answer(|reply| Request::Messages { filter, reply }).await?;
    Ok(super::stream(stream::unfold((subscription, app.stopped), |(mut subscription, stopped)| async {
        let message = loop {
            tokio::select! {
                heard = subscription.messages.recv() => match heard {
                    Ok(heard) if subscription.wants(&heard) => break heard.json.clone(),
                    Ok(_) => {}
                    Err(RecvError::Lagged(count)) => break message(&missed(unix_time(), count)),
                    Err(RecvError::Closed) => return None,
                },
                () = when(stopped.clone()) => return None,
            }
        };
        Some((message, (subscription, stopped)))
    })))
}
