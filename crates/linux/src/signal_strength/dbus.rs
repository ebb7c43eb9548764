//! The part of D-Bus that carnet needs for requests to a service: a connection to a bus, method calls and
//! their answers.
//!
//! The module follows the D-Bus Specification 0.43. Requests are little endian; answers may have either byte
//! order. The module checks that every message has the length that it claims, and accepts containers up to a
//! depth of [`MAX_VALUE_DEPTH`]. It closes the connection if the peer does not speak D-Bus, or sends a
//! message with more than [`MAX_MESSAGE_LENGTH`] octets or [`MAX_VALUES_PER_MESSAGE`] values.
//!
//! Left out: signals and calls to carnet, which the module skips; file descriptors; addresses other than
//! `unix:path=`.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Largest length of an accepted message in octets. (D-Bus permits 128 MiB; the answers to carnet have a few
/// kB.)
const MAX_MESSAGE_LENGTH: usize = 256 * 1024;
/// Largest number of values in a message, including containers. The limit exists because a decoded value
/// needs many times the memory of its octets. ModemManager describes a modem by a few hundred values.
const MAX_VALUES_PER_MESSAGE: usize = 16 * 1024;
/// Maximum depth of nested containers, including variants.
const MAX_VALUE_DEPTH: u32 = 32;
/// Maximum length in octets of a line during authentication.
const MAX_LINE_LENGTH: usize = 512;
/// Length in octets of the fixed part of a message's header, including the length field of the array that
/// follows.
const FIXED_HEADER_LENGTH: usize = 16;

const MESSAGE_METHOD_CALL: u8 = 1;
const MESSAGE_METHOD_RETURN: u8 = 2;
const MESSAGE_ERROR: u8 = 3;
/// Flag of a call: do not start the service if it is not running.
const FLAG_NO_AUTO_START: u8 = 2;

/// Reason for which a call has no answer.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// The bus is not reachable, or the connection to it broke.
    Broken(io::Error),
    /// The service or the bus refuses the call; the text is the name of the error.
    Refused(String),
}

impl std::fmt::Display for CallFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CallFailure::Broken(error) => error.fmt(f),
            CallFailure::Refused(name) => name.fmt(f),
        }
    }
}

impl From<io::Error> for CallFailure {
    fn from(error: io::Error) -> CallFailure {
        CallFailure::Broken(error)
    }
}

/// A decoded value of any type. A variant is represented by its content.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DbusValue {
    /// A value of type `b`.
    Boolean(bool),
    /// A value of the types `y`, `n`, `q`, `i`, `u`, `x` and `t`.
    Integer(i128),
    /// A value of type `d`.
    Double(f64),
    /// A value of the types `s`, `o` and `g`.
    Text(String),
    /// A value of the types `a` and `()`, or of type `{}` as a list of two values.
    List(Vec<DbusValue>),
}

