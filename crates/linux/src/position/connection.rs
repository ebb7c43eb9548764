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

use super::gpsd::{PROBE, Reader, ReaderCounters, watch_command};
use super::tracker::Tracker;
use super::{PositionEvent, PositionOptions};
use crate::clock;

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Maximum duration of an attempt to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without data after which carnet asks gpsd for its version.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection to gpsd, as a source of positions.
pub struct Connection {
    host: String,
    port: u16,
    device: Option<String>,
    state: State,
    wait: Duration,
    reader: Reader,
    tracker: Tracker,
}

enum State {
    Waiting(Time),
    /// Boxed, so that the attempt continues when [`Connection::next_event`] is cancelled.
    Connecting(Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>),
    Connected {
        stream: TcpStream,
        local: bool,
        /// Time at which gpsd counts as silent. `asked` says whether carnet has asked for the version since
        /// the last data.
        silent_at: Time,
        asked: bool,
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
            wait: FIRST_WAIT,
            reader: Reader::default(),
            tracker: Tracker::new(options),
        }
    }

    /// Returns the leap seconds since 2004, as gpsd or the kernel reports them.
    pub fn leap_seconds(&self) -> i64 {
        self.tracker.leap_seconds()
    }

    /// Returns the counters of gpsd's reports.
    pub fn counters(&self) -> ReaderCounters {
        self.reader.counters()
    }

    /// Waits for the next event of the position source and returns it. Safe to cancel.
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
        self.state = State::Connected { stream, local, silent_at: now + SILENCE, asked: false };
    }

    fn give_up(&mut self, error: &io::Error) {
        self.tracker.handle_disconnected(format!("gpsd at {} port {}: {error}", self.host, self.port));
        self.state = State::Waiting(clock::now() + self.wait);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }

    /// Reads the available octets, at most one buffer.
    fn read(&mut self) -> io::Result<()> {
        let State::Connected { stream, local, silent_at, asked } = &mut self.state else { return Ok(()) };
        let mut buffer = [0; 4096];
        let length = match stream.try_read(&mut buffer) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let (now, wall) = (clock::now(), clock::wall());
        (*silent_at, *asked) = (now + SILENCE, false);
        let before = self.reader.counters().lines;
        let (tracker, local) = (&mut self.tracker, *local);
        self.reader.push(&buffer[..length], |report| tracker.handle_report(now, wall, &report, local));
        // The peer speaks gpsd's protocol, so after the next failure begin with the shortest pause again.
        if self.reader.counters().lines > before {
            self.wait = FIRST_WAIT;
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Time) {
        self.tracker.handle_timeout(now);
        let State::Connected { stream, silent_at, asked, .. } = &mut self.state else { return };
        if *silent_at > now {
            return;
        }
        if *asked {
            self.give_up(&io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
        } else {
            // If the write fails, no answer comes, and carnet closes the connection.
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
