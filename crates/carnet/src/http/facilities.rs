//! API of the facilities: the vehicle, events on the road, and the Local Dynamic Map.

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use carnet_api::model::{DenmRequest, missed_events};
use carnet_station::io::DenmAction;
use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;

use super::{
    ApiRefusal, ApiState, bad_query_refusal, get_route, get_route_with_query, json_response, post_route,
    put_route, read_json_body, stream_message, unix_time, wait_until_stopped,
};
use crate::facilities::{MessageFilter, denm_requests};
use crate::request::StationRequest;

pub(super) fn facilities_router() -> Router<ApiState> {
    Router::new()
        .route("/v1/vehicle", get_route(|app, _| app.query_or_refuse(StationRequest::Vehicle)))
        .route(
            "/v1/vehicle",
            put_route(|app, body| {
                app.command_with_body(body, |vehicle, reply| StationRequest::SetVehicle { vehicle, reply })
            }),
        )
        .route("/v1/denm", post_route(|app, body| Box::pin(handle_denm(app, DenmAction::Trigger, body))))
        .route(
            "/v1/denm/update",
            post_route(|app, body| Box::pin(handle_denm(app, DenmAction::Update, body))),
        )
        .route(
            "/v1/denm/cancel",
            post_route(|app, body| Box::pin(handle_denm(app, DenmAction::Cancel, body))),
        )
        .route(
            "/v1/denm/negate",
            post_route(|app, body| Box::pin(handle_denm(app, DenmAction::Negate, body))),
        )
        .route("/v1/ldm", get_route_with_query(|app, request| Box::pin(answer_ldm(app, request))))
        .route("/v1/services", get_route(|app, _| app.query_or_refuse(StationRequest::Services)))
        .route("/v1/messages", get_route_with_query(|app, request| Box::pin(stream_messages(app, request))))
}

fn unprocessable_refusal(mistake: String) -> ApiRefusal {
    ApiRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, mistake)
}

/// Answers `POST /v1/denm` and the requests about an existing event.
async fn handle_denm(app: ApiState, wish: DenmAction, body: HttpRequest) -> Result<Response, ApiRefusal> {
    let denm: Box<DenmRequest> = read_json_body(body).await?;
    let message = denm_requests::denm_for_station(wish, &denm).map_err(unprocessable_refusal)?;
    let triggered =
        app.answer_or_refusal(|reply| StationRequest::Denm { wish, message, denm, reply }).await?;
    Ok(match triggered {
        Some(triggered) => json_response(&triggered),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Returns the filter that the query of a request contains.
fn filter_of_query(request: &HttpRequest) -> Result<MessageFilter, ApiRefusal> {
    MessageFilter::parse(request.uri().query().unwrap_or_default()).map_err(bad_query_refusal)
}

/// Answers `GET /v1/ldm`.
async fn answer_ldm(app: ApiState, request: HttpRequest) -> Result<Response, ApiRefusal> {
    let filter = filter_of_query(&request)?;
    Ok(json_response(&app.answer_or_refusal(|reply| StationRequest::Ldm { filter, reply }).await?))
}

/// Answers `GET /v1/messages`.
async fn stream_messages(app: ApiState, request: HttpRequest) -> Result<Response, ApiRefusal> {
    let filter = filter_of_query(&request)?;
    let subscription = app.answer_or_refusal(|reply| StationRequest::Messages { filter, reply }).await?;
    Ok(super::stream_response(stream::unfold(
        (subscription, app.stop_receiver),
        |(mut subscription, stopped)| async {
            let message = loop {
                tokio::select! {
                    heard = subscription.message_receiver.recv() => match heard {
                        Ok(heard) if subscription.accepts_message(&heard) => break heard.json_text.clone(),
                        Ok(_) => {}
                        Err(RecvError::Lagged(count)) => break stream_message(&missed_events(unix_time(),
                            count)),
                        Err(RecvError::Closed) => return None,
                    },
                    () = wait_until_stopped(stopped.clone()) => return None,
                }
            };
            Some((message, (subscription, stopped)))
        },
    )))
}
