//! A TCP connection to gpsd, which carnet opens again whenever it breaks.
//!
//! After a failure carnet waits a quarter of a second before the next attempt. The pause doubles after each
//! failure, up to ten seconds. Without a receiver, gpsd sends no data. After [`SILENCE_BEFORE_PROBE`] without
//! data, carnet asks gpsd for its version. If gpsd does not answer within the same time, its machine has
//! vanished without closing the connection, and carnet closes it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use carnet_base::Time;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::fix_tracker::FixTracker;
use super::gpsd::{PROBE_COMMAND, ReaderCounters, ReportReader, watch_command};
use super::{PositionEvent, PositionOptions};
use crate::clock;

const FIRST_RECONNECT_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_RECONNECT_PAUSE: Duration = Duration::from_secs(10);
/// Maximum duration of an attempt to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without data after which carnet requests gpsd's version, to see whether gpsd still answers.
const SILENCE_BEFORE_PROBE: Duration = Duration::from_secs(10);

/// A connection to gpsd, as a source of positions.
pub struct GpsdConnection {
    gpsd_host: String,
    port: u16,
    receiver_device: Option<String>,
    state: ConnectionState,
    reconnect_pause: Duration,
    report_reader: ReportReader,
    fix_tracker: FixTracker,
}

enum ConnectionState {
    Waiting(Time),
    /// In a box, so that the connection attempt survives if the future of [`GpsdConnection::next_event`] is
    /// dropped.
    Connecting(Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>),
    Connected {
        stream: TcpStream,
        local: bool,
        /// Time at which carnet considers gpsd silent.
        silent_at: Time,
        /// Whether carnet has requested gpsd's version since the last data arrived.
        version_requested: bool,
    },
}

impl fmt::Debug for GpsdConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            ConnectionState::Waiting(_) => "waiting",
            ConnectionState::Connecting(_) => "connecting",
            ConnectionState::Connected { .. } => "connected",
        };
        f.debug_struct("Connection")
            .field("host", &self.gpsd_host)
            .field("port", &self.port)
            .field("state", &state)
            .finish()
    }
}

impl GpsdConnection {
    /// Creates a connection that opens as soon as [`GpsdConnection::next_event`] is awaited.
    pub fn new(host: String, port: u16, device: Option<String>, options: PositionOptions) -> GpsdConnection {
        GpsdConnection {
            gpsd_host: host,
            port,
            receiver_device: device,
            state: ConnectionState::Waiting(Time::ZERO),
            reconnect_pause: FIRST_RECONNECT_PAUSE,
            report_reader: ReportReader::default(),
            fix_tracker: FixTracker::new(options),
        }
    }

    /// Returns the number of leap seconds since 2004 that gpsd or the kernel reports.
    pub fn leap_seconds(&self) -> i64 {
        self.fix_tracker.leap_seconds()
    }

    /// Returns the counters of gpsd's reports.
    pub fn counters(&self) -> ReaderCounters {
        self.report_reader.counters()
    }

    /// Waits for the next event of the position source. The future may be dropped.
    pub async fn next_event(&mut self) -> PositionEvent {
        loop {
            if let Some(event) = self.fix_tracker.poll_event() {
                return event;
            }
            let now = clock::now();
            match &mut self.state {
                ConnectionState::Waiting(until) if *until > now => {
                    tokio::time::sleep(until.saturating_since(now)).await;
                }
                ConnectionState::Waiting(_) => {
                    let target = (self.gpsd_host.clone(), self.port);
                    self.state = ConnectionState::Connecting(Box::pin(connect_to_gpsd(
                        target,
                        self.receiver_device.clone(),
                    )));
                }
                ConnectionState::Connecting(connecting) => match connecting.as_mut().await {
                    Ok(stream) => self.begin_session(stream),
                    Err(error) => self.close_after_error(&error),
                },
                ConnectionState::Connected { stream, silent_at, .. } => {
                    let due = self.fix_tracker.poll_timeout().map_or(*silent_at, |due| due.min(*silent_at));
                    if due <= now {
                        self.handle_timeout(now);
                    } else if let Ok(ready) =
                        tokio::time::timeout(due.saturating_since(now), stream.readable()).await
                    {
                        match ready.and_then(|()| self.read_available()) {
                            Ok(()) => {}
                            Err(error) => self.close_after_error(&error),
                        }
                    }
                }
            }
        }
    }

    fn begin_session(&mut self, stream: TcpStream) {
        let now = clock::now();
        self.report_reader.discard_incomplete_line();
        self.fix_tracker.handle_connected(now);
        let local = match (stream.peer_addr(), stream.local_addr()) {
            (Ok(peer), Ok(own)) => peer.ip() == own.ip(),
            _ => false,
        };
        self.state = ConnectionState::Connected {
            stream,
            local,
            silent_at: now + SILENCE_BEFORE_PROBE,
            version_requested: false,
        };
    }

    fn close_after_error(&mut self, error: &io::Error) {
        self.fix_tracker
            .handle_disconnected(format!("gpsd at {} port {}: {error}", self.gpsd_host, self.port));
        self.state = ConnectionState::Waiting(clock::now() + self.reconnect_pause);
        self.reconnect_pause = (self.reconnect_pause * 2).min(LONGEST_RECONNECT_PAUSE);
    }

    /// Reads the available octets, at most one buffer.
    fn read_available(&mut self) -> io::Result<()> {
        let ConnectionState::Connected { stream, local, silent_at, version_requested: asked } =
            &mut self.state
        else {
            return Ok(());
        };
        let mut buffer = [0; 4096];
        let length = match stream.try_read(&mut buffer) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "gpsd closed the connection")),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let (now, wall) = (clock::now(), clock::wall_time());
        (*silent_at, *asked) = (now + SILENCE_BEFORE_PROBE, false);
        let before = self.report_reader.counters().valid_lines;
        let (tracker, local) = (&mut self.fix_tracker, *local);
        self.report_reader.push(&buffer[..length], |report| tracker.handle_report(now, wall, &report, local));
        // A valid line shows that the peer is gpsd, so the next reconnect begins with the shortest pause.
        if self.report_reader.counters().valid_lines > before {
            self.reconnect_pause = FIRST_RECONNECT_PAUSE;
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Time) {
        self.fix_tracker.handle_timeout(now);
        let ConnectionState::Connected { stream, silent_at, version_requested: asked, .. } = &mut self.state
        else {
            return;
        };
        if *silent_at > now {
            return;
        }
        if *asked {
            self.close_after_error(&io::Error::new(io::ErrorKind::TimedOut, "gpsd does not answer"));
        } else {
            // If the write fails, gpsd does not answer, and carnet closes the connection later.
            let _ = stream.try_write(PROBE_COMMAND.as_bytes());
            (*silent_at, *asked) = (now + SILENCE_BEFORE_PROBE, true);
        }
    }
}

async fn connect_to_gpsd(target: (String, u16), device: Option<String>) -> io::Result<TcpStream> {
    let attempt = async {
        let mut stream = TcpStream::connect(target).await?;
        stream.write_all(watch_command(device.as_deref()).as_bytes()).await?;
        Ok(stream)
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, attempt).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "gpsd did not accept the connection in time")),
    }
}
