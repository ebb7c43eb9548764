//! `[station]`: settings of the running program.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::keys::{
    Key, OptionalKey, Section, computed_key, key_with_default, optional_key, required_key, text_kind,
    words_kind,
};
use super::session_keys::{self, PrivateKey};
use super::table::{Table, all};
use super::{kinds, values};

/// `[station]`: settings of the running program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Station {
    /// Name of the station.
    pub name: String,
    /// UNIX socket of the API; `/run/carnet/NAME.sock` unless configured.
    pub socket: PathBuf,
    /// Directory for stored state; with `None` the station stores nothing, and a restart loses bindings and
    /// sequence numbers.
    pub state_dir: Option<PathBuf>,
    /// Private key of the encrypted tunnel; `None` without sessions.
    pub private_key: Option<PrivateKey>,
    /// File to which every input is written, for `carnet replay`.
    pub recording_file: Option<PathBuf>,
    /// Address of the API over TCP; `None` for the UNIX socket alone.
    pub tcp_api: Option<TcpApi>,
    /// Whether the process drops privileges that it does not need.
    pub sandbox: Sandbox,
}

/// Value of the config key `station.sandbox`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// The process gives up all rights that the kernel lets it give up.
    Auto,
    /// The process gives up all rights that it does not need. If the kernel does not permit this, the station
    /// does not start.
    Required,
    /// The process gives up no rights.
    Off,
}

/// Values of the config keys `station.http`, `station.http_tokens` and `station.http_pages`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpApi {
    /// Address and port; a loopback address unless there are tokens.
    pub address: SocketAddr,
    /// File with the tokens of permitted users.
    pub token_file: Option<PathBuf>,
    /// Directory of the dashboard's files.
    pub dashboard_directory: PathBuf,
}

/// Expected value in an error message: `http`.
const EXPECTED_API_ADDRESS: &str = "an address of this machine with a port, such as \"127.0.0.1:8440\"";

