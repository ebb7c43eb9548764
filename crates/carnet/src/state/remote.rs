//! Stores records in another program: `carnet-fleet`, which starts this program with `--store SOCKET`.
//!
//! The two programs exchange lines of JSON over a UNIX socket. When this station becomes the leader, it first
//! receives a line `["2001:db8:1::1234","{...}"]` for each record, and then an empty line. After that, the
//! station sends each commit as a line, `[["own","{...}"],["2001:db8:1::5678",null]]`. The other program
//! answers with an empty line when the commit is stored. If the connection ends, the station ends, because
//! another machine may then be the leader.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, ensure};

use super::journal::{RecordChange, RecordKey};

/// `carnet-fleet` does not need this station: it has closed the connection and sent no record.
#[derive(Debug)]
pub struct StandbyEnded;

impl fmt::Display for StandbyEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("carnet-fleet has closed the connection before it sent the records")
    }
}

impl std::error::Error for StandbyEnded {}

/// Connection to the program that stores the records.
#[derive(Debug)]
pub struct StoreConnection {
    socket_stream: UnixStream,
    line_reader: BufReader<UnixStream>,
}

impl StoreConnection {
    /// Connects to the socket.
    ///
    /// # Errors
    /// Returns an error if no program listens on the socket.
    pub fn connect_to_store(path: &Path) -> anyhow::Result<StoreConnection> {
        let connect = || {
            let stream = UnixStream::connect(path)?;
            let reader = BufReader::new(stream.try_clone()?);
            io::Result::Ok(StoreConnection { socket_stream: stream, line_reader: reader })
        };
        connect().with_context(|| format!("cannot reach the store {}", path.display()))
    }

    /// Returns a second handle of the connection. Shutting it down ends the wait in
    /// [`Self::receive_records`].
    ///
    /// # Errors
    /// Returns an error if the process has no free file descriptor.
    pub fn shutdown_handle(&self) -> io::Result<UnixStream> {
        self.socket_stream.try_clone()
    }

    /// Waits until this station is the leader, and returns the records.
    ///
    /// # Errors
    /// Returns an error if the connection ends before the station is the leader, or if a record cannot be
    /// parsed.
    pub fn receive_records(&mut self) -> anyhow::Result<Vec<(RecordKey, String)>> {
        let (mut records, mut line) = (Vec::new(), String::new());
        loop {
            line.clear();
            ensure!(self.line_reader.read_line(&mut line)? > 0, StandbyEnded);
            if line == "\n" {
                return Ok(records);
            }
            let (key, record): (String, String) =
                serde_json::from_str(&line).context("expected a key and a record")?;
            records.push((key.parse()?, record));
        }
    }

    /// Splits the connection into the sender of changes and the receiver of answers.
    pub fn split_halves(self) -> (CommitSender, CommitReceiver) {
        (CommitSender(self.socket_stream), CommitReceiver(self.line_reader))
    }
}

/// Sending half of the connection: changes to store.
#[derive(Debug)]
pub struct CommitSender(UnixStream);

impl CommitSender {
    /// Sends a commit; [`CommitReceiver::next`] returns when the other program has stored it.
    ///
    /// # Errors
    /// Returns an error if the other program has closed the connection.
    pub fn send_commit(&mut self, changes: &[RecordChange]) -> io::Result<()> {
        let named: Vec<(String, &Option<String>)> =
            changes.iter().map(|(key, record)| (key.to_string(), record)).collect();
        let mut line = serde_json::to_vec(&named)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }
}

/// Receiving half of the connection: answers to commits.
#[derive(Debug)]
pub struct CommitReceiver(BufReader<UnixStream>);

impl CommitReceiver {
    /// Waits until the other program has stored the next commit.
    ///
    /// # Errors
    /// Returns an error if the connection has ended.
    pub fn next(&mut self) -> io::Result<()> {
        let mut answer = String::new();
        match self.0.read_line(&mut answer)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ if answer == "\n" => Ok(()),
            _ => Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("expected an empty line, found {answer:?}"),
            )),
        }
    }
}
