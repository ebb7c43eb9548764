//! Records in another program: `carnet-fleet`, which starts this one with `--store SOCKET`.
//!
//! Lines of JSON over a UNIX socket. When this station is wanted it begins with what there is,
//! `["2001:db8:1::1234","{...}"]` for each record and then an empty line. Then each commit is a line,
//! `[["own","{...}"],["2001:db8:1::5678",null]]`, and its answer an empty line when it is stored. The end of
//! the connection is the end of the station: others may have its place.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, ensure};

use super::journal::{Change, Key};

/// `carnet-fleet` does not need this station: the connection ended before the first message.
#[derive(Debug)]
pub struct NotWanted;

impl fmt::Display for NotWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it has ended before it has said what there is")
    }
}

impl std::error::Error for NotWanted {}

/// The connection to who keeps them.
#[derive(Debug)]
pub struct Remote {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Remote {
    /// Connects.
    ///
    /// # Errors
    /// If no program listens.
    pub fn open(path: &Path) -> anyhow::Result<Remote> {
        let connect = || {
            let stream = UnixStream::connect(path)?;
            let reader = BufReader::new(stream.try_clone()?);
            io::Result::Ok(Remote { stream, reader })
        };
        connect().with_context(|| format!("cannot reach the store {}", path.display()))
    }

    /// Returns a handle of the connection that ends the wait for it.
    ///
    /// # Errors
    /// When there is no room for one.
    pub fn handle(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// Waits for what there is: until this station is the one that is wanted.
    ///
    /// # Errors
    /// When it never will be, or what is said cannot be understood.
    pub fn records(&mut self) -> anyhow::Result<Vec<(Key, String)>> {
        let (mut records, mut line) = (Vec::new(), String::new());
        loop {
            line.clear();
            ensure!(self.reader.read_line(&mut line)? > 0, NotWanted);
            if line == "\n" {
                return Ok(records);
            }
            let (key, record): (String, String) =
                serde_json::from_str(&line).context("expected a key and a record")?;
            records.push((key.parse()?, record));
        }
    }

    /// Returns the sender of changes and the receiver of answers.
    pub fn split(self) -> (Commits, Answers) {
        (Commits(self.stream), Answers(self.reader))
    }
}

/// The way there.
#[derive(Debug)]
pub struct Commits(UnixStream);

impl Commits {
    /// Has a commit stored: [`Answers::next`] tells when it is.
    ///
    /// # Errors
    /// If the other program is gone.
    pub fn send(&mut self, changes: &[Change]) -> io::Result<()> {
        let named: Vec<(String, &Option<String>)> =
            changes.iter().map(|(key, record)| (key.to_string(), record)).collect();
        let mut line = serde_json::to_vec(&named)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }
}

/// The way back.
#[derive(Debug)]
pub struct Answers(BufReader<UnixStream>);

impl Answers {
    /// Waits until the next commit is stored.
    ///
    /// # Errors
    /// When none will be any more.
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