static NAME: Key<String> = required_key(
    "name",
    kinds::NAME_KIND,
    "Name of the station, for people and for the default of `socket`.",
);
static SOCKET: OptionalKey<PathBuf> = computed_key(
    "socket",
    text_kind("path", "a path", parse_socket_path),
    "\"/run/carnet/NAME.sock\"",
    "UNIX socket of the API, 107 octets at most. `carnet status`, `show`, `watch`, `handover`, `drain`,
     `revoke`, `area`, `gnping`, `gnsend`, `gnrecv` and `denm` use it. carnet makes the directory if it is
     missing. Each user who may write to the socket (mode 0660) may control the station.",
);
static STATE_DIR: OptionalKey<PathBuf> = optional_key(
    "state_dir",
    kinds::PATH_KIND,
    "Directory in which bindings, sequence numbers and used volumes outlive a restart and a crash, in
     `NAME.state`. It also holds crash reports (`NAME.crash.SECONDS.txt`, see [Crash
     reports](operating.md#crash-reports)). With it, a home agent acknowledges a registration when the disk
     has it, and acknowledges none while the disk is full. Without it, a restart forgets all of that: a home
     agent then cannot tell a replayed Binding Update from a new one. A mobile router then takes its first
     sequence number from the clock, which uses up the numbers of its key sooner.",
);
static PRIVATE_KEY_FILE: OptionalKey<PrivateKey> = optional_key(
    "private_key_file",
    session_keys::PRIVATE_KEY_FILE_KIND,
    "File, mode 0600, with the private key of this station for encrypted sessions, see [tunnel](tunnel.md).
     `carnet key --out FILE` makes it. A relative path starts in the directory of the config file. During a
     [change of the key](tunnel.md#change-a-key), the file of the same name with `.next` has the next key.",
);
static RECORDING_FILE: OptionalKey<PathBuf> = optional_key(
    "record",
    kinds::PATH_KIND,
    r#"File to which carnet writes every input of the station as JSON lines, for `carnet replay`. Each start
       begins a new file; those of the last four runs stay as `FILE.1` (the latest) to `FILE.4`. A home
       agent's recording of a version before the [test of care-of addresses](#test-of-a-care-of-address)
       replays with `care_of_test = "off"` only."#,
);
static HTTP_ADDRESS_KEY: OptionalKey<SocketAddr> = optional_key(
    "http",
    text_kind("address with a port", EXPECTED_API_ADDRESS, parse_api_address),
    r#"Address at which the API is also served over TCP, such as `"127.0.0.1:8440"`: requests that read, and
       `/metrics` for Prometheus. On a loopback address every program of this machine may read, and none may
       change anything. Every other address needs `http_tokens`."#,
);
static TOKEN_FILE: OptionalKey<PathBuf> = optional_key(
    "http_tokens",
    kinds::SECRET_PATH_KIND,
    "File, mode 0600, with one token a line: `read TOKEN` allows reading, `operate TOKEN` allows everything; a
     token has 16 characters at least. With this key every request needs a token (`Authorization: Bearer
     TOKEN`), and requests with an `operate` token may change things. carnet reads the file at each request.",
);
static DASHBOARD_DIRECTORY: Key<PathBuf> = key_with_default(
    "http_pages",
    kinds::PATH_KIND,
    "\"/usr/share/carnet/web\"",
    "Directory of the [dashboard](dashboard.md), which `http` serves at `/`. It needs no token, because its
     files say nothing of the station. Without the directory there is no dashboard.",
);
static SANDBOX: Key<Sandbox> = key_with_default(
    "sandbox",
    words_kind(&[("auto", Sandbox::Auto), ("required", Sandbox::Required), ("off", Sandbox::Off)]),
    "\"auto\"",
    r#"Whether the process gives up at its start what it does not need: capabilities, files, TCP ports and
       system calls ([what is left](threats.md#what-is-left-to-a-process-that-somebody-has-taken-over)).
       `"auto"`: as far as the kernel can; the log says what it cannot. `"required"`: all of it, or the
       station does not start. `"off"`: nothing, for debuggers. carnet refuses to reload a config that needs
       more, such as a file in another folder: restart it. In `/etc`, a home and other shared folders only the
       files that the config names stay readable. If such a file is replaced, the next start reads the new
       one; keep files that change in a folder of their own, such as `/etc/carnet`."#,
);

/// Keys of the config table `[station]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[station]",
    "station",
    &[
        &NAME,
        &SOCKET,
        &STATE_DIR,
        &PRIVATE_KEY_FILE,
        &RECORDING_FILE,
        &HTTP_ADDRESS_KEY,
        &TOKEN_FILE,
        &DASHBOARD_DIRECTORY,
        &SANDBOX,
    ],
);

/// Reads the table; `None` if the table has an error.
pub(super) fn read_table(table: &Table<'_>) -> Option<Station> {
    let name = table.read_key(&NAME);
    let socket = table.read_key(&SOCKET).map(|socket| {
        let name = name.as_deref().unwrap_or_default();
        socket.unwrap_or_else(|| PathBuf::from(format!("/run/carnet/{name}.sock")))
    });
    all!(Station {
        name: name,
        socket: socket,
        state_dir: table.read_key(&STATE_DIR),
        private_key: table.read_key(&PRIVATE_KEY_FILE),
        recording_file: table.read_key(&RECORDING_FILE),
        tcp_api: read_tcp_api(table),
        sandbox: table.read_key(&SANDBOX),
    })
}

/// Reads `http` and its keys; the outer `None` means that they have an error.
fn read_tcp_api(table: &Table<'_>) -> Option<Option<TcpApi>> {
    let tokens = table.read_key(&TOKEN_FILE)?;
    let pages = table.read_key(&DASHBOARD_DIRECTORY)?;
    let Some(value) = table.value_of_key(&HTTP_ADDRESS_KEY) else {
        if let Some(tokens) = table.value_of_key(&TOKEN_FILE) {
            tokens.report_error("without `station.http`, expected both");
            return None;
        }
        return Some(None);
    };
    let address = table.read_key(&HTTP_ADDRESS_KEY)??;
    if !address.ip().to_canonical().is_loopback() && tokens.is_none() {
        let text = value.as_str().unwrap_or_default();
        value.report_error(&format!(
            "{text:?} can be reached from afar, expected a loopback address, or http_tokens beside it"
        ));
        return None;
    }
    Some(Some(TcpApi { address, token_file: tokens, dashboard_directory: pages }))
}

fn parse_api_address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 || address.ip().is_multicast() => {
            Err(format!("{text:?} is no address to listen on, expected {EXPECTED_API_ADDRESS}"))
        }
        Ok(address) => Ok(address),
        Err(_) => Err(format!("{text:?} is no address with a port, expected {EXPECTED_API_ADDRESS}")),
    }
}

/// Maximum length of the path of a UNIX socket: `sun_path` of Linux without its terminating zero.
const MAX_SOCKET_PATH_LENGTH: usize = 107;

/// Parses the path of a UNIX socket.
fn parse_socket_path(text: &str) -> Result<PathBuf, String> {
    if text.len() > MAX_SOCKET_PATH_LENGTH {
        let length = text.len();
        return Err(format!(
            "the path has {length} octets, expected {MAX_SOCKET_PATH_LENGTH} at most for a socket"
        ));
    }
    values::parse_path(text)
}
