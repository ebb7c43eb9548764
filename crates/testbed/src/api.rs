//! A client of a station's API: HTTP/1.0 over the UNIX socket.
//!
//! HTTP/1.0 has no chunked answers and no persistent connections: the station closes the connection after its
//! answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

/// Maximum time that a station may take for an answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Error for a request that a station has refused.
#[derive(Debug)]
pub struct RequestRefused {
    /// The HTTP status.
    pub status: u16,
    /// Error message: the request, the status code and the whole answer.
    error_message: String,
    /// Reason for the refusal, from the station's answer.
    pub reason: String,
}

impl std::fmt::Display for RequestRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.error_message)
    }
}

impl std::error::Error for RequestRefused {}

/// Sends an HTTP request, and reads the status and the headers of the answer.
fn send_request(
    socket: &Path,
    method: &str,
    path: &str,
    body: &str,
) -> anyhow::Result<BufReader<UnixStream>> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("cannot reach {}", socket.display()))?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: carnet\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut status = String::new();
    reader.read_line(&mut status)?;
    let code: u16 = status.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            break;
        }
    }
    if (200..300).contains(&code) {
        return Ok(reader);
    }
    let mut said = String::new();
    let _ = reader.read_to_string(&mut said);
    let text = format!(
        "the station at {} answered the request {path} with {}: {}",
        socket.display(),
        status.trim(),
        said.trim()
    );
    let error = |body: Value| Some(body["error"].as_str()?.to_owned());
    let said = serde_json::from_str(&said).ok().and_then(error).unwrap_or_else(|| said.trim().to_owned());
    Err(RequestRefused { status: code, error_message: text, reason: said }.into())
}

/// Sends a `GET` request, and returns the answer's JSON.
pub fn get(socket: &Path, path: &str) -> anyhow::Result<Value> {
    let mut reader = send_request(socket, "GET", path, "")?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    serde_json::from_str(&text).with_context(|| format!("{path} is no JSON: {text}"))
}

/// Sends a `POST` request with JSON, and returns the answer's JSON, or `null` if the answer is empty.
pub fn post_json(socket: &Path, path: &str, body: &Value) -> anyhow::Result<Value> {
    let mut reader = send_request(socket, "POST", path, &body.to_string())?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    if text.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&text).with_context(|| format!("the answer to {path} is no JSON: {text}"))
}

/// Sends a `GET` request for an event stream, and returns the events until the station closes the stream.
pub fn follow_events(socket: &Path, path: &str) -> anyhow::Result<impl Iterator<Item = Value> + use<>> {
    let reader = send_request(socket, "GET", path, "")?;
    reader.get_ref().set_read_timeout(None)?;
    let event = |line: String| serde_json::from_str(line.strip_prefix("data:")?).ok();
    Ok(reader.lines().map_while(Result::ok).filter_map(event))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Runs `ask` against a server that sends `answer`. Returns the request that the server received, and the
    /// result of `ask`.
    fn serve_one_answer<T>(answer: &'static str, ask: impl FnOnce(&Path) -> T) -> (String, T) {
        let name = format!("carnet-lab-api-{}-{}", std::process::id(), answer.len());
        let socket = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&socket).expect("a socket");
        let server = std::thread::spawn(move || {
            let mut reader = BufReader::new(listener.accept().expect("a client").0);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).expect("a line");
            }
            reader.get_mut().write_all(answer.as_bytes()).expect("an answer");
            head
        });
        let outcome = ask(&socket);
        let head = server.join().expect("a request");
        std::fs::remove_file(socket).expect("remove");
        (head, outcome)
    }

    #[test]
    fn api_answers_are_parsed_and_refusals_reported() {
        let (head, got) = serve_one_answer("HTTP/1.0 200 OK\r\nx: y\r\n\r\n[1]", |s| get(s, "/v1/counters"));
        assert!(head.starts_with("GET /v1/counters HTTP/1.0\r\n"), "{head}");
        assert_eq!(got.expect("is JSON"), serde_json::json!([1]));
        let answer = "HTTP/1.0 422 Unprocessable Entity\r\n\r\n{\"error\":\"too far\"}";
        let (_, told) = serve_one_answer(answer, |s| post_json(s, "/v1/gnsend", &serde_json::json!({})));
        let told = told.expect_err("is refused");
        assert!(told.to_string().contains("too far"));
        let refused = told.downcast_ref::<RequestRefused>().expect("an answer");
        assert_eq!((refused.status, refused.reason.as_str()), (422, "too far"));
    }

    #[test]
    fn event_stream_lines_are_parsed() {
        let answer = "HTTP/1.0 200 OK\r\n\r\n: hello\n\ndata: {\"a\":1}\n\ndata:{\"a\":2}\n\n";
        let (_, all) = serve_one_answer(answer, |s| {
            follow_events(s, "/v1/gnrecv").expect("a stream").map(|e| e["a"].as_u64()).collect::<Vec<_>>()
        });
        assert_eq!(all, [Some(1), Some(2)]);
    }
}
