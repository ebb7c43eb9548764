//! A home agent's process: `carnet run`, which stores its records through this program instead of on the
//! disk.
//!
//! A standby starts the process early, so that it has loaded its BPF programs and only waits for its records.
//! The option `--store` names the socket for the records. The process reports that it is ready as it would to
//! systemd (`sd_notify`). It ends when its connection to this program ends, also if this program dies. Then
//! it does not de-register anything, because the home agent continues on another member.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use carnet_fleet::RecordChange;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixDatagram, UnixListener};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::time::timeout;

/// Time that an ending process has to remove its routes and addresses.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Event that a home agent's process reports.
#[derive(Debug)]
pub enum AgentEvent {
    /// The home agent has become active.
    Working,
    /// The home agent has records to store: the number of the commit and its changes.
    Commit(u64, Vec<RecordChange>),
    /// The process has ended: the reason, and whether this program had stopped it.
    Ended(String, bool),
}

/// Parameters with which this program starts the process.
#[derive(Debug, Clone)]
pub struct AgentParameters {
    /// Path of the carnet program.
    pub carnet_program: PathBuf,
    /// Path of the home agent's config.
    pub config: PathBuf,
    /// Directory of the sockets between this program and the process.
    pub socket_directory: PathBuf,
    /// Name of the seat: the home agent that the members of the fleet lead in turn.
    pub name: String,
}

impl AgentParameters {
    /// Checks the home agent's config with the carnet program that will use it. The call may block.
    ///
    /// # Errors
    /// Returns the mistakes in the config.
    pub fn check_agent_config(&self) -> anyhow::Result<toml::Table> {
        let program = self.carnet_program.display();
        let checked = std::process::Command::new(&self.carnet_program)
            .args(["check", "--config"])
            .arg(&self.config)
            .output();
        let checked = checked.with_context(|| format!("program: cannot run {program}"))?;
        // Ignore the warnings here, because the home agent logs them when it runs. One warning says that
        // state_dir is missing, but in a fleet state_dir has to be missing.
        ensure!(
            checked.status.success(),
            "config: expected the config of a home agent, found mistakes\n{}",
            String::from_utf8_lossy(&checked.stderr).trim_end()
        );
        let text = fs::read_to_string(&self.config)
            .with_context(|| format!("config: cannot read {}", self.config.display()))?;
        let table: toml::Table = toml::from_str(&text).context("config")?;
        ensure!(
            table.contains_key("home_agent"),
            "config: expected [home_agent] in {}, found none",
            self.config.display()
        );
        Ok(table)
    }
}

/// Name of the home agent's record with the public keys of its sessions with mobile routers.
pub const SESSIONS_RECORD: &str = "sessions";

/// The part of the record that this program reads.
#[derive(Debug, serde::Deserialize)]
struct SessionsRecord {
    #[serde(default)]
    public_keys: Vec<String>,
}

impl AgentParameters {
    /// Compares the private keys in the home agent's config with the public keys in the record of the fleet.
    /// During a change of the key the record has two keys, and a member needs both.
    ///
    /// # Errors
    /// Returns the difference, or the reason why the key cannot be read.
    pub fn compare_keys(&self, record: Option<&str>) -> Result<(), String> {
        let record = record.and_then(|record| serde_json::from_str::<SessionsRecord>(record).ok());
        let Some(record) = record.filter(|record| !record.public_keys.is_empty()) else { return Ok(()) };
        let (file, own) = self.public_keys()?;
        match record.public_keys.iter().find(|key| !own.contains(key)) {
            None => Ok(()),
            Some(missing) => Err(format!(
                "the mobile routers have sessions with the public key {missing}, expected its private key in \
                 {file}, found that of {}: copy the file from another member",
                own.join(" and ")
            )),
        }
    }

    /// Returns the name of the file of the private key, and the public keys, the newest one first.
    #[cfg(feature = "wireguard")]
    fn public_keys(&self) -> Result<(String, Vec<String>), String> {
        use carnet_api::config::PrivateKey;
        use carnet_wireguard::PrivateKey as SessionKey;

        let text = fs::read_to_string(&self.config)
            .map_err(|error| format!("cannot read {}: {error}", self.config.display()))?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| error.to_string())?;
        let file = table.get("station").and_then(|station| station.get("private_key_file")?.as_str());
        let file = file.ok_or("expected station.private_key_file in the config, found none")?;
        let file = self.config.parent().unwrap_or(Path::new("")).join(file);
        let mut key = PrivateKey::read(file.clone())?;
        let public =
            key.keys_newest_first().map(|key| SessionKey::from_random(key.octets()).public_key().to_string());
        let public = public.collect();
        key.wipe();
        Ok((file.display().to_string(), public))
    }

    /// Returns an error: this program was built without encrypted sessions.
    #[cfg(not(feature = "wireguard"))]
    fn public_keys(&self) -> Result<(String, Vec<String>), String> {
        Err("this program was built without encrypted sessions".to_owned())
    }
}

