//! Encodings computed by hand from X.691.

use proptest::prelude::*;

use super::*;
use crate::uper::macros::{
    bit_strings, enumerated, extensible_choices, extensible_enumerated, extensible_sequences, integers,
    lists, sequences, strings,
};

integers! {
    /// A range of eight values: three bits.
    Small(u8) 3..=10, default 3;
    /// A range with negative values.
    Signed(i16) -5..=5, default 0;
    /// A range that does not use all values of its bits.
    Odd(u8) 1..=5, default 1;
    /// An extensible range.
    Open(i16) 1..=16 [extensible], default 1;
    /// A range of one value: no bits.
    Nothing(u8) 7..=7, default 7;
}
enumerated! {
    /// Three values.
    Three { #[default] A, B, C }
}
extensible_enumerated! {
    /// Two values and later additions.
    Two { #[default] A, B }
}
bit_strings! {
    /// A bit string of five bits.
    Five(u8) 5 { FIRST = 0, LAST = 4 }
}
lists! {
    /// A list of up to three elements.
    List[Small] 0..=3;
    /// A list of one or two elements, extensible.
    OpenList[Small] 1..=2 [extensible];
}
strings! {
    /// A string of IA5 characters.
    Text Ia5 1..=3;
    /// A string of numeric characters.
    Number Numeric 1..=16;
}
sequences! {
    /// A sequence with two optional components.
    Pair { a: Option<Small>, b: Small, c: Option<bool> }
}
extensible_sequences! {
    /// A sequence with an extension marker.
    Later { a: Small }
}
extensible_choices! {
    /// A choice with one alternative.
    Choice { Only(Small) }
}

/// Returns the octets of bits in text form, padded with 0.
fn octets_of_bits(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|digit| *digit != b' ').map(|digit| digit - b'0').collect();
    digits
        .chunks(8)
        .map(|chunk| chunk.iter().enumerate().fold(0, |octet, (place, bit)| octet | bit << (7 - place)))
        .collect()
}

fn assert_encodes_and_decodes<T: Uper + PartialEq + std::fmt::Debug>(value: &T, text: &str) {
    assert_eq!(encode(value).expect("encodes"), octets_of_bits(text), "{value:?}");
    assert_eq!(&decode::<T>(&octets_of_bits(text)).expect("decodes"), value);
}

#[test]
fn uper_encodes_integers_enumerations_and_bit_strings() {
    assert_encodes_and_decodes(&Small(3), "000");
    assert_encodes_and_decodes(&Small(10), "111");
    assert_encodes_and_decodes(&Signed(-5), "0000");
    assert_encodes_and_decodes(&Signed(5), "1010");
    assert_encodes_and_decodes(&Nothing(7), "");
    assert_encodes_and_decodes(&Three::C, "10");
    assert_encodes_and_decodes(&Two::B, "01");
    // A value of a later release is an extension bit and a normally small number.
    assert_encodes_and_decodes(&Two::Other(5), "1 0000101");
    assert_encodes_and_decodes(&(Five::FIRST | Five::LAST), "10001");
    assert!(Five(0b11001).contains(Five::FIRST | Five::LAST) && !Five(0b01111).contains(Five::FIRST));
}

#[test]
fn uper_encodes_values_outside_extensible_range() {
    assert_encodes_and_decodes(&Open(16), "0 1111");
    assert_encodes_and_decodes(&Open(17), "1 00000001 00010001");
    assert_encodes_and_decodes(&Open(-1), "1 00000001 11111111");
    assert_encodes_and_decodes(&Open(128), "1 00000010 00000000 10000000");
    assert_encodes_and_decodes(&Open(-129), "1 00000010 11111111 01111111");
}

#[test]
fn uper_encodes_lists_and_strings() {
    assert_encodes_and_decodes(&List(vec![]), "00");
    assert_encodes_and_decodes(&List(vec![Small(3), Small(10)]), "10 000 111");
    assert_encodes_and_decodes(&OpenList(vec![Small(4)]), "0 0 001");
    assert_encodes_and_decodes(&OpenList(vec![Small(4); 3]), "1 00000011 001 001 001");
    assert_encodes_and_decodes(&Text("ab".to_owned()), "01 1100001 1100010");
    assert_encodes_and_decodes(&Number("0 9".to_owned()), "0010 0001 0000 1010");
}

#[test]
fn uper_encodes_sequences_and_choices() {
    assert_encodes_and_decodes(&Pair { a: None, b: Small(4), c: Some(true) }, "01 001 1");
    assert_encodes_and_decodes(&Pair { a: Some(Small(5)), b: Small(4), c: None }, "10 010 001");
    assert_encodes_and_decodes(&Later { a: Small(4) }, "0 001");
    assert_encodes_and_decodes(&Choice::Only(Small(4)), "0 001");
    assert_encodes_and_decodes(
        &Choice::Other(OpenType { index: 2, octets: vec![0xab] }),
        "1 0000010 00000001 10101011",
    );
}

/// X.691 19.7: the message announces two additions; only the second is present, with one octet. The decoder
/// skips this addition and reads the value that follows it.
#[test]
fn uper_skips_unknown_additions() {
    let octets = octets_of_bits("1 001 0000001 01 00000001 11111111 101");
    let mut reader = Reader::new(&octets);
    assert_eq!(Later::decode(&mut reader), Later { a: Small(4) });
    assert_eq!((reader.read_bits(3, "rest"), reader.error()), (0b101, None));
}

#[test]
fn decoding_error_names_type_and_position() {
    assert_eq!(
        decode::<Odd>(&octets_of_bits("111")),
        Err(Error::OutOfRange { what: "Odd", least: 1, most: 5, found: 8 })
    );
    assert_eq!(encode(&Small(2)), Err(Error::OutOfRange { what: "Small", least: 3, most: 10, found: 2 }));
    assert_eq!(decode::<Small>(&[]), Err(Error::Truncated { what: "Small", bit: 0, expected: 3, found: 0 }));
    assert_eq!(
        decode::<Three>(&octets_of_bits("11")),
        Err(Error::OutOfRange { what: "Three", least: 0, most: 2, found: 3 })
    );
    assert_eq!(
        encode(&List(vec![Small(3); 4])),
        Err(Error::OutOfRange { what: "List", least: 0, most: 3, found: 4 })
    );
    // The first message announces a length that is greater than the number of its octets. The second has a
    // length in fragments.
    let claimed = decode::<Choice>(&octets_of_bits("1 0000000 10 00111111111111"));
    assert!(matches!(claimed, Err(Error::Truncated { what: "Choice", .. })), "{claimed:?}");
    let fragmented = decode::<Choice>(&octets_of_bits("1 0000000 11 000001"));
    assert_eq!(fragmented, Err(Error::Fragmented { what: "Choice", bit: 8 }));
    assert_eq!(
        decode::<Number>(&octets_of_bits("0000 1011")),
        Err(Error::Character { what: "Number", found: 11 })
    );
    assert_eq!(
        decode::<Open>(&octets_of_bits("1 00001001")),
        Err(Error::OutOfRange { what: "Open", least: 1, most: 8, found: 9 })
    );
}

proptest! {
    /// The writer and the reader agree on any sequence of widths.
    #[test]
    fn encoded_bits_are_decoded_unchanged(fields in prop::collection::vec((0u32..=56, any::<u64>()), 0..40)) {
        let mut writer = Writer::default();
        for (width, value) in &fields {
            writer.write_bits(value & ((1 << width) - 1), *width);
        }
        let octets = writer.finish().expect("fits");
        prop_assert_eq!(octets.len(), fields.iter().map(|field| field.0 as usize).sum::<usize>().div_ceil(8));
        let mut reader = Reader::new(&octets);
        for (width, value) in &fields {
            prop_assert_eq!(reader.read_bits(*width, "field"), value & ((1 << width) - 1));
        }
    }

    #[test]
    fn uper_keeps_numbers_outside_extensible_range(value in any::<i64>()) {
        let mut writer = Writer::default();
        super::macros::encode_unconstrained(value, &mut writer);
        let octets = writer.finish().expect("fits");
        let mut reader = Reader::new(&octets);
        let found = super::macros::decode_unconstrained(&mut reader, i64::MIN, i64::MAX, "number");
        prop_assert_eq!((found, reader.error()), (value, None));
    }
}
