//! Content of the options of flow bindings (RFC 6089 4.2 and 4.3, RFC 6088).
//!
//! A Flow Identification option holds sub-options: the traffic selector, and the reference to the Binding
//! Identifiers. RFC 6089 4.2.1.2 counts the length of PadN unlike every other length. This parser counts the
//! length of PadN like other lengths, and the emitter pads only with Pad1, which has no length. The emitter
//! writes the selector first. If the option begins at a multiple of 8 octets (see
//! `MobilityOption::alignment`), every sub-option has the alignment that RFC 6088 requires.
//!
//! RFC 6089 copies a packet to every binding of a flow. A Vendor Specific option (RFC 5094) beside the Flow
//! Identification option selects failover or balancing instead: see [`FlowActionOption`]. Its vendor is
//! 32473, the number for examples (RFC 5612), because carnet has no assigned number.

use super::traffic_selector::{Ipv4Selector, Ipv6Selector, TrafficSelector, ValueRange};
use crate::Error;
use crate::octets::{array_at, octets_from, slice_at, u8_at, u16_at};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Values of the Status field of the Flow Identification option (RFC 6089 4.2).
pub mod flow_status {
    /// Flow binding successful.
    pub const SUCCESS: u8 = 0;
    /// Administratively prohibited.
    pub const PROHIBITED: u8 = 128;
    /// Flow binding rejected, reason unspecified.
    pub const UNSPECIFIED: u8 = 129;
    /// Flow identification mobility option malformed.
    pub const MALFORMED: u8 = 130;
    /// BID not found.
    pub const BID_NOT_FOUND: u8 = 131;
    /// FID not found.
    pub const FID_NOT_FOUND: u8 = 132;
    /// Traffic selector format not supported.
    pub const SELECTOR_NOT_SUPPORTED: u8 = 133;
}

/// Types of sub-options (RFC 6089 4.2.1).
mod sub_option {
    pub const PAD1: u8 = 0;
    pub const BINDING_REFERENCE: u8 = 2;
    pub const TRAFFIC_SELECTOR: u8 = 3;
}

/// Traffic selector formats (RFC 6088 5).
const SELECTOR_FORMAT_IPV4: u8 = 1;
const SELECTOR_FORMAT_IPV6: u8 = 2;

/// Octets of a Flow Identification option before its sub-options, without type and length.
pub(super) const FLOW_OPTION_FIXED_LENGTH: usize = 6;

/// A list of 16-bit identifiers, BIDs or FIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingIdentifiers<'a> {
    octets: &'a [u8],
}

impl<'a> BindingIdentifiers<'a> {
    /// Reads a list of identifiers; `what` names the list in errors.
    ///
    /// # Errors
    /// [`Error::Length`] for an empty list or a length that is not a multiple of 2 octets.
    pub fn parse(octets: &'a [u8], what: &'static str) -> Result<Self, Error> {
        if octets.is_empty() || !octets.len().is_multiple_of(2) {
            return Err(Error::Length { what, expected: "a positive multiple of 2", found: octets.len() });
        }
        Ok(BindingIdentifiers { octets })
    }

    /// Returns the identifiers in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + 'a {
        self.octets.chunks_exact(2).filter_map(|pair| pair.first_chunk().copied().map(u16::from_be_bytes))
    }

    /// Returns the octets of the list as received.
    pub fn octets(&self) -> &'a [u8] {
        self.octets
    }
}

/// Returns the octets of a list of identifiers, for a Flow Summary option.
pub fn emit_binding_identifiers(of: &[u16]) -> Vec<u8> {
    of.iter().flat_map(|identifier| identifier.to_be_bytes()).collect()
}

/// A received traffic selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectorField {
    /// A selector of a known format.
    Known(TrafficSelector),
    /// A selector of an unknown format.
    Unknown {
        /// Value of the TS Format field.
        format: u8,
    },
}

/// Sub-options of a Flow Identification option. The parser skips an unknown sub-option (RFC 6089 4.2.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowSubOptions<'a> {
    /// Selector of the flow's packets. `None` without this sub-option.
    pub selector: Option<SelectorField>,
    /// Binding Identifiers of the bindings that carry the flow. `None` without this sub-option.
    pub bids: Option<BindingIdentifiers<'a>>,
}