impl DbusValue {
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            DbusValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_number(&self) -> Option<f64> {
        match self {
            DbusValue::Integer(number) => Some(*number as f64),
            DbusValue::Double(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the elements of an array or structure; an empty list for other values.
    pub(super) fn as_list(&self) -> &[DbusValue] {
        match self {
            DbusValue::List(values) => values,
            _ => &[],
        }
    }

    /// Returns keys and values of a dictionary with text keys.
    pub(super) fn dictionary_entries(&self) -> impl Iterator<Item = (&str, &DbusValue)> {
        self.as_list().iter().filter_map(|entry| match entry.as_list() {
            [key, value] => Some((key.as_text()?, value)),
            _ => None,
        })
    }

    /// Returns the value of a key in a dictionary with text keys; `None` if it lacks the key.
    pub(super) fn get(&self, key: &str) -> Option<&DbusValue> {
        self.dictionary_entries().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

/// An argument of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallArgument<'a> {
    Text(&'a str),
    Unsigned(u32),
}

/// A method call.
#[derive(Debug, Clone, Copy)]
pub(super) struct MethodCall<'a> {
    pub(super) destination: &'a str,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) method_name: &'a str,
    pub(super) arguments: &'a [CallArgument<'a>],
}

/// A connection to a bus.
#[derive(Debug)]
pub(super) struct DbusConnection {
    bus_stream: UnixStream,
    last_serial: u32,
}

impl DbusConnection {
    /// Connects to a bus, authenticates and sends Hello. Has no timeout of its own, so the caller must set
    /// one.
    pub(super) async fn connect_to_bus(path: &Path) -> Result<DbusConnection, CallFailure> {
        let mut bus = DbusConnection { bus_stream: UnixStream::connect(path).await?, last_serial: 0 };
        // Send EXTERNAL without a user name: the bus then reads the user of this process from the socket. The
        // user number is right even if the bus is in another user namespace.
        bus.bus_stream.write_all(b"\0AUTH EXTERNAL\r\n").await?;
        bus.expect_line("DATA").await?;
        bus.bus_stream.write_all(b"DATA\r\n").await?;
        bus.expect_line("OK").await?;
        bus.bus_stream.write_all(b"BEGIN\r\n").await?;
        let name = "org.freedesktop.DBus";
        let path = "/org/freedesktop/DBus";
        bus.call_method(&MethodCall {
            destination: name,
            path,
            interface: name,
            method_name: "Hello",
            arguments: &[],
        })
        .await?;
        Ok(bus)
    }

    async fn expect_line(&mut self, expected: &str) -> io::Result<()> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            if line.len() == MAX_LINE_LENGTH {
                return Err(invalid_data("a line without an end during authentication"));
            }
            line.push(self.bus_stream.read_u8().await?);
        }
        let line = String::from_utf8_lossy(&line);
        match line.split_ascii_whitespace().next() {
            Some(word) if word == expected => Ok(()),
            _ => Err(invalid_data(&format!(
                "{:?} during authentication, expected {expected}",
                line.trim_end()
            ))),
        }
    }

    /// Calls a method and waits for the answer. Has no timeout of its own, so the caller must set one; after
    /// a timeout the connection is unusable.
    pub(super) async fn call_method(&mut self, call: &MethodCall<'_>) -> Result<Vec<DbusValue>, CallFailure> {
        // Zero is no valid serial number.
        self.last_serial = self.last_serial.checked_add(1).unwrap_or(1);
        self.bus_stream.write_all(&encode_method_call(call, self.last_serial)).await?;
        loop {
            let mut message = vec![0; FIXED_HEADER_LENGTH];
            self.bus_stream.read_exact(&mut message).await?;
            let length = message_length(&message)?;
            message.resize(length, 0);
            self.bus_stream.read_exact(&mut message[FIXED_HEADER_LENGTH..]).await?;
            let ReceivedMessage { kind, reply_to_serial: answers, error, body_values: body } =
                ReceivedMessage::parse(&message)?;
            match kind {
                MESSAGE_METHOD_RETURN if answers == Some(self.last_serial) => return Ok(body),
                MESSAGE_ERROR if answers == Some(self.last_serial) => {
                    return Err(CallFailure::Refused(
                        error.unwrap_or_else(|| "an error without a name".into()),
                    ));
                }
                _ => {}
            }
        }
    }
}

fn invalid_data(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the bus sent an invalid D-Bus message: {what}"))
}

/// Encodes a method call.
fn encode_method_call(call: &MethodCall<'_>, serial: u32) -> Vec<u8> {
    let mut body = Vec::new();
    let mut signature = String::new();
    for argument in call.arguments {
        match argument {
            CallArgument::Text(text) => {
                signature.push('s');
                put_text(&mut body, text);
            }
            CallArgument::Unsigned(number) => {
                signature.push('u');
                put_u32(&mut body, *number);
            }
        }
    }
    let mut fields = Vec::new();
    let texts = [
        (1, "o", call.path),
        (2, "s", call.interface),
        (3, "s", call.method_name),
        (6, "s", call.destination),
    ];
    for (code, kind, text) in texts {
        pad_to_alignment(&mut fields, 8);
        fields.push(code);
        put_signature(&mut fields, kind);
        put_text(&mut fields, text);
    }
    if !signature.is_empty() {
        pad_to_alignment(&mut fields, 8);
        fields.push(8);
        put_signature(&mut fields, "g");
        put_signature(&mut fields, &signature);
    }
    let mut message = vec![b'l', MESSAGE_METHOD_CALL, FLAG_NO_AUTO_START, 1];
    put_u32(&mut message, body.len() as u32);
    put_u32(&mut message, serial);
    put_u32(&mut message, fields.len() as u32);
    message.extend(fields);
    pad_to_alignment(&mut message, 8);
    message.extend(body);
    message
}

fn pad_to_alignment(octets: &mut Vec<u8>, alignment: usize) {
    octets.resize(octets.len().next_multiple_of(alignment), 0);
}

fn put_u32(octets: &mut Vec<u8>, number: u32) {
    pad_to_alignment(octets, 4);
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

/// Returns the length of a message from its first [`FIXED_HEADER_LENGTH`] octets.
fn message_length(fixed: &[u8]) -> io::Result<usize> {
    let mut reader = ValueReader::new(fixed)?;
    reader.read_offset = 4;
    let (body, _serial, fields) = (reader.read_u32()?, reader.read_u32()?, reader.read_u32()?);
    // Compute with 32 bits, so that an overflow is found on 64-bit machines too.
    let header = (FIXED_HEADER_LENGTH as u32)
        .checked_add(fields)
        .and_then(|length| length.checked_next_multiple_of(8));
    let length = header.and_then(|header| header.checked_add(body)).map(|length| length as usize);
    match length {
        Some(length) if length <= MAX_MESSAGE_LENGTH => Ok(length),
        _ => Err(invalid_data(&format!("a message of {body} octets, expected {MAX_MESSAGE_LENGTH} at most"))),
    }
}

/// The parts of a message that carnet uses.
#[derive(Debug, PartialEq)]
struct ReceivedMessage {
    kind: u8,
    /// Serial number of the call that the message answers, if any.
    reply_to_serial: Option<u32>,
    error: Option<String>,
    body_values: Vec<DbusValue>,
}

impl ReceivedMessage {
    fn parse(octets: &[u8]) -> io::Result<ReceivedMessage> {
        let mut reader = ValueReader::new(octets)?;
        let kind = octets.get(1).copied().unwrap_or_default();
        reader.read_offset = FIXED_HEADER_LENGTH - 4;
        let fields = reader.read_value(&mut TypeSignature(b"a(yv)"), 0)?;
        reader.align_to(8)?;
        let (mut answers, mut error, mut signature) = (None, None, String::new());
        for field in fields.as_list() {
            match field.as_list() {
                [DbusValue::Integer(4), DbusValue::Text(name)] => error = Some(name.clone()),
                [DbusValue::Integer(5), DbusValue::Integer(serial)] => answers = u32::try_from(*serial).ok(),
                [DbusValue::Integer(8), DbusValue::Text(text)] => signature.clone_from(text),
                _ => {}
            }
        }
        let mut signature = TypeSignature(signature.as_bytes());
        let mut body = Vec::new();
        while !signature.0.is_empty() {
            body.push(reader.read_value(&mut signature, 0)?);
        }
        Ok(ReceivedMessage { kind, reply_to_serial: answers, error, body_values: body })
    }
}

/// The part of a signature that is not yet read.
#[derive(Debug, Clone, Copy)]
struct TypeSignature<'a>(&'a [u8]);

impl TypeSignature<'_> {
    fn next_type_code(&mut self) -> io::Result<u8> {
        let (first, rest) =
            self.0.split_first().ok_or_else(|| invalid_data("a signature that ends early"))?;
        self.0 = rest;
        Ok(*first)
    }

