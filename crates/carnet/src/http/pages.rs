//! The dashboard's files (`station.http_pages`) over TCP: files of a few types, from one directory.
//!
//! The files are not in the program, which has to fit into the flash of a small router. The dashboard shows
//! data from the network. So the browser must load nothing from other servers, and run only the scripts in
//! these files. It must not interpret text as markup (Content Security Policy Level 3, Trusted Types).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};

use super::ApiRefusal;

/// Size of the largest file that the server sends, in octets.
const MAX_FILE_SIZE: u64 = 1 << 20;

const PAGE_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// A file of the dashboard that a client has requested.
pub(super) struct DashboardFile {
    name: String,
    media_type: &'static str,
}

impl DashboardFile {
    /// Returns the file for a URL path. Returns `None` if the path names a folder or a hidden file, or
    /// contains percent-encoded characters.
    pub(super) fn file_of_path(path: &str) -> Option<DashboardFile> {
        let name = match path.strip_prefix('/')? {
            "" => "index.html",
            name => name,
        };
        let (stem, ending) = name.split_once('.')?;
        let plain = stem.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-');
        let kind = match ending {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "json" => "application/json",
            _ => return None,
        };
        (plain && !stem.is_empty()).then(|| DashboardFile { name: name.to_owned(), media_type: kind })
    }

    /// Reads the file outside of the run loop, because a disk may be slow.
    pub(super) async fn read_file(self, directory: &Path) -> Response {
        let path = directory.join(&self.name);
        match tokio::task::spawn_blocking(move || file_content(&path)).await {
            Ok(Ok(content)) => {
                let headers = [
                    (CONTENT_TYPE, self.media_type),
                    (CONTENT_SECURITY_POLICY, PAGE_SECURITY_POLICY),
                    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
                    (REFERRER_POLICY, "no-referrer"),
                    (CACHE_CONTROL, "no-cache"),
                ];
                (headers, content).into_response()
            }
            _ => {
                let why = "no such file in station.http_pages: the dashboard is not installed";
                ApiRefusal::new(StatusCode::NOT_FOUND, why).into_response()
            }
        }
    }
}

fn file_content(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a special file could block, so the server sends only regular files.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut content = Vec::new();
    File::open(path)?.take(MAX_FILE_SIZE).read_to_end(&mut content)?;
    Ok(content)
}