impl<'a> FlowSubOptions<'a> {
    /// Reads the sub-options.
    ///
    /// # Errors
    /// [`Error::Truncated`] if a sub-option exceeds the octets; [`Error::Repeated`] for a second sub-option
    /// of a kind that may occur once; [`Error::Length`] and [`Error::Value`] for invalid contents.
    pub fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        const NAME_IN_ERRORS: &str = "flow identification sub-option";
        let mut read = FlowSubOptions::default();
        let mut at = 0;
        while at < octets.len() {
            let kind = u8_at(octets, at, NAME_IN_ERRORS)?;
            if kind == sub_option::PAD1 {
                at += 1;
                continue;
            }
            let length = usize::from(u8_at(octets, at + 1, NAME_IN_ERRORS)?);
            let data = slice_at(octets, at + 2, length, NAME_IN_ERRORS)?;
            at += 2 + length;
            match kind {
                sub_option::BINDING_REFERENCE if read.bids.is_some() => {
                    return Err(Error::Repeated { what: "binding reference sub-option" });
                }
                sub_option::BINDING_REFERENCE => {
                    read.bids = Some(BindingIdentifiers::parse(data, "binding reference sub-option")?);
                }
                sub_option::TRAFFIC_SELECTOR if read.selector.is_some() => {
                    return Err(Error::Repeated { what: "traffic selector sub-option" });
                }
                sub_option::TRAFFIC_SELECTOR => read.selector = Some(SelectorField::parse(data)?),
                _ => {}
            }
        }
        Ok(read)
    }
}

/// Returns the octets of sub-options for a Flow Identification option. Omits the binding reference if `bids`
/// is empty.
///
/// If the selector has its greatest length, an option with more than 96 BIDs exceeds every message.
pub fn emit_sub_options(selector: Option<&TrafficSelector>, bids: &[u16]) -> Vec<u8> {
    let mut octets = Vec::with_capacity(96);
    if let Some(selector) = selector {
        let data = emit_selector(selector);
        octets.push(sub_option::TRAFFIC_SELECTOR);
        // The cast is exact: a selector has at most 98 octets.
        octets.push(data.len() as u8);
        octets.extend_from_slice(&data);
    }
    if !bids.is_empty() {
        // RFC 6089 4.2.1.3: the binding reference begins at an even offset.
        if !octets.len().is_multiple_of(2) {
            octets.push(sub_option::PAD1);
        }
        octets.push(sub_option::BINDING_REFERENCE);
        octets.push(u8::try_from(bids.len() * 2).unwrap_or(u8::MAX - 1));
        octets.extend_from_slice(&emit_binding_identifiers(&bids[..bids.len().min(127)]));
    }
    octets
}

impl SelectorField {
    /// Reads a traffic selector that begins with its TS Format.
    fn parse(data: &[u8]) -> Result<SelectorField, Error> {
        const NAME_IN_ERRORS: &str = "traffic selector";
        let format = u8_at(data, 0, NAME_IN_ERRORS)?;
        if !matches!(format, SELECTOR_FORMAT_IPV4 | SELECTOR_FORMAT_IPV6) {
            return Ok(SelectorField::Unknown { format });
        }
        let flags = u16_at(data, 2, NAME_IN_ERRORS)?;
        let mut reader =
            SelectorReader { octets: octets_from(data, 6, NAME_IN_ERRORS)?, flags, flag_bit: 15 };
        let selector = if format == SELECTOR_FORMAT_IPV4 {
            TrafficSelector::Ipv4(Ipv4Selector {
                source: reader.read_range::<4, _>(Ipv4Addr::from)?,
                destination: reader.read_range::<4, _>(Ipv4Addr::from)?,
                spi: reader.read_range::<4, _>(u32::from_be_bytes)?,
                source_port: reader.read_range::<2, _>(u16::from_be_bytes)?,
                destination_port: reader.read_range::<2, _>(u16::from_be_bytes)?,
                differentiated_services: reader.read_range::<1, _>(|[octet]| octet)?,
                protocol: reader.read_range::<1, _>(|[octet]| octet)?,
            })
        } else {
            TrafficSelector::Ipv6(Ipv6Selector {
                source: reader.read_range::<16, _>(Ipv6Addr::from)?,
                destination: reader.read_range::<16, _>(Ipv6Addr::from)?,
                spi: reader.read_range::<4, _>(u32::from_be_bytes)?,
                // RFC 6088 3.2: "The receiver SHOULD ignore the first 8 bits"; a flow label has 20 bits.
                flow_label: reader.read_range::<4, _>(|octets| u32::from_be_bytes(octets) & 0x000f_ffff)?,
                source_port: reader.read_range::<2, _>(u16::from_be_bytes)?,
                destination_port: reader.read_range::<2, _>(u16::from_be_bytes)?,
                traffic_class: reader.read_range::<1, _>(|[octet]| octet)?,
                next_header: reader.read_range::<1, _>(|[octet]| octet)?,
            })
        };
        match reader.octets.len() {
            0 => Ok(SelectorField::Known(selector)),
            more => {
                Err(Error::Length { what: NAME_IN_ERRORS, expected: "that of the fields named", found: more })
            }
        }
    }
}