    /// Skips one complete type of the signature.
    fn skip_type(&mut self, depth: u32) -> io::Result<()> {
        if depth > MAX_VALUE_DEPTH {
            return Err(invalid_data("a signature that is nested too deep"));
        }
        let end = match self.next_type_code()? {
            b'a' => return self.skip_type(depth + 1),
            b'(' => b')',
            b'{' => b'}',
            _ => return Ok(()),
        };
        while self.0.first() != Some(&end) {
            self.skip_type(depth + 1)?;
        }
        self.next_type_code().map(|_| ())
    }
}

/// Reads values from the octets of a message.
struct ValueReader<'a> {
    octets: &'a [u8],
    read_offset: usize,
    is_big_endian: bool,
    /// Number of values read so far.
    read_value_count: usize,
}

impl<'a> ValueReader<'a> {
    fn new(octets: &'a [u8]) -> io::Result<ValueReader<'a>> {
        match octets.first() {
            Some(b'l') => {
                Ok(ValueReader { octets, read_offset: 0, is_big_endian: false, read_value_count: 0 })
            }
            Some(b'B') => {
                Ok(ValueReader { octets, read_offset: 0, is_big_endian: true, read_value_count: 0 })
            }
            _ => Err(invalid_data("a message with an unknown byte order")),
        }
    }

    fn take_octets(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let end = self.read_offset.checked_add(count);
        let taken = end.and_then(|end| self.octets.get(self.read_offset..end));
        self.read_offset = self.read_offset.saturating_add(count);
        taken.ok_or_else(|| invalid_data("a message that ends early"))
    }

    fn align_to(&mut self, alignment: usize) -> io::Result<()> {
        self.take_octets(self.read_offset.next_multiple_of(alignment) - self.read_offset).map(|_| ())
    }

    /// Reads a number of `N` octets, aligned to its size.
    fn read_number<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.align_to(N)?;
        let mut octets: [u8; N] =
            self.take_octets(N)?.try_into().map_err(|_| invalid_data("a number that ends early"))?;
        if self.is_big_endian {
            octets.reverse();
        }
        Ok(octets)
    }

