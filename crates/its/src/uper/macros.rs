//! From a notation close to the ASN.1 to types with an encoding.
//!
//! The types' names are the standard's, in Rust's spelling; so are the components'. A type in the notation is one
//! line where ASN.1 needs one line, and the macro knows its width when the program is compiled.

/// `INTEGER (least..most)` with named numbers: a number of its own type, so that units do not mix.
///
/// `[extensible]` is ASN.1's extension marker: values outside the range are written as they are.
macro_rules! integers {
    ($($(#[$meta:meta])* $name:ident($repr:ty) $least:literal ..= $most:literal $([$extensible:ident])?,
       default $default:literal $({ $($constant:ident = $value:literal),* $(,)? })?;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $repr);

        impl $name {
            /// The least value.
            pub const LEAST: $repr = $least;
            /// The greatest value.
            pub const MOST: $repr = $most;
            $($(#[allow(missing_docs, reason = "named numbers of the standard")]
            pub const $constant: $name = $name($value);)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                $name($default)
            }
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            #[inline]
            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                $(if $crate::uper::macros::extension_marker!($extensible) && reader.bit(Self::NAME) {
                    let (least, most) = (<$repr>::MIN as i64, <$repr>::MAX as i64);
                    let found = $crate::uper::macros::decode_unconstrained(reader, least, most, Self::NAME);
                    return $name(found as $repr);
                })?
                $name(reader.ranged($least, $most, Self::NAME) as $repr)
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::uper::Writer) {
                let value = self.0 as i64;
                $(if $crate::uper::macros::extension_marker!($extensible) {
                    let within = ($least..=$most).contains(&value);
                    writer.bits(u64::from(!within), 1);
                    if !within {
                        return $crate::uper::macros::encode_unconstrained(value, writer);
                    }
                })?
                writer.ranged(value, $least, $most, Self::NAME);
            }
        }
    )*};
}

/// `ENUMERATED`.
macro_rules! enumerated {
    ($($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident),* $(,)? })*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "named values of the standard")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum $name { $($(#[$vmeta])* $variant),* }

        impl $name {
            /// Every value, in the standard's order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            #[inline]
            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                let found = reader.ranged(0, Self::ALL.len() as i64 - 1, Self::NAME);
                Self::ALL.get(found as usize).copied().unwrap_or_default()
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::uper::Writer) {
                writer.ranged(*self as i64, 0, Self::ALL.len() as i64 - 1, Self::NAME);
            }
        }
    )*};
}

/// `ENUMERATED` with an extension marker: `Other` has the number of a later value among the additions, from 0.
macro_rules! extensible_enumerated {
    ($($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident),* $(,)? })*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "named values of the standard")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum $name { $($(#[$vmeta])* $variant,)* Other(u8) }

        impl $name {
            /// Every value that this release knows, in the standard's order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                if reader.bit(Self::NAME) {
                    return $name::Other(reader.small_number(Self::NAME));
                }
                let found = reader.ranged(0, Self::ALL.len() as i64 - 1, Self::NAME);
                Self::ALL.get(found as usize).copied().unwrap_or_default()
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                if let $name::Other(later) = *self {
                    writer.bits(1, 1);
                    return writer.small_number(later, Self::NAME);
                }
                let index = Self::ALL.iter().position(|value| value == self).unwrap_or_default();
                writer.bits(0, 1);
                writer.ranged(index as i64, 0, Self::ALL.len() as i64 - 1, Self::NAME);
            }
        }
    )*};
}

/// `BIT STRING (SIZE (width))` with named bits. The first bit of the standard is the most significant of the `width`.
macro_rules! bit_strings {
    ($($(#[$meta:meta])* $name:ident($repr:ty) $width:literal { $($constant:ident = $bit:literal),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $repr);

        impl $name {
            $(#[allow(missing_docs, reason = "named bits of the standard")]
            pub const $constant: $name = $name(1 << ($width - 1 - $bit));)*

            /// Whether all bits of `other` are set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            #[inline]
            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                $name(reader.bits($width, Self::NAME) as $repr)
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::uper::Writer) {
                writer.ranged(i64::from(self.0), 0, (1 << $width) - 1, Self::NAME);
            }
        }
    )*};
}

