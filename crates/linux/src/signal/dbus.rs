//! The part of D-Bus that carnet needs for requests to a service: a connection to a bus, method calls and
//! their answers.
//!
//! The module follows the D-Bus Specification 0.43. Requests are little endian; answers may have either byte
//! order. The module checks every message against its length, and accepts containers up to a depth of
//! [`MAX_DEPTH`]. If the peer sends a message with more than [`MAX_MESSAGE`] octets or [`MAX_VALUES`] values,
//! or does not speak D-Bus, the module closes the connection.
//!
//! Left out: signals and calls to carnet, which the module skips; file descriptors; addresses other than
//! `unix:path=`.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Largest length of an accepted message in octets. (D-Bus permits 128 MiB; the answers to carnet have a few
/// kB.)
const MAX_MESSAGE: usize = 256 * 1024;
/// Largest number of values in a message, including containers: a decoded value needs many times the memory
/// of its octets. ModemManager describes a modem by a few hundred values.
const MAX_VALUES: usize = 16 * 1024;
/// Maximum depth of nested containers, including variants.
const MAX_DEPTH: u32 = 32;
/// Maximum length in octets of a line during authentication.
const MAX_LINE: usize = 512;
/// Length in octets of the fixed part of a message's header, including the length field of the array that
/// follows.
const FIXED: usize = 16;

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
/// Flag of a call: do not start the service if it is not running.
const NO_AUTO_START: u8 = 2;

/// Reason for which a call has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The bus is not reachable, or the connection to it broke.
    Broken(io::Error),
    /// The service or the bus refuses the call; the text is the name of the error.
    Refused(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Broken(error) => error.fmt(f),
            Failure::Refused(name) => name.fmt(f),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Broken(error)
    }
}

/// A decoded value of any type. A variant is represented by its content.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A value of type `b`.
    Boolean(bool),
    /// A value of the types `y`, `n`, `q`, `i`, `u`, `x` and `t`.
    Integer(i128),
    /// A value of type `d`.
    Double(f64),
    /// A value of the types `s`, `o` and `g`.
    Text(String),
    /// A value of the types `a` and `()`, or of type `{}` as a list of two values.
    List(Vec<Value>),
}

impl Value {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Value::Integer(number) => Some(*number as f64),
            Value::Double(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the elements of an array or structure; an empty list for other values.
    pub(super) fn list(&self) -> &[Value] {
        match self {
            Value::List(values) => values,
            _ => &[],
        }
    }

    /// Returns keys and values of a dictionary with text keys.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.list().iter().filter_map(|entry| match entry.list() {
            [key, value] => Some((key.text()?, value)),
            _ => None,
        })
    }

    /// Returns the value of a key in a dictionary with text keys; `None` if it lacks the key.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.entries().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

/// An argument of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Argument<'a> {
    Text(&'a str),
    Unsigned(u32),
}

/// A method call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) destination: &'a str,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) member: &'a str,
    pub(super) arguments: &'a [Argument<'a>],
}

/// A connection to a bus.
#[derive(Debug)]
pub(super) struct Bus {
    stream: UnixStream,
    serial: u32,
}

impl Bus {
    /// Connects to a bus, authenticates and sends Hello. Has no timeout of its own, so the caller must set
    /// one.
    pub(super) async fn connect(path: &Path) -> Result<Bus, Failure> {
        let mut bus = Bus { stream: UnixStream::connect(path).await?, serial: 0 };
        // EXTERNAL without a user name makes the bus read the user of this process from the socket. So the
        // number is right even if the bus has another user namespace.
        bus.stream.write_all(b"\0AUTH EXTERNAL\r\n").await?;
        bus.expect_line("DATA").await?;
        bus.stream.write_all(b"DATA\r\n").await?;
        bus.expect_line("OK").await?;
        bus.stream.write_all(b"BEGIN\r\n").await?;
        let name = "org.freedesktop.DBus";
        let path = "/org/freedesktop/DBus";
        bus.call(&Call { destination: name, path, interface: name, member: "Hello", arguments: &[] }).await?;
        Ok(bus)
    }

    async fn expect_line(&mut self, expected: &str) -> io::Result<()> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            if line.len() == MAX_LINE {
                return Err(wrong("a line without an end during authentication"));
            }
            line.push(self.stream.read_u8().await?);
        }
        let line = String::from_utf8_lossy(&line);
        match line.split_ascii_whitespace().next() {
            Some(word) if word == expected => Ok(()),
            _ => Err(wrong(&format!("{:?} during authentication, expected {expected}", line.trim_end()))),
        }
    }

    /// Calls a method and waits for the answer. Has no timeout of its own, so the caller must set one; after
    /// a timeout the connection is unusable.
    pub(super) async fn call(&mut self, call: &Call<'_>) -> Result<Vec<Value>, Failure> {
        // Zero is no valid serial number.
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        self.stream.write_all(&emit(call, self.serial)).await?;
        loop {
            let mut message = vec![0; FIXED];
            self.stream.read_exact(&mut message).await?;
            let length = length(&message)?;
            message.resize(length, 0);
            self.stream.read_exact(&mut message[FIXED..]).await?;
            let Message { kind, answers, error, body } = Message::parse(&message)?;
            match kind {
                METHOD_RETURN if answers == Some(self.serial) => return Ok(body),
                ERROR if answers == Some(self.serial) => {
                    return Err(Failure::Refused(error.unwrap_or_else(|| "an error without a name".into())));
                }
                _ => {}
            }
        }
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the bus sent an invalid D-Bus message: {what}"))
}

