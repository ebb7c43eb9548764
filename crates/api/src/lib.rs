//! The config file, the HTTP/JSON API and the event stream as serde types
