//! Sets whether the kernel merges received packets of one flow (generic receive offload).
//!
//! The kernel routes a merged burst once, and the TUN device delivers it in one piece
//! ([`crate::TunnelReader`]). That saves most of the work if all packets of a tunnel pass through the TUN
//! device. Almost every interface merges TCP (`rx-gro`), and merges forwarded UDP on request
//! (`rx-udp-gro-forwarding`, Linux 5.12). `ethtool -k` shows these features. The module reads and sets them
//! by generic netlink (`linux/ethtool_netlink.h`, Linux 5.6).
//!
//! Left out: the ports of a bridge. The feature has no effect on the bridge itself, because packets arrive at
//! its ports.

use std::io::{self, ErrorKind};

use crate::generic_netlink::{RequestSocket, encode_attribute, find_attribute, split_attributes};

/// Names of the offload features: merging TCP packets, and merging forwarded UDP packets, which needs the
/// first one.
pub(crate) const OFFLOAD_FEATURES: [&str; 2] = ["rx-gro", "rx-udp-gro-forwarding"];

const ETHTOOL_FAMILY: &str = "ethtool";
const COMMAND_FEATURES_GET: u8 = 11;
const COMMAND_FEATURES_SET: u8 = 12;
/// Attribute of a request and its answer: the header, which names the interface.
const ATTRIBUTE_HEADER: u16 = 1;
/// Attribute of an answer: the features that can be changed.
const ATTRIBUTE_CHANGEABLE: u16 = 2;
/// Attribute of a request and its answer: the desired features.
const ATTRIBUTE_WANTED: u16 = 3;
/// Attribute of an answer: the active features.
const ATTRIBUTE_ACTIVE: u16 = 4;
/// Attribute inside the header: the name of the interface.
const ATTRIBUTE_INTERFACE_NAME: u16 = 2;
/// Attribute of a feature set: the list of features.
const ATTRIBUTE_MEMBERS: u16 = 3;
/// Attribute of the list: one feature.
const ATTRIBUTE_MEMBER: u16 = 1;
/// Attribute of a feature: its name.
const ATTRIBUTE_MEMBER_NAME: u16 = 2;
/// Attribute of a feature: its value.
const ATTRIBUTE_MEMBER_VALUE: u16 = 3;
/// Flag `NLA_F_NESTED`, which the kernel requires on attributes that contain attributes.
const NESTED_ATTRIBUTE: u16 = 0x8000;

/// Returns whether a setting with this name is an offload feature of ethtool, not a sysctl.
pub(crate) fn is_offload_feature(name: &str) -> bool {
    OFFLOAD_FEATURES.contains(&name)
}

/// Returns whether a feature is on, as `1` or `0`; `None` if the interface is gone or does not allow a change
/// of the feature.
pub(crate) fn read_feature(interface: &str, feature: &str) -> io::Result<Option<String>> {
    let answers = match exchange_request(interface, COMMAND_FEATURES_GET, &[]) {
        Err(error) if is_missing_feature(&error) => return Ok(None),
        answers => answers?,
    };
    let has = |set| {
        answers
            .iter()
            .any(|answer| members_of_set(&answer.attributes, set).any(|name| name == feature.as_bytes()))
    };
    Ok(has(ATTRIBUTE_CHANGEABLE).then(|| if has(ATTRIBUTE_ACTIVE) { "1" } else { "0" }.to_owned()))
}

/// Turns a feature on (`1`) or off.
pub(crate) fn write_feature(interface: &str, feature: &str, value: &str) -> io::Result<()> {
    let mut member = encode_attribute(ATTRIBUTE_MEMBER_NAME, &text_attribute(feature));
    if value == "1" {
        member.extend(encode_attribute(ATTRIBUTE_MEMBER_VALUE, &[]));
    }
    let members = encode_attribute(
        ATTRIBUTE_MEMBERS | NESTED_ATTRIBUTE,
        &encode_attribute(ATTRIBUTE_MEMBER | NESTED_ATTRIBUTE, &member),
    );
    exchange_request(
        interface,
        COMMAND_FEATURES_SET,
        &encode_attribute(ATTRIBUTE_WANTED | NESTED_ATTRIBUTE, &members),
    )
    .map(drop)
}

fn exchange_request(
    interface: &str,
    command: u8,
    more: &[u8],
) -> io::Result<Vec<crate::generic_netlink::GenericNetlinkMessage>> {
    let mut questions = RequestSocket::open()?;
    let family = questions.find_family(ETHTOOL_FAMILY)?;
    let header = encode_attribute(
        ATTRIBUTE_HEADER | NESTED_ATTRIBUTE,
        &encode_attribute(ATTRIBUTE_INTERFACE_NAME, &text_attribute(interface)),
    );
    questions.request_change(family.family_id, command, &[&header, more].concat())
}

fn text_attribute(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// Returns whether the error says that the interface, or the netlink family, does not exist.
fn is_missing_feature(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
        || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP))
}

/// Returns the names of the features in one of the sets of an answer.
fn members_of_set(answer: &[u8], set: u16) -> impl Iterator<Item = &[u8]> {
    let members = find_attribute(answer, set)
        .and_then(|set| find_attribute(set, ATTRIBUTE_MEMBERS))
        .unwrap_or_default();
    split_attributes(members)
        .filter_map(|(_, member)| find_attribute(member, ATTRIBUTE_MEMBER_NAME)?.strip_suffix(&[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethtool_feature_names_are_parsed() {
        let set = |kind: u16, names: &[&str]| {
            let members: Vec<Vec<u8>> = names
                .iter()
                .map(|name| {
                    encode_attribute(
                        ATTRIBUTE_MEMBER,
                        &encode_attribute(ATTRIBUTE_MEMBER_NAME, &text_attribute(name)),
                    )
                })
                .collect();
            // Encodes a set as a list of names without a mask.
            encode_attribute(
                kind,
                &[encode_attribute(1, &[]), encode_attribute(ATTRIBUTE_MEMBERS, &members.concat())].concat(),
            )
        };
        let answer = [
            set(ATTRIBUTE_CHANGEABLE, &OFFLOAD_FEATURES),
            set(ATTRIBUTE_WANTED, &[]),
            set(ATTRIBUTE_ACTIVE, &OFFLOAD_FEATURES[..1]),
        ]
        .concat();
        assert_eq!(
            members_of_set(&answer, ATTRIBUTE_CHANGEABLE).collect::<Vec<_>>(),
            OFFLOAD_FEATURES.map(str::as_bytes)
        );
        assert_eq!(members_of_set(&answer, ATTRIBUTE_ACTIVE).collect::<Vec<_>>(), [b"rx-gro"]);
        assert_eq!(members_of_set(&answer, ATTRIBUTE_WANTED).count(), 0);
        // Parsing any truncated answer must not panic.
        for end in 0..answer.len() {
            let _ = members_of_set(&answer[..end], ATTRIBUTE_ACTIVE).count();
        }
    }

    #[test]
    fn missing_interface_has_no_features() {
        assert_eq!(read_feature("no-such-one", OFFLOAD_FEATURES[0]).expect("an answer"), None);
        // The kernel does not allow a change of this feature.
        assert_eq!(read_feature("lo", "no-such-feature").expect("an answer"), None);
    }
}
