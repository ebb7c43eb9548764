//! Answers of the API to correct and wrong requests of applications.

use serde_json::json;

use super::TestServer;

#[tokio::test]
async fn denm_request_returns_action_id_and_wrong_request_an_error() {
    let bench = TestServer::start_answering().await;
    let made = bench.api_client.post_for("/v1/denm", &json!({"cause": 94})).await.expect("a name");
    assert_eq!(made, json!({"action_id": {"originating_station_id": 7, "sequence_number": 1}}));
    // The API accepts a name or a number, also a number with the fraction zero.
    for cause in [json!("stationary_vehicle"), json!(94.0)] {
        let again =
            bench.api_client.post_for("/v1/denm", &json!({"cause": cause, "validity_s": 600.0})).await;
        assert_eq!(again.expect("a name"), made);
    }
    let action = json!({"originating_station_id": 7, "sequence_number": 1});
    bench.api_client.post_json("/v1/denm/cancel", &json!({"action_id": action})).await.expect("an end");
    for (path, body, expected) in [
        ("/v1/denm", json!({}), "cause is missing"),
        ("/v1/denm", json!({"cause": 1}), "largest number of events"),
        ("/v1/denm", json!({"cause": 94, "colour": "red"}), "unknown field `colour`"),
        (
            "/v1/denm",
            json!({"cause": "boredom"}),
            "expected a cause from 0 to 255 or one of traffic_condition",
        ),
        ("/v1/denm", json!({"cause": 94.5}), "invalid type: floating point `94.5`"),
        ("/v1/denm", json!({"cause": 256.0}), "integer `256`"),
        ("/v1/denm/update", json!({"cause": 94}), "action_id is missing"),
        ("/v1/denm/negate", json!({}), "action_id is missing"),
    ] {
        let told = bench.api_client.post_json(path, &body).await.expect_err(path).to_string();
        assert!(told.contains(expected), "{path}: {told}");
    }
}

#[tokio::test]
async fn ldm_request_applies_its_filter() {
    let bench = TestServer::start_answering().await;
    let map = bench.api_client.get("/v1/ldm?type=cam&station_type=bus").await.expect("a map");
    assert_eq!(map, json!({"stations": [], "events": []}));
    for (path, expected) in [
        ("/v1/ldm?area=nowhere", "there is no area nowhere"),
        ("/v1/ldm?typ=cam", "\"typ\" is not known"),
        ("/v1/messages?cause=boredom", "cause: \"boredom\" is not known"),
        ("/v1/messages", "no facilities"),
        ("/v1/services?type=cam", "\"type\" is not known, expected no parameters"),
        ("/v1/status?verbose", "\"verbose\" is not known"),
        ("/v1/gnrecv?prot=2001", "\"prot\" is not known, expected port"),
        ("/v1/gnrecv?port=65536", "port is \"65536\", expected a number"),
    ] {
        let told = bench.api_client.get(path).await.expect_err(path).to_string();
        assert!(told.contains(expected), "{path}: {told}");
    }
}