/// Message to the task that owns the home agent's process.
#[derive(Debug)]
enum AgentMessage {
    /// The store has accepted the oldest outstanding commit.
    Written,
    /// The process must read its config file again (SIGHUP).
    Reload,
}

/// A home agent's process that runs or is starting.
#[derive(Debug)]
pub struct AgentProcess {
    records_sender: Option<Sender<BTreeMap<String, String>>>,
    message_sender: UnboundedSender<AgentMessage>,
    /// Events that the process reports.
    pub events: UnboundedReceiver<AgentEvent>,
}

impl AgentProcess {
    /// Starts a process that waits for its records.
    pub fn start(parameters: AgentParameters) -> AgentProcess {
        let (begin, begun) = channel(1);
        let (tell, told) = unbounded_channel();
        let (say, news) = unbounded_channel();
        tokio::spawn(async move {
            let ended = run_process(parameters, begun, told, &say).await;
            let (why, told) = ended.unwrap_or_else(|error| (format!("{error:#}"), false));
            let _ = say.send(AgentEvent::Ended(why, told));
        });
        AgentProcess { records_sender: Some(begin), message_sender: tell, events: news }
    }

    /// Passes the records to the process, which then becomes the active home agent. The caller calls this
    /// function at most once.
    pub fn begin_with_records(&self, records: BTreeMap<String, String>) {
        if let Some(begin) = &self.records_sender {
            let _ = begin.try_send(records);
        }
    }

    /// Stops the process; [`AgentEvent::Ended`] follows.
    pub fn stop(&mut self) {
        self.records_sender = None;
    }

    /// Tells the process that the store has its oldest commit.
    pub fn acknowledge_oldest_commit(&self) {
        let _ = self.message_sender.send(AgentMessage::Written);
    }

    /// Tells an active process to read its config file again.
    pub fn reload_config(&self) {
        let _ = self.message_sender.send(AgentMessage::Reload);
    }
}

/// Returns the paths of two sockets of a home agent that the fleet runs: one for the records, one for
/// readiness.
pub fn socket_paths(directory: &Path, seat: &str) -> [PathBuf; 2] {
    ["store", "ready"].map(|kind| directory.join(format!("{seat}.{kind}")))
}

/// Runs the process until it ends. Returns how it ended, and whether this program had stopped it. Records and
/// a reload may come before the process is ready, so the function keeps them until then.
async fn run_process(
    parameters: AgentParameters,
    mut begun: Receiver<BTreeMap<String, String>>,
    mut told: UnboundedReceiver<AgentMessage>,
    say: &UnboundedSender<AgentEvent>,
) -> anyhow::Result<(String, bool)> {
    let [store, ready] = socket_paths(&parameters.socket_directory, &parameters.name);
    let (listener, _store) = bind_socket(&store, UnixListener::bind)?;
    let (readiness, _ready) = bind_socket(&ready, UnixDatagram::bind)?;
    let mut child = Command::new(&parameters.carnet_program)
        .args(["run", "--config"])
        .arg(&parameters.config)
        .arg("--store")
        .arg(&store)
        .env("NOTIFY_SOCKET", &ready)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", parameters.carnet_program.display()))?;
    let (mut commits, mut taken) = (0_u64, None::<(Lines<BufReader<OwnedReadHalf>>, OwnedWriteHalf)>);
    // The records, or a reload, may come before the process is ready. A SIGHUP would end a process that has
    // no handler for it yet.
    let (mut early, mut early_reload) = (None, false);
    let mut notice = [0; 256];
    loop {
        tokio::select! {
            status = child.wait() => return Ok((describe_exit(status?), false)),
            records = begun.recv() => match (records, &mut taken) {
                (Some(records), Some((_, stream))) => send_records(stream, &records).await?,
                (Some(records), None) => early = Some(records),
                (None, _) => {
                    drop((listener, taken));
                    return Ok((wait_for_end(&mut child).await?, true));
                }
            },
            Ok(length) = readiness.recv(&mut notice) => {
                if notice[..length].split(|octet| *octet == b'\n').any(|line| line == b"READY=1") {
                    let _ = say.send(AgentEvent::Working);
                }
            }
            Ok((stream, _)) = listener.accept(), if taken.is_none() => {
                let (read, mut write) = stream.into_split();
                if let Some(records) = early.take() {
                    send_records(&mut write, &records).await?;
                }
                taken = Some((BufReader::new(read).lines(), write));
                if std::mem::take(&mut early_reload) {
                    send_reload_signal(&child);
                }
            }
            line = next_line_or_pending(&mut taken) => {
                // The end of the connection means that the process is ending.
                let Some(line) = line? else {
                    taken = None;
                    continue;
                };
                let changes: Vec<RecordChange> =
                    serde_json::from_str(&line).context("cannot parse a commit of the process")?;
                commits += 1;
                let _ = say.send(AgentEvent::Commit(commits, changes));
            }
            Some(told) = told.recv() => match (told, &mut taken) {
                (AgentMessage::Written, Some((_, stream))) => {
                    let _ = stream.write_all(b"\n").await;
                }
                (AgentMessage::Written, None) => {}
                (AgentMessage::Reload, Some(_)) => send_reload_signal(&child),
                (AgentMessage::Reload, None) => early_reload = true,
            },
        }
    }
}

