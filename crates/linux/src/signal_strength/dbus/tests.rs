//! Tests the D-Bus module with messages that were built by hand, and with invalid messages.

use proptest::prelude::*;

use super::*;

/// Returns a message that answers the call with serial number 7, with a body of this signature.
fn reply_message(signature: &str, body: &[u8]) -> Vec<u8> {
    let mut fields = vec![5];
    put_signature(&mut fields, "u");
    put_u32(&mut fields, 7);
    pad_to_alignment(&mut fields, 8);
    fields.push(8);
    put_signature(&mut fields, "g");
    put_signature(&mut fields, signature);
    let mut message = vec![b'l', MESSAGE_METHOD_RETURN, 0, 1];
    put_u32(&mut message, body.len() as u32);
    put_u32(&mut message, 1);
    put_u32(&mut message, fields.len() as u32);
    message.extend(fields);
    pad_to_alignment(&mut message, 8);
    message.extend(body);
    message
}

/// The expected octets were built by hand from the specification's tables.
#[test]
fn dbus_call_has_the_specified_layout() {
    let call = MethodCall {
        destination: "a.b",
        path: "/c",
        interface: "d.e",
        method_name: "Setup",
        arguments: &[CallArgument::Text("x"), CallArgument::Unsigned(2)],
    };
    let expected = b"l\x01\x02\x01\x0c\0\0\0\x07\0\0\0\x48\0\0\0\
        \x01\x01o\0\x02\0\0\0/c\0\0\0\0\0\0\
        \x02\x01s\0\x03\0\0\0d.e\0\0\0\0\0\
        \x03\x01s\0\x05\0\0\0Setup\0\0\0\
        \x06\x01s\0\x03\0\0\0a.b\0\0\0\0\0\
        \x08\x01g\0\x02su\0\
        \x01\0\0\0x\0\0\0\x02\0\0\0";
    assert_eq!(encode_method_call(&call, 7), expected);
    assert_eq!(message_length(expected).expect("a length"), expected.len());
}

#[test]
fn dbus_dictionaries_of_variants_are_parsed() {
    // The body is a dictionary (a{sv}) with one entry: "rsrp" is -97.5.
    let mut body = Vec::new();
    put_u32(&mut body, 32);
    pad_to_alignment(&mut body, 8);
    put_text(&mut body, "rsrp");
    put_signature(&mut body, "d");
    pad_to_alignment(&mut body, 8);
    body.extend((-97.5_f64).to_le_bytes());
    let length = body.len() as u32 - 8;
    body[..4].copy_from_slice(&length.to_le_bytes());
    let message = ReceivedMessage::parse(&reply_message("a{sv}", &body)).expect("a message");
    assert_eq!((message.kind, message.reply_to_serial), (MESSAGE_METHOD_RETURN, Some(7)));
    assert_eq!(message.body_values[0].get("rsrp"), Some(&DbusValue::Double(-97.5)));
    assert_eq!(message.body_values[0].get("rssi"), None);
}

#[test]
fn dbus_big_endian_messages_are_parsed() {
    let octets =
        b"B\x02\0\x01\0\0\0\x04\0\0\0\x01\0\0\0\x0f\x05\x01u\0\0\0\0\x07\x08\x01g\0\x01u\0\0\0\0\0\x2a";
    let message = ReceivedMessage::parse(octets).expect("a message");
    assert_eq!((message.reply_to_serial, message.body_values), (Some(7), vec![DbusValue::Integer(42)]));
}

#[test]
fn invalid_dbus_message_is_refused() {
    let nested = |count: usize| reply_message(&("(".repeat(count) + "u" + &")".repeat(count)), &[0; 8]);
    assert!(ReceivedMessage::parse(&nested(20)).is_ok());
    for (octets, why) in [
        (nested(100), "nested too deep"),
        (reply_message(&("a".repeat(100) + "u"), &[0; 8]), "nested too deep"),
        (reply_message("a()", &[1, 0, 0, 0, 0, 0, 0, 0, 0]), "an empty structure"),
        (reply_message("a", &[0; 8]), "ends early"),
        (reply_message("s", &[255, 255, 255, 255]), "ends early"),
        (reply_message("s", &[1, 0, 0, 0, 255, 0]), "not UTF-8"),
        (reply_message("ay", &[255, 255, 255, 127, 0]), "ends early"),
        (reply_message("ax", &[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), "last element ends early"),
        (reply_message("?", &[0; 8]), "type '?'"),
        (
            reply_message("ay", &[&20_000_u32.to_le_bytes()[..], &[0; 20_000]].concat()),
            "more than 16384 values",
        ),
    ] {
        let error = ReceivedMessage::parse(&octets).expect_err(why).to_string();
        assert!(error.contains(why), "{error}, expected {why}");
    }
    let mut long = reply_message("u", &[0; 4]);
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(message_length(&long).is_err());
    // With these lengths of the header fields, the length of the message exceeds 32 bits.
    for fields in [u32::MAX, u32::MAX - 15, u32::MAX - 16, u32::MAX - 22] {
        long[4..8].copy_from_slice(&8_u32.to_le_bytes());
        long[12..16].copy_from_slice(&fields.to_le_bytes());
        assert!(message_length(&long).is_err(), "{fields}");
    }
    assert!(message_length(b"x\x02\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0").is_err());
}

proptest! {
    /// Decoding any input returns a message or an error.
    #[test]
    fn random_dbus_messages_cause_no_panic(signature in "[ybnqiuxtdsogvah(){}]\
                                    {0,24}", body in prop::collection::vec(any::<u8>(), 0..200)) {
        let octets = reply_message(&signature, &body);
        let _ = message_length(&octets);
        let _ = ReceivedMessage::parse(&octets);
        let _ = ReceivedMessage::parse(&body);
    }
}
