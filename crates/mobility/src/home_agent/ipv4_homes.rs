//! Validates the IPv4 Home Address options of a Binding Update (RFC 5555 3.1.1, 4.5).
//!
//! The home agent accepts the IPv4 prefixes of a node's config, and parts of them. It refuses everything
//! else. Each option has an answer of its own; a refused option refuses neither the other options nor the
//! IPv6 registration. A node without such options registers all IPv4 prefixes of its config if it names no
//! IPv6 prefix either (implicit mode, RFC 3963 5.2). The answers then show the node its prefixes.
//!
//! A prefix of 32 bits without the P flag is an IPv4 home address, which a mobile node may register, too.
//! Without the R flag the home agent refuses every other prefix.
//!
//! Left out: allocation of IPv4 home addresses (0.0.0.0 without the P flag), which the home agent refuses
//! with status 132. A request for any prefix (0.0.0.0 with the P flag) gets a prefix of the config.

use std::net::Ipv4Addr;

use carnet_base::mapped;
use carnet_wire::mobility::{MobilityOption, ipv4_status};
use ipnet::{Ipv4Net, Ipv6Net};

use super::AuthorizedNode;
use super::care_of_address::is_unicast;
use super::request::{BindingUpdateRequest, RequestedIpv4Home};

/// An IPv4 Address Acknowledgement option (RFC 5555 3.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ipv4Answer {
    /// Status of the IPv4 Address Acknowledgement, one of [`ipv4_status`].
    pub status: u8,
    /// Length of the accepted prefix; 0 in a refusal.
    pub prefix_length: u8,
    pub address: Ipv4Addr,
}

impl Ipv4Answer {
    fn accept_ipv4_home(address: Ipv4Addr, prefix: Ipv4Net) -> Ipv4Answer {
        Ipv4Answer { status: ipv4_status::SUCCESS, prefix_length: prefix.prefix_len(), address }
    }

    pub fn to_option(self) -> MobilityOption<'static> {
        let Ipv4Answer { status, prefix_length, address } = self;
        MobilityOption::Ipv4AddressAcknowledgement { status, prefix_length, address }
    }
}

/// Returns the accepted prefixes, sorted and in IPv4-mapped form, and the answer to each option.
pub(super) fn judge_ipv4_homes(
    node: &AuthorizedNode,
    request: &BindingUpdateRequest,
) -> (Vec<Ipv6Net>, Vec<Ipv4Answer>) {
    let mut prefixes: Vec<Ipv6Net> = Vec::new();
    let mut answers = Vec::with_capacity(request.ipv4_homes.len());
    if is_implicit_registration(request) {
        for prefix in registrable_prefixes(node) {
            prefixes.push(mapped::from_ipv4(prefix));
            answers.push(Ipv4Answer::accept_ipv4_home(prefix.network(), prefix));
        }
    }
    for home in &request.ipv4_homes {
        let free = |prefix: &Ipv4Net| !prefixes.contains(&mapped::from_ipv4(*prefix));
        match judge_option(node, request, home, free) {
            Ok((address, prefix)) => {
                prefixes.push(mapped::from_ipv4(prefix));
                answers.push(Ipv4Answer::accept_ipv4_home(address, prefix));
            }
            Err(status) => answers.push(Ipv4Answer { status, prefix_length: 0, address: home.address }),
        }
    }
    prefixes.sort();
    prefixes.dedup();
    (prefixes, answers)
}

/// Returns whether the node leaves the choice of its prefixes to the home agent.
fn is_implicit_registration(request: &BindingUpdateRequest) -> bool {
    request.mobile_router && request.prefixes.is_empty() && request.ipv4_homes.is_empty()
}

/// Returns the IPv4 prefixes that the node may register.
fn registrable_prefixes(node: &AuthorizedNode) -> impl Iterator<Item = Ipv4Net> {
    node.prefixes.iter().filter_map(|prefix| mapped::to_ipv4(*prefix))
}

/// Returns the address for the answer to an option, and the accepted prefix. `free` says whether no earlier
/// option of the update has taken a prefix.
///
/// # Errors
/// Returns the status that refuses the option.
fn judge_option(
    node: &AuthorizedNode,
    request: &BindingUpdateRequest,
    home: &RequestedIpv4Home,
    free: impl Fn(&Ipv4Net) -> bool,
) -> Result<(Ipv4Addr, Ipv4Net), u8> {
    let RequestedIpv4Home { prefix_length, prefix: wants_prefix, address } = *home;
    let wants_prefix = wants_prefix || prefix_length < 32;
    let Some(named) = Ipv4Net::new(address, prefix_length).ok().filter(|_| prefix_length > 0) else {
        return Err(ipv4_status::INVALID_ADDRESS);
    };
    if address.is_unspecified() && !wants_prefix {
        return Err(ipv4_status::NO_DYNAMIC_ADDRESS);
    }
    if !address.is_unspecified() && !is_unicast(address) {
        return Err(ipv4_status::INVALID_ADDRESS);
    }
    let refusal =
        if wants_prefix { ipv4_status::PREFIX_UNAUTHORIZED } else { ipv4_status::INCORRECT_ADDRESS };
    let found = if address.is_unspecified() {
        // RFC 5555 3.2.1: the length in the answer "overrides what the mobile node requested".
        let of_length =
            registrable_prefixes(node).filter(&free).find(|own| own.prefix_len() == prefix_length);
        let prefix = of_length.or_else(|| registrable_prefixes(node).find(&free));
        prefix.map(|prefix| (prefix.network(), prefix))
    } else {
        // The option may name a host address inside the prefix, so clear the host bits.
        let prefix = named.trunc();
        registrable_prefixes(node).any(|own| own.contains(&prefix)).then_some((address, prefix))
    };
    match found {
        // RFC 3963 4.1: without the R flag the home agent forwards no mobile network.
        Some(_) if wants_prefix && !request.mobile_router => Err(ipv4_status::PROHIBITED),
        found => found.ok_or(refusal),
    }
}