/// Reads the fields that the flags announce: pairs of first and last value.
struct SelectorReader<'a> {
    octets: &'a [u8],
    flags: u16,
    /// Bit number of the next flag; flag A is bit 15.
    flag_bit: u32,
}

impl SelectorReader<'_> {
    fn read_range<const N: usize, T: Copy + PartialOrd>(
        &mut self,
        value: impl Fn([u8; N]) -> T,
    ) -> Result<Option<ValueRange<T>>, Error> {
        const NAME_IN_ERRORS: &str = "traffic selector";
        let (first, last) = (self.read_flag(), self.read_flag());
        let mut next = || -> Result<T, Error> {
            let field = array_at::<N>(self.octets, 0, NAME_IN_ERRORS)?;
            self.octets = octets_from(self.octets, N, NAME_IN_ERRORS)?;
            Ok(value(field))
        };
        match (first, last) {
            (false, false) => Ok(None),
            (true, false) => Ok(Some(ValueRange::single(next()?))),
            (true, true) => {
                let range = ValueRange::new(next()?, next()?);
                if range.first > range.last {
                    return Err(Error::Order {
                        what: NAME_IN_ERRORS,
                        expected: "the first of a range before the last",
                    });
                }
                Ok(Some(range))
            }
            // RFC 6088 3.1: "MUST NOT be included unless the Start ... field is included".
            (false, true) => Err(Error::Order {
                what: NAME_IN_ERRORS,
                expected: "the last of a range only with the first",
            }),
        }
    }

    fn read_flag(&mut self) -> bool {
        let set = self.flags & (1_u16 << self.flag_bit) != 0;
        self.flag_bit = self.flag_bit.saturating_sub(1);
        set
    }
}

/// Writes the fields of a selector, and sets the flag of each field that is present.
struct SelectorWriter {
    octets: Vec<u8>,
    flags: u16,
    flag_bit: u32,
}

impl SelectorWriter {
    fn write_range<const N: usize, T: Copy + PartialEq>(
        &mut self,
        range: Option<ValueRange<T>>,
        octets: impl Fn(T) -> [u8; N],
    ) {
        if let Some(range) = range {
            self.flags |= 1 << self.flag_bit;
            self.octets.extend_from_slice(&octets(range.first));
            if range.first != range.last {
                self.flags |= 1 << (self.flag_bit - 1);
                self.octets.extend_from_slice(&octets(range.last));
            }
        }
        self.flag_bit = self.flag_bit.saturating_sub(2);
    }
}

/// Returns the octets of a selector from its TS Format on. Writes a range of one value without its last
/// value.
fn emit_selector(selector: &TrafficSelector) -> Vec<u8> {
    let format = match selector {
        TrafficSelector::Ipv4(_) => SELECTOR_FORMAT_IPV4,
        TrafficSelector::Ipv6(_) => SELECTOR_FORMAT_IPV6,
    };
    let mut writer = SelectorWriter { octets: vec![format, 0, 0, 0, 0, 0], flags: 0, flag_bit: 15 };
    match selector {
        TrafficSelector::Ipv4(it) => {
            writer.write_range(it.source, |address| address.octets());
            writer.write_range(it.destination, |address| address.octets());
            writer.write_range(it.spi, u32::to_be_bytes);
            writer.write_range(it.source_port, u16::to_be_bytes);
            writer.write_range(it.destination_port, u16::to_be_bytes);
            writer.write_range(it.differentiated_services, |octet| [octet]);
            writer.write_range(it.protocol, |octet| [octet]);
        }
        TrafficSelector::Ipv6(it) => {
            writer.write_range(it.source, |address| address.octets());
            writer.write_range(it.destination, |address| address.octets());
            writer.write_range(it.spi, u32::to_be_bytes);
            writer.write_range(it.flow_label, u32::to_be_bytes);
            writer.write_range(it.source_port, u16::to_be_bytes);
            writer.write_range(it.destination_port, u16::to_be_bytes);
            writer.write_range(it.traffic_class, |octet| [octet]);
            writer.write_range(it.next_header, |octet| [octet]);
        }
    }
    let flags = writer.flags.to_be_bytes();
    writer.octets[2..4].copy_from_slice(&flags);
    writer.octets
}

