//! Sets whether the kernel merges received packets of one flow (generic receive offload).
//!
//! The kernel routes a merged burst once, and the TUN device delivers it in one piece
//! ([`crate::TunnelReader`]). That saves most of the work if all packets of a tunnel pass through the TUN
//! device. Almost every interface merges TCP (`rx-gro`), and merges forwarded UDP on request
//! (`rx-udp-gro-forwarding`, Linux 5.12). `ethtool -k` shows these features. The module reads and sets them
//! by generic netlink (`linux/ethtool_netlink.h`, Linux 5.6).
//!
//! Left out: the ports of a bridge. A merge on a bridge has no effect, because packets arrive at its ports.

use std::io::{self, ErrorKind};

use crate::generic_netlink::{RequestSocket, attribute, attributes, find_attribute};

/// Names of the offload features: merging TCP packets, and merging forwarded UDP packets, which needs the
/// first one.
pub(crate) const FEATURES: [&str; 2] = ["rx-gro", "rx-udp-gro-forwarding"];

const FAMILY: &str = "ethtool";
const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;
/// Attributes of a request and its answer: the header, which names the interface, and the sets of changeable,
/// desired and active features.
const HEADER: u16 = 1;
const CHANGEABLE: u16 = 2;
const WANTED: u16 = 3;
const ACTIVE: u16 = 4;
/// Attribute inside the header: the name of the interface.
const NAME: u16 = 2;
/// Attributes of a feature set: the list of features, a feature in it, and the name of a feature.
const MEMBERS: u16 = 3;
const MEMBER: u16 = 1;
const MEMBER_NAME: u16 = 2;
const MEMBER_VALUE: u16 = 3;
/// Flag `NLA_F_NESTED`, which the kernel requires on attributes that contain attributes.
const NESTED: u16 = 0x8000;

/// Returns whether a setting with this name is one of the features, and no sysctl.
pub(crate) fn is_feature(name: &str) -> bool {
    FEATURES.contains(&name)
}

/// Returns whether a feature is on, as `1` or `0`; `None` if the interface is gone or does not allow a change
/// of the feature.
pub(crate) fn read(interface: &str, feature: &str) -> io::Result<Option<String>> {
    let answers = match send_request(interface, FEATURES_GET, &[]) {
        Err(error) if is_missing(&error) => return Ok(None),
        answers => answers?,
    };
    let has = |set| {
        answers.iter().any(|answer| members(&answer.attributes, set).any(|name| name == feature.as_bytes()))
    };
    Ok(has(CHANGEABLE).then(|| if has(ACTIVE) { "1" } else { "0" }.to_owned()))
}

/// Turns a feature on (`1`) or off.
pub(crate) fn write(interface: &str, feature: &str, value: &str) -> io::Result<()> {
    let mut member = attribute(MEMBER_NAME, &text(feature));
    if value == "1" {
        member.extend(attribute(MEMBER_VALUE, &[]));
    }
    let members = attribute(MEMBERS | NESTED, &attribute(MEMBER | NESTED, &member));
    send_request(interface, FEATURES_SET, &attribute(WANTED | NESTED, &members)).map(drop)
}

fn send_request(
    interface: &str,
    command: u8,
    more: &[u8],
) -> io::Result<Vec<crate::generic_netlink::Message>> {
    let mut questions = RequestSocket::open()?;
    let family = questions.family(FAMILY)?;
    let header = attribute(HEADER | NESTED, &attribute(NAME, &text(interface)));
    questions.put(family.id, command, &[&header, more].concat())
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// Returns whether the error says that the interface, or the netlink family, does not exist.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
        || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP))
}

/// Returns the names of the features in one of the sets of an answer.
fn members(answer: &[u8], set: u16) -> impl Iterator<Item = &[u8]> {
    let members =
        find_attribute(answer, set).and_then(|set| find_attribute(set, MEMBERS)).unwrap_or_default();
    attributes(members).filter_map(|(_, member)| find_attribute(member, MEMBER_NAME)?.strip_suffix(&[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethtool_feature_names_are_parsed() {
        let set = |kind: u16, names: &[&str]| {
            let members: Vec<Vec<u8>> =
                names.iter().map(|name| attribute(MEMBER, &attribute(MEMBER_NAME, &text(name)))).collect();
            // Encodes a set as a list of names without a mask.
            attribute(kind, &[attribute(1, &[]), attribute(MEMBERS, &members.concat())].concat())
        };
        let answer = [set(CHANGEABLE, &FEATURES), set(WANTED, &[]), set(ACTIVE, &FEATURES[..1])].concat();
        assert_eq!(members(&answer, CHANGEABLE).collect::<Vec<_>>(), FEATURES.map(str::as_bytes));
        assert_eq!(members(&answer, ACTIVE).collect::<Vec<_>>(), [b"rx-gro"]);
        assert_eq!(members(&answer, WANTED).count(), 0);
        // Parsing any truncated answer must not panic.
        for end in 0..answer.len() {
            let _ = members(&answer[..end], ACTIVE).count();
        }
    }

    #[test]
    fn missing_interface_has_no_features() {
        assert_eq!(read("no-such-one", FEATURES[0]).expect("an answer"), None);
        // The kernel does not allow a change of this feature.
        assert_eq!(read("lo", "no-such-feature").expect("an answer"), None);
    }
}
