//! Access to the store: by TLS with the certificates of `[access]`, and as one of etcd's own users.
//!
//! An authority that the config names must have issued the store's certificate. The certificate must contain
//! the name or the address that the config has for the server. The system's authorities are for the Web, so
//! this module does not use them. Only their owner may read the files with the key and the password. The
//! program wipes the copies of key and password that it has in memory.

use std::error::Error;
use std::fmt::{self, Debug, Formatter};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use carnet_linux::key_file;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, InconsistentKeys, RootCertStore,
};
use zeroize::Zeroizing;

/// Maximum size of a file that `[access]` names, in octets.
const MAX_ACCESS_FILE_SIZE: u64 = 1 << 20;

const ERROR_NO_TLS: &str = "expected TLS, as store has https://";

/// The table `[access]` of the config: paths of files.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessFiles {
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
}

/// Contents of the files that the table `[access]` names.
#[derive(Debug, Default)]
pub struct StoreAccess {
    /// TLS settings for servers with `https://`; `None` for other servers.
    pub tls_settings: Option<Arc<TlsSettings>>,
    /// User of etcd in whose name all requests are sent; `None` if etcd has no users.
    pub etcd_user: Option<Arc<EtcdUser>>,
}

/// TLS settings: which certificates a server has to present, and the client's own certificate.
pub struct TlsSettings {
    tls_connector: TlsConnector,
    /// Path of the file with the authorities, for error messages.
    authority_file: PathBuf,
}

/// A user of etcd.
pub struct EtcdUser {
    /// Name of the user.
    pub name: String,
    password: Zeroizing<String>,
}

#[derive(Serialize)]
struct TokenRequestBody<'q> {
    name: &'q str,
    password: &'q str,
}

impl AccessFiles {
    /// Makes the relative paths in `[access]` start at this folder.
    pub fn resolve_paths_in(&mut self, folder: &Path) {
        let paths = [&mut self.ca, &mut self.certificate, &mut self.key, &mut self.password_file];
        for path in paths.into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// Reads the files; `encrypted` says whether the servers have `https://`.
    ///
    /// # Errors
    /// Returns the mistake and its place.
    pub fn read_files(&self, encrypted: bool) -> anyhow::Result<StoreAccess> {
        if !encrypted {
            for (name, there) in [
                ("ca", self.ca.is_some()),
                ("certificate", self.certificate.is_some()),
                ("key", self.key.is_some()),
            ] {
                ensure!(!there, "access.{name}: expected etcd servers with https:// only, found http://");
            }
            ensure!(
                self.user.is_none() && self.password_file.is_none(),
                "access.user: expected etcd servers with https:// only, because http:// sends the password \
                 unencrypted; found http://"
            );
            return Ok(StoreAccess::default());
        }
        let ca = self.ca.as_ref().context(
            "access.ca: expected the file with the authorities of etcd's certificates, because the key \
             store has https://",
        )?;
        Ok(StoreAccess {
            tls_settings: Some(Arc::new(self.tls_settings(ca)?)),
            etcd_user: self.read_user()?.map(Arc::new),
        })
    }

    fn tls_settings(&self, ca: &Path) -> anyhow::Result<TlsSettings> {
        let mut roots = RootCertStore::empty();
        for authority in read_certificates("ca", ca)? {
            roots.add(authority).map_err(|error| {
                anyhow!("access.ca: {}: expected certificates of authorities: {error}", ca.display())
            })?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let config = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let chain = read_certificates("certificate", certificate)?;
                config.with_client_auth_cert(chain, read_private_key(key)?).map_err(|error| match error {
                    rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => anyhow!(
                        "access.key: expected the key of the certificate in {}, found another in {}",
                        certificate.display(),
                        key.display()
                    ),
                    error => anyhow!(
                        "access: cannot use the certificate in {} with the key in {}: {error}",
                        certificate.display(),
                        key.display()
                    ),
                })?
            }
            (None, None) => config.with_no_client_auth(),
            (Some(_), None) => bail!(
                "access.key: expected the private key of access.certificate, but the config has no access.key"
            ),
            (None, Some(_)) => bail!(
                "access.certificate: expected the certificate of access.key, but the config has no \
                 access.certificate"
            ),
        };
        Ok(TlsSettings { tls_connector: Arc::new(config).into(), authority_file: ca.to_owned() })
    }

    fn read_user(&self) -> anyhow::Result<Option<EtcdUser>> {
        match (&self.user, &self.password_file) {
            (Some(name), Some(file)) => {
                ensure!(
                    !name.is_empty(),
                    "access.user: expected the name of an etcd user, found an empty text"
                );
                Ok(Some(EtcdUser { name: name.clone(), password: read_password(file)? }))
            }
            (None, None) => Ok(None),
            (Some(_), None) => bail!(
                "access.password_file: expected the file with the password of access.user, but the config \
                 has no access.password_file"
            ),
            (None, Some(_)) => bail!(
                "access.user: expected the etcd user of access.password_file, but the config has no \
                 access.user"
            ),
        }
    }
}