/// `SEQUENCE`. A component is optional where its type is an `Option` (or has a DEFAULT, see `Uper::OPTIONAL`).
macro_rules! sequences {
    ($($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
        $crate::uper::macros::sequences!(@one [$(#[$meta])*] $name false { $($(#[$fmeta])* $field: $type),* });
    )*};
    (@one [$($meta:tt)*] $name:ident $extensible:literal { $($(#[$fmeta:meta])* $field:ident: $type:ty),* }) => {
        $($meta)*
        #[allow(missing_docs, reason = "the components' names are the standard's; units stand at their types")]
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name { $($(#[$fmeta])* pub $field: $type),* }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                let additions = $extensible && reader.bit(Self::NAME);
                $(let $field = !<$type as $crate::uper::Uper>::OPTIONAL || reader.bit(Self::NAME);)*
                let value = $name {
                    $($field: <$type as $crate::uper::Uper>::decode_component(reader, $field)),*
                };
                if additions {
                    reader.skip_additions(Self::NAME);
                }
                value
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                use $crate::uper::Uper;
                if $extensible {
                    writer.bits(0, 1);
                }
                $(if <$type as Uper>::OPTIONAL {
                    writer.bits(u64::from(self.$field.is_present()), 1);
                })*
                $(if self.$field.is_present() {
                    self.$field.encode(writer);
                })*
            }
        }
    };
}

/// `SEQUENCE` with an extension marker: additions of later releases are skipped.
macro_rules! extensible_sequences {
    ($($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
        $crate::uper::macros::sequences!(@one [$(#[$meta])*] $name true { $($(#[$fmeta])* $field: $type),* });
    )*};
}

/// `CHOICE` with an extension marker: `Other` has an alternative of a later release as octets.
macro_rules! extensible_choices {
    ($($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident($type:ty)),* $(,)? })*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "the alternatives' names are the standard's")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $($(#[$vmeta])* $variant($type),)* Other($crate::uper::OpenType) }

        impl $name {
            /// How many alternatives this release knows.
            const COUNT: i64 = [$(stringify!($variant)),*].len() as i64;
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                if reader.bit(Self::NAME) {
                    return $name::Other($crate::uper::OpenType::decode(reader, Self::NAME));
                }
                let found = reader.ranged(0, Self::COUNT - 1, Self::NAME);
                let mut index = 0;
                $(if found == index {
                    return $name::$variant(<$type as $crate::uper::Uper>::decode(reader));
                }
                index += 1;)*
                let _ = index;
                // Not reached: the number is in its range.
                $name::Other($crate::uper::OpenType::default())
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                let mut index = 0;
                $(if let $name::$variant(value) = self {
                    writer.bits(0, 1);
                    writer.ranged(index, 0, Self::COUNT - 1, Self::NAME);
                    return $crate::uper::Uper::encode(value, writer);
                }
                index += 1;)*
                let _ = index;
                if let $name::Other(other) = self {
                    writer.bits(1, 1);
                    other.encode(writer, Self::NAME);
                }
            }
        }
    )*};
}

/// `SEQUENCE (SIZE (least..most)) OF`; `[extensible]` is the extension marker.
macro_rules! lists {
    ($($(#[$meta:meta])* $name:ident[$item:ty] $least:literal ..= $most:literal $([$extensible:ident])?;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name(pub Vec<$item>);

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                let extensible = false $(|| $crate::uper::macros::extension_marker!($extensible))?;
                $name($crate::uper::macros::decode_list(reader, Self::NAME, ($least, $most), extensible))
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                let extensible = false $(|| $crate::uper::macros::extension_marker!($extensible))?;
                $crate::uper::macros::encode_list(&self.0, writer, Self::NAME, ($least, $most), extensible);
            }
        }
    )*};
}

/// Character strings of known multipliers (X.691 30): `SIZE (least..most)`, an alphabet of `width` bits.
macro_rules! strings {
    ($($(#[$meta:meta])* $name:ident $alphabet:ident $least:literal ..= $most:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name(pub String);

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                use $crate::uper::macros::Alphabet;
                $name($crate::uper::macros::decode_string(reader, Self::NAME, ($least, $most), Alphabet::$alphabet))
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                use $crate::uper::macros::Alphabet;
                $crate::uper::macros::encode_string(&self.0, writer, Self::NAME, ($least, $most), Alphabet::$alphabet);
            }
        }
    )*};
}

/// The word `extensible` where a notation allows it.
macro_rules! extension_marker {
    (extensible) => {
        true
    };
}

pub(crate) use {
    bit_strings, enumerated, extensible_choices, extensible_enumerated, extensible_sequences,
    extension_marker, integers, lists, sequences, strings,
};

use super::{Error, Reader, Uper, Writer, width};

/// An INTEGER without bounds (X.691 13.2.4), at most eight octets of it; none outside `least..=most`.
pub(crate) fn decode_unconstrained(
    reader: &mut Reader<'_>,
    least: i64,
    most: i64,
    what: &'static str,
) -> i64 {
    let length = reader.length(what);
    if !(1..=8).contains(&length) {
        let found = i64::try_from(length).unwrap_or(i64::MAX);
        reader.fail(Error::OutOfRange { what, least: 1, most: 8, found });
        return least;
    }
    let mut value = 0_i64;
    for number in 0..length {
        let octet = reader.bits(8, what) as u8;
        // The first octet has the sign.
        value = if number == 0 { i64::from(octet.cast_signed()) } else { value << 8 | i64::from(octet) };
    }
    if !(least..=most).contains(&value) {
        reader.fail(Error::OutOfRange { what, least, most, found: value });
        return least;
    }
    value
}

/// The same, in as few octets as it takes (X.691 13.2.4).
pub(crate) fn encode_unconstrained(value: i64, writer: &mut Writer) {
    let magnitude = if value < 0 { !value } else { value } as u64;
    // One bit more, for the sign.
    let octets = ((width(magnitude) + 1).div_ceil(8)) as usize;
    writer.bits(octets as u64, 8);
    writer.octets(value.to_be_bytes().get(8 - octets..).unwrap_or_default());
}

/// A count within `least..=most`, or any below 16,384 where the size is extensible.
fn decode_count(
    reader: &mut Reader<'_>,
    what: &'static str,
    size: (usize, usize),
    extensible: bool,
) -> usize {
    if extensible && reader.bit(what) {
        return reader.length(what);
    }
    reader.ranged(size.0 as i64, size.1 as i64, what) as usize
}

fn encode_count(
    count: usize,
    writer: &mut Writer,
    what: &'static str,
    size: (usize, usize),
    extensible: bool,
) {
    if extensible {
        let within = (size.0..=size.1).contains(&count);
        writer.bits(u64::from(!within), 1);
        if !within {
            return writer.length(count, what);
        }
    }
    writer.ranged(i64::try_from(count).unwrap_or(i64::MAX), size.0 as i64, size.1 as i64, what);
}

pub(crate) fn decode_list<T: Uper>(
    reader: &mut Reader<'_>,
    what: &'static str,
    size: (usize, usize),
    extensible: bool,
) -> Vec<T> {
    let count = decode_count(reader, what, size, extensible);
    // Room for what the size allows, and not for what a count beyond it claims.
    let mut items = Vec::with_capacity(count.min(size.1));
    for _ in 0..count {
        items.push(T::decode(reader));
        if reader.error().is_some() {
            break;
        }
    }
    items
}

pub(crate) fn encode_list<T: Uper>(
    items: &[T],
    writer: &mut Writer,
    what: &'static str,
    size: (usize, usize),
    extensible: bool,
) {
    encode_count(items.len(), writer, what, size, extensible);
    items.iter().for_each(|item| item.encode(writer));
}

/// Which characters a string has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// IA5String: seven bits as they are.
    Ia5,
    /// NumericString: space and digits, numbered from 0 in four bits.
    Numeric,
}

impl Alphabet {
    fn width(self) -> u32 {
        match self {
            Alphabet::Ia5 => 7,
            Alphabet::Numeric => 4,
        }
    }
}

pub(crate) fn decode_string(
    reader: &mut Reader<'_>,
    what: &'static str,
    size: (usize, usize),
    alphabet: Alphabet,
) -> String {
    let count = decode_count(reader, what, size, false);
    let mut text = String::with_capacity(count);
    for _ in 0..count {
        let code = reader.bits(alphabet.width(), what) as u8;
        let octet = match (alphabet, code) {
            (Alphabet::Ia5, _) => code,
            (Alphabet::Numeric, 0) => b' ',
            (Alphabet::Numeric, 1..=10) => b'0' + code - 1,
            _ => {
                reader.fail(Error::Character { what, found: code });
                break;
            }
        };
        text.push(char::from(octet));
    }
    text
}

pub(crate) fn encode_string(
    text: &str,
    writer: &mut Writer,
    what: &'static str,
    size: (usize, usize),
    alphabet: Alphabet,
) {
    encode_count(text.len(), writer, what, size, false);
    for octet in text.bytes() {
        let code = match (alphabet, octet) {
            (Alphabet::Ia5, 0..=127) => octet,
            (Alphabet::Numeric, b' ') => 0,
            (Alphabet::Numeric, b'0'..=b'9') => octet - b'0' + 1,
            _ => return writer.fail(Error::Character { what, found: octet }),
        };
        writer.bits(u64::from(code), alphabet.width());
    }
}