/// Sends SIGHUP to the process, or no signal if the process has already ended.
fn send_reload_signal(child: &Child) {
    if let Some(process) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = kill(Pid::from_raw(process), Signal::SIGHUP);
    }
}

/// Sends all records. The process reads all of them before any other work.
async fn send_records(stream: &mut OwnedWriteHalf, records: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let mut text = Vec::new();
    for record in records {
        serde_json::to_writer(&mut text, &record)?;
        text.push(b'\n');
    }
    text.push(b'\n');
    stream.write_all(&text).await.context("the process did not accept its records")
}

/// Returns the next line that the process has sent; `None` after the end of its connection. Without a
/// connection it never returns. Safe to cancel.
async fn next_line_or_pending(
    taken: &mut Option<(Lines<BufReader<OwnedReadHalf>>, OwnedWriteHalf)>,
) -> std::io::Result<Option<String>> {
    match taken {
        Some((lines, _)) => lines.next_line().await,
        None => std::future::pending().await,
    }
}

/// Path of a bound socket; dropping the value removes the socket.
struct SocketPath(PathBuf);

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Binds a socket, and replaces a socket that a crash has left.
fn bind_socket<S>(
    path: &Path,
    bind: impl FnOnce(PathBuf) -> std::io::Result<S>,
) -> anyhow::Result<(S, SocketPath)> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => bind(path.to_owned()),
    }
    .map(|socket| (socket, SocketPath(path.to_owned())))
    .with_context(|| format!("cannot listen at {}", path.display()))
}

/// Waits until the process has ended and has removed its routes and addresses. The process ends because its
/// connection has ended.
async fn wait_for_end(child: &mut Child) -> anyhow::Result<String> {
    if let Ok(status) = timeout(SHUTDOWN_TIMEOUT, child.wait()).await {
        return Ok(describe_exit(status?));
    }
    child.kill().await?;
    bail!(
        "the home agent's process did not end within {} s after SIGTERM, so carnet-fleet killed it",
        SHUTDOWN_TIMEOUT.as_secs()
    )
}

fn describe_exit(status: ExitStatus) -> String {
    status.to_string()
}

#[cfg(all(test, feature = "wireguard"))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use carnet_wireguard::PrivateKey;

    use super::*;
    use crate::scratch::ScratchFolder;

    fn write_key(path: &Path, seed: u8) -> String {
        let key = PrivateKey::from_random([seed; 32]);
        fs::write(path, key.to_text().as_bytes()).expect("a key");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("a mode");
        key.public_key().to_string()
    }

    /// The member has the key of the fleet, then a different key, and then both keys of a key change.
    #[test]
    fn member_compares_its_keys_with_those_of_the_fleet() {
        let scratch = ScratchFolder::new();
        let path = |name: &str| scratch.path().join(name);
        fs::write(path("north.toml"), "[station]\nprivate_key_file = 'north.key'\n").expect("a config");
        let parameters = AgentParameters {
            carnet_program: "carnet".into(),
            config: path("north.toml"),
            socket_directory: "/".into(),
            name: "north".into(),
        };
        let record = |keys: &[&String]| format!("{{\"version\":1,\"newest\":7,\"public_keys\":{keys:?}}}");
        let compare = |keys: &[&String]| parameters.compare_keys(Some(&record(keys)));
        let of_fleet = write_key(&path("north.key"), 1);
        for sound in [None, Some("{}"), Some("no record")] {
            assert_eq!(parameters.compare_keys(sound), Ok(()));
        }
        assert_eq!(compare(&[&of_fleet]), Ok(()));
        let other = write_key(&path("north.key"), 2);
        let why = compare(&[&of_fleet]).expect_err("another key");
        assert!(why.contains(&of_fleet) && why.contains(&other), "{why}");
        assert!(compare(&[&of_fleet, &other]).is_err());
        write_key(&path("north.key.next"), 1);
        assert_eq!(compare(&[&of_fleet, &other]), Ok(()));
        fs::remove_file(path("north.key")).expect("a file");
        assert!(compare(&[&of_fleet]).is_err());
    }
}