    fn read_u32(&mut self) -> io::Result<u32> {
        self.read_number().map(u32::from_le_bytes)
    }

    /// Reads a text of this length and its terminating zero octet.
    fn read_text(&mut self, length: usize) -> io::Result<String> {
        let text = self.take_octets(length)?.to_vec();
        self.take_octets(1)?;
        String::from_utf8(text).map_err(|_| invalid_data("a text that is not UTF-8"))
    }

    /// Reads a value of the next type in the signature.
    fn read_value(&mut self, signature: &mut TypeSignature<'_>, depth: u32) -> io::Result<DbusValue> {
        if depth > MAX_VALUE_DEPTH {
            return Err(invalid_data("a value that is nested too deep"));
        }
        self.read_value_count += 1;
        if self.read_value_count > MAX_VALUES_PER_MESSAGE {
            return Err(invalid_data(&format!("a message of more than {MAX_VALUES_PER_MESSAGE} values")));
        }
        let value = match signature.next_type_code()? {
            b'y' => DbusValue::Integer(self.read_number().map(u8::from_le_bytes)?.into()),
            b'b' => DbusValue::Boolean(self.read_u32()? != 0),
            b'n' => DbusValue::Integer(self.read_number().map(i16::from_le_bytes)?.into()),
            b'q' => DbusValue::Integer(self.read_number().map(u16::from_le_bytes)?.into()),
            b'i' => DbusValue::Integer(self.read_number().map(i32::from_le_bytes)?.into()),
            b'u' | b'h' => DbusValue::Integer(self.read_u32()?.into()),
            b'x' => DbusValue::Integer(self.read_number().map(i64::from_le_bytes)?.into()),
            b't' => DbusValue::Integer(self.read_number().map(u64::from_le_bytes)?.into()),
            b'd' => DbusValue::Double(self.read_number().map(f64::from_le_bytes)?),
            b's' | b'o' => {
                let length = self.read_u32()?;
                DbusValue::Text(self.read_text(length as usize)?)
            }
            b'g' => {
                let length = self.read_number().map(u8::from_le_bytes)?;
                DbusValue::Text(self.read_text(length.into())?)
            }
            b'v' => {
                let length = self.read_number().map(u8::from_le_bytes)?;
                let text = self.read_text(length.into())?;
                self.read_value(&mut TypeSignature(text.as_bytes()), depth + 1)?
            }
            b'a' => {
                let element = *signature;
                signature.skip_type(depth)?;
                let length = self.read_u32()? as usize;
                self.align_to(match element.0.first() {
                    Some(b'x' | b't' | b'd' | b'(' | b'{') => 8,
                    Some(b'n' | b'q') => 2,
                    Some(b'y' | b'g' | b'v') => 1,
                    _ => 4,
                })?;
                let end = self.read_offset.saturating_add(length);
                let mut values = Vec::new();
                while self.read_offset < end {
                    values.push(self.read_value(&mut element.clone(), depth + 1)?);
                }
                if self.read_offset != end {
                    return Err(invalid_data("an array whose last element ends early"));
                }
                DbusValue::List(values)
            }
            open @ (b'(' | b'{') => {
                self.align_to(8)?;
                let end = if open == b'(' { b')' } else { b'}' };
                let mut values = Vec::new();
                while signature.0.first() != Some(&end) {
                    values.push(self.read_value(signature, depth + 1)?);
                }
                signature.next_type_code()?;
                // The specification forbids empty structures, and reading an array of them would never end.
                if values.is_empty() {
                    return Err(invalid_data("an empty structure"));
                }
                DbusValue::List(values)
            }
            other => return Err(invalid_data(&format!("type {:?}", char::from(other)))),
        };
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