/// Encodes a method call.
fn emit(call: &Call<'_>, serial: u32) -> Vec<u8> {
    let mut body = Vec::new();
    let mut signature = String::new();
    for argument in call.arguments {
        match argument {
            Argument::Text(text) => {
                signature.push('s');
                put_text(&mut body, text);
            }
            Argument::Unsigned(number) => {
                signature.push('u');
                put_u32(&mut body, *number);
            }
        }
    }
    let mut fields = Vec::new();
    let texts =
        [(1, "o", call.path), (2, "s", call.interface), (3, "s", call.member), (6, "s", call.destination)];
    for (code, kind, text) in texts {
        pad(&mut fields, 8);
        fields.push(code);
        put_signature(&mut fields, kind);
        put_text(&mut fields, text);
    }
    if !signature.is_empty() {
        pad(&mut fields, 8);
        fields.push(8);
        put_signature(&mut fields, "g");
        put_signature(&mut fields, &signature);
    }
    let mut message = vec![b'l', METHOD_CALL, NO_AUTO_START, 1];
    put_u32(&mut message, body.len() as u32);
    put_u32(&mut message, serial);
    put_u32(&mut message, fields.len() as u32);
    message.extend(fields);
    pad(&mut message, 8);
    message.extend(body);
    message
}

fn pad(octets: &mut Vec<u8>, alignment: usize) {
    octets.resize(octets.len().next_multiple_of(alignment), 0);
}

fn put_u32(octets: &mut Vec<u8>, number: u32) {
    pad(octets, 4);
    octets.extend(number.to_le_bytes());
}

fn put_text(octets: &mut Vec<u8>, text: &str) {
    put_u32(octets, text.len() as u32);
    octets.extend(text.as_bytes());
    octets.push(0);
}

fn put_signature(octets: &mut Vec<u8>, signature: &str) {
    octets.push(signature.len() as u8);
    octets.extend(signature.as_bytes());
    octets.push(0);
}

/// Returns the length of a message from its first [`FIXED`] octets.
fn length(fixed: &[u8]) -> io::Result<usize> {
    let mut reader = Reader::new(fixed)?;
    reader.at = 4;
    let (body, _serial, fields) = (reader.u32()?, reader.u32()?, reader.u32()?);
    // Compute with 32 bits, so that an overflow is found on all machines.
    let header = (FIXED as u32).checked_add(fields).and_then(|length| length.checked_next_multiple_of(8));
    let length = header.and_then(|header| header.checked_add(body)).map(|length| length as usize);
    match length {
        Some(length) if length <= MAX_MESSAGE => Ok(length),
        _ => Err(wrong(&format!("a message of {body} octets, expected {MAX_MESSAGE} at most"))),
    }
}

/// The parts of a message that carnet uses.
#[derive(Debug, PartialEq)]
struct Message {
    kind: u8,
    /// Serial number of the call that the message answers, if any.
    answers: Option<u32>,
    error: Option<String>,
    body: Vec<Value>,
}

impl Message {
    fn parse(octets: &[u8]) -> io::Result<Message> {
        let mut reader = Reader::new(octets)?;
        let kind = octets.get(1).copied().unwrap_or_default();
        reader.at = FIXED - 4;
        let fields = reader.value(&mut Signature(b"a(yv)"), 0)?;
        reader.align(8)?;
        let (mut answers, mut error, mut signature) = (None, None, String::new());
        for field in fields.list() {
            match field.list() {
                [Value::Integer(4), Value::Text(name)] => error = Some(name.clone()),
                [Value::Integer(5), Value::Integer(serial)] => answers = u32::try_from(*serial).ok(),
                [Value::Integer(8), Value::Text(text)] => signature.clone_from(text),
                _ => {}
            }
        }
        let mut signature = Signature(signature.as_bytes());
        let mut body = Vec::new();
        while !signature.0.is_empty() {
            body.push(reader.value(&mut signature, 0)?);
        }
        Ok(Message { kind, answers, error, body })
    }
}

/// The part of a signature that is not yet read.
#[derive(Debug, Clone, Copy)]
struct Signature<'a>(&'a [u8]);