/// Action on the packets of a flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowAction {
    /// The sender uses the first valid binding in the list for all packets.
    #[default]
    Failover,
    /// The sender uses one of the valid bindings for each conversation, in proportion to the weights.
    Balance,
    /// The sender copies each packet to all valid bindings, and the receiver keeps the first copy.
    Duplicate,
}

/// Vendor number of [`FlowActionOption`]: 32473, for examples (RFC 5612).
pub const EXAMPLE_VENDOR: u32 = 32_473;
/// Sub-type by which a Vendor Specific option is a [`FlowActionOption`].
pub const FLOW_ACTION_SUBTYPE: u8 = 1;

/// Action on the packets of a flow: the data of a Vendor Specific option (RFC 5094) of vendor
/// [`EXAMPLE_VENDOR`] and sub-type [`FLOW_ACTION_SUBTYPE`].
///
/// ```text
///  |         FID (16)        |  Action (8)  | Reserved (8) |
///  |         BID (16)        |        Weight (16)          |  any number of times
/// ```
///
/// Action is 1 for failover, 2 for balance, 3 for duplicate. A BID that the option does not list has weight
/// 1; a weight of 0 is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowActionOption {
    /// Identifier of the flow (FID).
    pub fid: u16,
    /// Action on the packets.
    pub action: FlowAction,
    /// BIDs and their weights.
    pub binding_weights: Vec<(u16, u16)>,
}

impl FlowActionOption {
    /// Reads the data of the option.
    pub(super) fn parse(data: &[u8]) -> Result<FlowActionOption, Error> {
        const NAME_IN_ERRORS: &str = "flow action option";
        let action = match u8_at(data, 2, NAME_IN_ERRORS)? {
            1 => FlowAction::Failover,
            2 => FlowAction::Balance,
            3 => FlowAction::Duplicate,
            found => {
                return Err(Error::Value {
                    what: NAME_IN_ERRORS,
                    expected: "an action from 1 to 3",
                    found: found.into(),
                });
            }
        };
        let pairs = octets_from(data, 4, NAME_IN_ERRORS)?;
        if !pairs.len().is_multiple_of(4) {
            return Err(Error::Length {
                what: NAME_IN_ERRORS,
                expected: "4 and a multiple of 4",
                found: data.len(),
            });
        }
        let weights = pairs
            .chunks_exact(4)
            .map(|pair| match (u16_at(pair, 0, NAME_IN_ERRORS)?, u16_at(pair, 2, NAME_IN_ERRORS)?) {
                (_, 0) => {
                    Err(Error::Value { what: NAME_IN_ERRORS, expected: "a weight of at least 1", found: 0 })
                }
                pair => Ok(pair),
            })
            .collect::<Result<_, _>>()?;
        Ok(FlowActionOption { fid: u16_at(data, 0, NAME_IN_ERRORS)?, action, binding_weights: weights })
    }

    /// Returns the data for [`VendorSpecific`](super::MobilityOption::VendorSpecific).
    pub fn emit(&self) -> Vec<u8> {
        let action = match self.action {
            FlowAction::Failover => 1,
            FlowAction::Balance => 2,
            FlowAction::Duplicate => 3,
        };
        let mut octets = Vec::with_capacity(4 + 4 * self.binding_weights.len());
        octets.extend_from_slice(&self.fid.to_be_bytes());
        octets.extend_from_slice(&[action, 0]);
        for (bid, weight) in &self.binding_weights {
            octets.extend_from_slice(&bid.to_be_bytes());
            octets.extend_from_slice(&weight.to_be_bytes());
        }
        octets
    }
}
