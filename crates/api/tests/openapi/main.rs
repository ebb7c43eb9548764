//! `docs/openapi.json`: the API in OpenAPI 3.1, generated from the sources. The requests come from the table
//! at the head of `model.rs`, their description from `docs/api.md`. The bodies come from the types of
//! `model.rs` and of the protocol crates ([`API_SOURCES`]) and their serde attributes, with the comments of
//! the fields. So no text is written twice, and the program does not contain the description.
//!
//! `CARNET_UPDATE_OPENAPI=1 cargo test -p carnet-api --test openapi` writes the file. Another test checks
//! that the server knows exactly these requests (`crates/carnet/src/http/tests/page.rs`). `make test-api`
//! checks that its answers match the description.

mod schema;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use schema::ApiTypes;

/// Files with types of the API: the API's own types, those of the protocol crates, and those of crates below
/// them. Two files define a type `Area`. The later file counts: `Area` of `status.rs`, not the one of
/// recordings in `position.rs`.
const API_SOURCES: [&str; 16] = [
    "crates/cits/src/position.rs",
    "crates/api/src/model.rs",
    "crates/api/src/model/lan.rs",
    "crates/base/src/status.rs",
    "crates/cits/src/facilities/command.rs",
    "crates/cits/src/facilities/output.rs",
    "crates/cits/src/facilities/status.rs",
    "crates/cits/src/geonetworking/command.rs",
    "crates/cits/src/geonetworking/output.rs",
    "crates/cits/src/geonetworking/status.rs",
    "crates/cits/src/security/command.rs",
    "crates/cits/src/security/status.rs",
    "crates/mobility/src/home_agent/drain.rs",
    "crates/mobility/src/mobile_router/policies.rs",
    "crates/nemo/src/command.rs",
    "crates/nemo/src/status.rs",
];

/// A request of the table in `model.rs`.
struct ApiRequest {
    http_method: String,
    path: String,
    /// Type of the request's body.
    body_type: Option<String>,
    /// Type of the answer, as the table in `model.rs` names it.
    answer_type: String,
}

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read_file(path: &str) -> String {
    fs::read_to_string(repository_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the type in a cell of the table, such as "array of [`Binding`]"; `None` for a cell without a type.
fn type_in_cell(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("[`")?;
    rest.split_once("`]").map(|(name, _)| name.to_owned())
}

fn requests_in_source(source: &str) -> Vec<ApiRequest> {
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | `")?.strip_suffix(" |"));
    let requests = rows.map(|row| {
        let (request, rest) = row.split_once('`').expect("a request");
        let (method, path) = request.split_once(' ').expect("a method and a path");
        let (with, answer) = rest.split_once(" | ").expect("an answer");
        ApiRequest {
            http_method: method.to_lowercase(),
            path: path.into(),
            body_type: type_in_cell(with),
            answer_type: answer.into(),
        }
    });
    requests.collect()
}

/// Returns the description of a request from `docs/api.md`.
fn request_description(page: &str, request: &ApiRequest) -> String {
    let start = format!("| `{} {}` | ", request.http_method.to_uppercase(), request.path);
    let row = page.lines().find_map(|line| line.strip_prefix(&start));
    let row = row.unwrap_or_else(|| panic!("docs/api.md has no row {start}"));
    row.split(" | ").next().expect("a cell").to_owned()
}