impl Signature<'_> {
    fn next(&mut self) -> io::Result<u8> {
        let (first, rest) = self.0.split_first().ok_or_else(|| wrong("a signature that ends early"))?;
        self.0 = rest;
        Ok(*first)
    }

    /// Skips one complete type of the signature.
    fn skip(&mut self, depth: u32) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(wrong("a signature that is nested too deep"));
        }
        let end = match self.next()? {
            b'a' => return self.skip(depth + 1),
            b'(' => b')',
            b'{' => b'}',
            _ => return Ok(()),
        };
        while self.0.first() != Some(&end) {
            self.skip(depth + 1)?;
        }
        self.next().map(|_| ())
    }
}

/// Reads values from the octets of a message.
struct Reader<'a> {
    octets: &'a [u8],
    at: usize,
    big: bool,
    /// Number of values read so far.
    values: usize,
}

impl<'a> Reader<'a> {
    fn new(octets: &'a [u8]) -> io::Result<Reader<'a>> {
        match octets.first() {
            Some(b'l') => Ok(Reader { octets, at: 0, big: false, values: 0 }),
            Some(b'B') => Ok(Reader { octets, at: 0, big: true, values: 0 }),
            _ => Err(wrong("a message with an unknown byte order")),
        }
    }

    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.octets.get(self.at..end));
        self.at = self.at.saturating_add(count);
        taken.ok_or_else(|| wrong("a message that ends early"))
    }

    fn align(&mut self, alignment: usize) -> io::Result<()> {
        self.take(self.at.next_multiple_of(alignment) - self.at).map(|_| ())
    }

    /// Reads a number of `N` octets, aligned to its size.
    fn number<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.align(N)?;
        let mut octets: [u8; N] = self.take(N)?.try_into().map_err(|_| wrong("a number that ends early"))?;
        if self.big {
            octets.reverse();
        }
        Ok(octets)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.number().map(u32::from_le_bytes)
    }

    /// Reads a text of this length and its terminating zero octet.
    fn text(&mut self, length: usize) -> io::Result<String> {
        let text = self.take(length)?.to_vec();
        self.take(1)?;
        String::from_utf8(text).map_err(|_| wrong("a text that is not UTF-8"))
    }

    /// Reads a value of the next type in the signature.
    fn value(&mut self, signature: &mut Signature<'_>, depth: u32) -> io::Result<Value> {
        if depth > MAX_DEPTH {
            return Err(wrong("a value that is nested too deep"));
        }
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(wrong(&format!("a message of more than {MAX_VALUES} values")));
        }
        let value = match signature.next()? {
            b'y' => Value::Integer(self.number().map(u8::from_le_bytes)?.into()),
            b'b' => Value::Boolean(self.u32()? != 0),
            b'n' => Value::Integer(self.number().map(i16::from_le_bytes)?.into()),
            b'q' => Value::Integer(self.number().map(u16::from_le_bytes)?.into()),
            b'i' => Value::Integer(self.number().map(i32::from_le_bytes)?.into()),
            b'u' | b'h' => Value::Integer(self.u32()?.into()),
            b'x' => Value::Integer(self.number().map(i64::from_le_bytes)?.into()),
            b't' => Value::Integer(self.number().map(u64::from_le_bytes)?.into()),
            b'd' => Value::Double(self.number().map(f64::from_le_bytes)?),
            b's' | b'o' => {
                let length = self.u32()?;
                Value::Text(self.text(length as usize)?)
            }
            b'g' => {
                let length = self.number().map(u8::from_le_bytes)?;
                Value::Text(self.text(length.into())?)
            }
            b'v' => {
                let length = self.number().map(u8::from_le_bytes)?;
                let text = self.text(length.into())?;
                self.value(&mut Signature(text.as_bytes()), depth + 1)?
            }
            b'a' => {
                let element = *signature;
                signature.skip(depth)?;
                let length = self.u32()? as usize;
                self.align(match element.0.first() {
                    Some(b'x' | b't' | b'd' | b'(' | b'{') => 8,
                    Some(b'n' | b'q') => 2,
                    Some(b'y' | b'g' | b'v') => 1,
                    _ => 4,
                })?;
                let end = self.at.saturating_add(length);
                let mut values = Vec::new();
                while self.at < end {
                    values.push(self.value(&mut element.clone(), depth + 1)?);
                }
                if self.at != end {
                    return Err(wrong("an array whose last element ends early"));
                }
                Value::List(values)
            }
            open @ (b'(' | b'{') => {
                self.align(8)?;
                let end = if open == b'(' { b')' } else { b'}' };
                let mut values = Vec::new();
                while signature.0.first() != Some(&end) {
                    values.push(self.value(signature, depth + 1)?);
                }
                signature.next()?;
                // The specification forbids empty structures, and reading an array of them would never end.
                if values.is_empty() {
                    return Err(wrong("an empty structure"));
                }
                Value::List(values)
            }
            other => return Err(wrong(&format!("type {:?}", char::from(other)))),
        };
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