/// Reads the certificates in a file. A file without a certificate is an error.
fn read_certificates(name: &str, path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let mut octets = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_ACCESS_FILE_SIZE + 1).read_to_end(&mut octets));
    let length = read.with_context(|| format!("access.{name}: cannot read {}", path.display()))?;
    ensure!(
        length as u64 <= MAX_ACCESS_FILE_SIZE,
        "access.{name}: {}: expected a file of at most {MAX_ACCESS_FILE_SIZE} octets",
        path.display()
    );
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&octets).collect();
    let found = found.map_err(|error| {
        anyhow!("access.{name}: {}: expected certificates in PEM: {error}", path.display())
    })?;
    ensure!(!found.is_empty(), "access.{name}: {}: expected certificates in PEM, found none", path.display());
    Ok(found)
}

/// Reads a secret from a file that only its owner may read.
fn read_secret(name: &str, path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let octets = key_file::read_key_file(path);
    octets.map(Zeroizing::new).with_context(|| format!("access.{name}: cannot take {}", path.display()))
}

fn read_private_key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(&read_secret("key", path)?).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            anyhow!("access.key: {}: expected a key in PEM that is not encrypted, found none", path.display())
        }
        error => anyhow!("access.key: {}: expected a key in PEM: {error}", path.display()),
    })
}

/// Reads the password, which is the only line of a file.
fn read_password(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    let octets = read_secret("password_file", path)?;
    let line = octets.strip_suffix(b"\n").unwrap_or(&octets);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = std::str::from_utf8(line).ok();
    text.filter(|text| !text.is_empty() && !text.chars().any(char::is_control))
        .map(|text| Zeroizing::new(text.to_owned()))
        .with_context(|| format!("access.password_file: {}: expected one line of text", path.display()))
}

impl EtcdUser {
    #[cfg(test)]
    pub fn new(name: &str, password: &str) -> EtcdUser {
        EtcdUser { name: name.into(), password: Zeroizing::new(password.into()) }
    }

    /// Returns the body of the request for a token, with the user's name and password.
    pub fn token_request_body(&self) -> anyhow::Result<Zeroizing<Vec<u8>>> {
        // The buffer starts with its full size: if it had to grow, it would leave a copy of the password in
        // memory.
        let longest = 64 + 6 * (self.name.len() + self.password.len());
        let mut text = Zeroizing::new(Vec::with_capacity(longest));
        serde_json::to_writer(&mut *text, &TokenRequestBody { name: &self.name, password: &self.password })?;
        Ok(text)
    }
}

impl TlsSettings {
    /// Starts TLS over a connection to the server of this name.
    ///
    /// # Errors
    /// Returns an error if another server answers, or if the server speaks no TLS.
    pub async fn start_tls_over(
        &self,
        name: &ServerName<'static>,
        stream: TcpStream,
    ) -> anyhow::Result<TlsStream<TcpStream>> {
        self.tls_connector.connect(name.clone(), stream).await.map_err(|error| {
            let expected = match tls_error_in(&error) {
                Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                    format!(
                        "expected a certificate from an authority in {} (access.ca)",
                        self.authority_file.display()
                    )
                }
                Some(rustls::Error::InvalidCertificate(_)) => {
                    format!("expected a certificate that holds for {}", name.to_str())
                }
                Some(rustls::Error::InvalidMessage(_)) => ERROR_NO_TLS.into(),
                // If etcd closes a connection before it has read all octets of the client, it resets the
                // connection.
                None if matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                ) =>
                {
                    ERROR_NO_TLS.into()
                }
                _ => "TLS".into(),
            };
            anyhow::Error::new(error).context(expected)
        })
    }
}

/// Returns the TLS error that caused this error; `None` if the cause is no TLS error.
fn tls_error_in<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    // `source` of an I/O error skips the error that the I/O error contains, so the contained error comes
    // first.
    error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

/// Returns whether etcd has refused the certificate of this member. With TLS 1.3 etcd refuses it only after
/// the handshake.
pub fn refuses_certificate(error: &anyhow::Error) -> bool {
    matches!(
        error.chain().find_map(tls_error_in),
        Some(rustls::Error::AlertReceived(
            AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRequired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::UnsupportedCertificate
        ))
    )
}

// Keys and passwords must not appear in logs.

impl Debug for TlsSettings {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("ca", &self.authority_file).finish_non_exhaustive()
    }
}

impl Debug for EtcdUser {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}