/// Returns the query parameters, from the table of `docs/api.md`.
fn query_parameters(page: &str) -> Vec<Value> {
    let (_, table) = page.split_once("| key | meaning |\n|---|---|\n").expect("the table of keys");
    let rows = table.lines().map_while(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let parameter = |row: &str| {
        let (names, meaning) = row.split_once(" | ").expect("a meaning");
        let names: Vec<String> =
            names.split(',').map(|name| name.trim_matches([' ', '`']).to_owned()).collect();
        let meaning = meaning.to_owned();
        names.into_iter().map(move |name| {
            let schema = match name.as_str() {
                "latitude" => json!({"type": "number", "minimum": -90, "maximum": 90}),
                "longitude" => json!({"type": "number", "minimum": -180, "maximum": 180}),
                "radius_m" => json!({"type": "number", "minimum": 1, "maximum": 65535}),
                "type" => json!({"type": "string", "pattern": "^(cam|denm)(,(cam|denm))*$"}),
                _ => json!({"type": "string", "minLength": 1}),
            };
            json!({"name": name, "in": "query", "description": meaning, "schema": schema})
        })
    };
    rows.flat_map(parameter).collect()
}

fn answer_schema(types: &mut ApiTypes, request: &ApiRequest) -> (&'static str, Value) {
    let name = type_in_cell(&request.answer_type).filter(|name| name.starts_with(char::is_uppercase));
    let schema = name.as_deref().map(|name| types.reference_to(name));
    let text = request.answer_type.as_str();
    let json = |schema: Value| {
        json!({"description": "The \
        answer.", "content": {"application/json": {"schema": schema}}})
    };
    if text.starts_with("none") {
        ("204", json!({"description": "Done."}))
    } else if text.starts_with("stream") {
        // OpenAPI 3.1 cannot describe the messages of a stream; `x-message` has the schema of one.
        let mut content = json!({"schema": {"type": "string"}});
        if let Some(schema) = schema {
            content["x-message"] = schema;
        }
        (
            "200",
            json!({"description": "A stream of JSON objects.", "content": {"text/event-stream": content}}),
        )
    } else if text.starts_with("text") {
        let content = json!({"text/plain": {"schema": {"type": "string"}}});
        ("200", json!({"description": "Prometheus' text format.", "content": content}))
    } else {
        let schema =
            schema.unwrap_or_else(|| panic!("{} {}: what is its answer?", request.http_method, request.path));
        (
            "200",
            json(match text.split(' ').next() {
                Some("array") => json!({"type": "array", "items": schema}),
                Some("null") => json!({"anyOf": [schema, {"type": "null"}]}),
                _ => schema,
            }),
        )
    }
}

fn openapi_document() -> Value {
    let (source, page) = (read_file("crates/api/src/model.rs"), read_file("docs/api.md"));
    let mut types = ApiTypes::read_sources(&API_SOURCES.map(read_file));
    let requests = requests_in_source(&source);
    assert!(requests.len() > 25, "the table at the head of model.rs");
    types.note_request_types(requests.iter().filter_map(|request| request.body_type.as_deref()));
    let mut paths = Map::new();
    for request in &requests {
        let id = request.path.trim_start_matches("/v1").replace('/', "_");
        let mut operation = json!({
            "operationId": format!("{}{id}", request.http_method),
            "description": request_description(&page, request),
            "responses": {
                "4XX": {"$ref": "#/components/responses/Refused"},
                "5XX": {"$ref": "#/components/responses/Unable"},
            },
        });
        let (status, answer) = answer_schema(&mut types, request);
        operation["responses"][status] = answer;
        if let Some(body) = &request.body_type {
            let schema = types.reference_to(body);
            operation["requestBody"] =
                json!({"required": true, "content": {"application/json": {"schema": schema}}});
        }
        if ["/v1/ldm", "/v1/messages"].contains(&request.path.as_str()) {
            operation["parameters"] = query_parameters(&page).into();
        }
        if request.path == "/v1/gnrecv" {
            operation["parameters"] = json!([{
                "name": "port",
                "in": "query",
                "description": "only payloads to these BTP ports, with commas between them",
                "schema": {"type": "string", "pattern": "^[0-9]{1,4}(,[0-9]{1,4})*$"},
            }]);
        }
        let path = paths.entry(request.path.clone()).or_insert_with(|| json!({}));
        assert!(path.get(&request.http_method).is_none(), "{} {} twice", request.http_method, request.path);
        path[&request.http_method] = operation;
    }
    let refusal = types.reference_to("ErrorBody");
    let refusal = |description: &str| {
        json!({"description": description, "content": {"application/\
        json": {"schema": refusal}}})
    };
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "carnet",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A running station: mobile router, home agent, GeoNetworking router. See \
                            docs/api.md. Fields may be added to answers, never renamed or taken away.",
            "license": {"name": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": "http://localhost:8440", "description": "station.http; the UNIX socket has the \
            same"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "responses": {
                "Refused": refusal("The request makes no sense (400, 404, 405, 413, 415, 422), needs a token \
                                    (401) or a better one (403), or the station says no (409)."),
                "Unable": refusal("The station is about to stop (503) or does not answer (504)."),
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer",
                                          "description": "Over TCP, with station.http_tokens."}},
            "schemas": types.into_schemas(),
        },
    })
}

#[test]
fn openapi_description_matches_the_sources() {
    let made = openapi_document();
    let path = repository_root().join("docs/openapi.json");
    if std::env::var_os("CARNET_UPDATE_OPENAPI").is_some() {
        let text = serde_json::to_string_pretty(&made).expect("JSON");
        fs::write(&path, text + "\n").expect("docs/openapi.json is written");
    }
    let there: Value =
        serde_json::from_str(&read_file("docs/openapi.json")).expect("docs/openapi.json is JSON");
    assert!(
        made == there,
        "docs/openapi.json is not what the sources say: CARNET_UPDATE_OPENAPI=1 cargo test -p carnet-api \
         --test openapi"
    );
}

#[test]
fn every_public_type_of_the_api_is_described() {
    let document = openapi_document();
    let described = document["components"]["schemas"].as_object().expect("schemas");
    // Types that model.rs re-exports, and types that it defines.
    let source = read_file("crates/api/src/model.rs");
    let declared = source.lines().filter_map(|line| {
        line.strip_prefix("pub struct ")
            .or(line.strip_prefix("pub enum "))?
            .split(' ')
            .next()
            .map(str::to_owned)
    });
    let (_, lists) = source.split_once("pub use ").expect("what is handed on");
    let (lists, _) = lists.split_once("\n///").expect("its end");
    let listed =
        lists.split(|c: char| !c.is_alphanumeric()).filter(|word| word.starts_with(char::is_uppercase));
    // `ParseTargetError` is a Rust error, which no body contains.
    for name in declared.chain(listed.map(str::to_owned)).filter(|name| name != "ParseTargetError") {
        assert!(
            described.contains_key(&name),
            "{name} is in no request and no answer of the table in model.rs"
        );
    }
}

#[test]
fn serialized_answers_match_the_openapi_description() {
    // For three types, compare the fields that serde writes with the fields of the schema.
    let document = openapi_document();
    let fields = |name: &str| -> Vec<String> {
        let schema = &document["components"]["schemas"][name];
        schema["properties"].as_object().expect(name).keys().cloned().collect()
    };
    let keys =
        |value: Value| -> Vec<String> { value.as_object().expect("an object").keys().cloned().collect() };
    let vehicle = serde_json::to_value(carnet_api::model::Vehicle::default()).expect("JSON");
    assert_eq!(keys(vehicle), fields("Vehicle"));
    let ldm = serde_json::to_value(carnet_api::model::Ldm::default()).expect("JSON");
    assert_eq!(keys(ldm), fields("Ldm"));
    let denm = serde_json::to_value(carnet_api::model::DenmRequest::default()).expect("JSON");
    assert_eq!(keys(denm), fields("DenmRequest"));
}
