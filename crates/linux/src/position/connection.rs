//! A TCP connection to gpsd, which carnet opens again whenever it breaks.
//!
//! After a failure carnet waits a quarter of a second before the next attempt. The pause doubles after each
//! failure, up to ten seconds. Without a receiver, gpsd sends no data. After [`SILENCE`] without data, carnet
//! asks gpsd for its version. If gpsd does not answer within the same time, its machine has vanished without
//! closing the connection, and carnet closes it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use carnet_base::Time;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::gpsd::{PROBE, ReaderCounters, ReportReader, watch_command};
use super::tracker::FixTracker;
use super::{PositionEvent, PositionOptions};
use crate::clock;

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Maximum duration of an attempt to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without data after which carnet requests gpsd's version, to see whether gpsd still answers.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection to gpsd, as a source of positions.
pub struct Connection {
    host: String,
    port: u16,
    device: Option<String>,
    state: State,
    reconnect_pause: Duration,
    reader: ReportReader,
    tracker: FixTracker,
}

enum State {
    Waiting(Time),
    /// In a box, so that the connection attempt survives if the future of [`Connection::next_event`] is
    /// dropped.
    Connecting(Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>),
    Connected {
        stream: TcpStream,
        local: bool,
        /// Time at which carnet considers gpsd silent. `version_requested` says whether carnet has requested
        /// the version since the last data.
        silent_at: Time,
        version_requested: bool,
    },
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Waiting(_) => "waiting",
            State::Connecting(_) => "connecting",
            State::Connected { .. } => "connected",
        };
        f.debug_struct("Connection")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("state", &state)
            .finish()
    }
}

impl Connection {
    /// Creates a connection that opens as soon as [`Connection::next_event`] is awaited.
    pub fn new(host: String, port: u16, device: Option<String>, options: PositionOptions) -> Connection {
        Connection {
            host,
            port,
            device,
            state: State::Waiting(Time::ZERO),
            reconnect_pause: FIRST_WAIT,
            reader: ReportReader::default(),
            tracker: FixTracker::new(options),
        }
    }

    /// Returns the number of leap seconds since 2004 that gpsd or the kernel reports.
    pub fn leap_seconds(&self) -> i64 {
        self.tracker.leap_seconds()
    }

    /// Returns the counters of gpsd's reports.
    pub fn counters(&self) -> ReaderCounters {
        self.reader.counters()
    }

    /// Waits for the next event of the position source. The future may be dropped.
    pub async fn next_event(&mut self) -> PositionEvent {
        loop {
            if let Some(event) = self.tracker.poll_event() {
                return event;
            }
            let now = clock::now();
            match &mut self.state {
                State::Waiting(until) if *until > now => {
                    tokio::time::sleep(until.saturating_since(now)).await;
                }
                State::Waiting(_) => {
                    let target = (self.host.clone(), self.port);
                    self.state = State::Connecting(Box::pin(connect(target, self.device.clone())));
                }
                State::Connecting(connecting) => match connecting.as_mut().await {
                    Ok(stream) => self.begin(stream),
                    Err(error) => self.give_up(&error),
                },
                State::Connected { stream, silent_at, .. } => {
                    let due = self.tracker.poll_timeout().map_or(*silent_at, |due| due.min(*silent_at));
                    if due <= now {
                        self.handle_timeout(now);
                    } else if let Ok(ready) =
                        tokio::time::timeout(due.saturating_since(now), stream.readable()).await
                    {
                        match ready.and_then(|()| self.read()) {
                            Ok(()) => {}
                            Err(error) => self.give_up(&error),
                        }
                    }
                }
            }
        }
    }

    fn begin(&mut self, stream: TcpStream) {
        let now = clock::now();
        self.reader.restart();
        self.tracker.handle_connected(now);
        let local = match (stream.peer_addr(), stream.local_addr()) {
            (Ok(peer), Ok(own)) => peer.ip() == own.ip(),
            _ => false,
        };
        self.state = State::Connected { stream, local, silent_at: now + SILENCE, version_requested: false };
    }

    fn give_up(&mut self, error: &io::Error) {
        self.tracker.handle_disconnected(format!("gpsd at {} port {}: {error}", self.host, self.port));
        self.state = State::Waiting(clock::now() + self.reconnect_pause);
        self.reconnect_pause = (self.reconnect_pause * 2).min(LONGEST_WAIT);
    }

    /// Reads the available octets, at most one buffer.
    fn read(&mut self) -> io::Result<()> {
        let State::Connected { stream, local, silent_at, version_requested: asked } = &mut self.state else {
            return Ok(());
        };
        let mut buffer = [0; 4096];
        let length = match stream.try_read(&mut buffer) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "gpsd closed the connection")),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let (now, wall) = (clock::now(), clock::wall());
        (*silent_at, *asked) = (now + SILENCE, false);
        let before = self.reader.counters().lines;
        let (tracker, local) = (&mut self.tracker, *local);
        self.reader.push(&buffer[..length], |report| tracker.handle_report(now, wall, &report, local));
        // A valid line shows that the peer is gpsd, so the next reconnect begins with the shortest pause.
        if self.reader.counters().lines > before {
            self.reconnect_pause = FIRST_WAIT;
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Time) {
        self.tracker.handle_timeout(now);
        let State::Connected { stream, silent_at, version_requested: asked, .. } = &mut self.state else {
            return;
        };
        if *silent_at > now {
            return;
        }
        if *asked {
            self.give_up(&io::Error::new(io::ErrorKind::TimedOut, "gpsd does not answer"));
        } else {
            // If the write fails, gpsd does not answer, and carnet closes the connection later.
            let _ = stream.try_write(PROBE.as_bytes());
            (*silent_at, *asked) = (now + SILENCE, true);
        }
    }
}

async fn connect(target: (String, u16), device: Option<String>) -> io::Result<TcpStream> {
    let attempt = async {
        let mut stream = TcpStream::connect(target).await?;
        stream.write_all(watch_command(device.as_deref()).as_bytes()).await?;
        Ok(stream)
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, attempt).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time")),
    }
}
