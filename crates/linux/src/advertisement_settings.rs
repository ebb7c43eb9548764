//! Keeps Router Advertisements on a home link from routing the packets of a home agent's machine.
//!
//! Every host on a link can send Router Advertisements. A Router Advertisement gives the machine a default
//! route. A Prefix Information option with the L flag (RFC 4861 4.6.2) gives the machine an on-link route, to
//! 2000::/3 for example. The attacker then receives all packets that the home agent sends. The station
//! therefore wants [`ACCEPT_RA_DEFAULT_ROUTER`] and [`ACCEPT_RA_PREFIXES`] of its home link to be 0.
//!
//! The home link of a rented server is often its only uplink, with a default route from an advertisement. So
//! carnet sets one of these two sysctls to 0 only if the machine keeps its connection without it:
//!
//! * [`ACCEPT_RA_DEFAULT_ROUTER`]: the machine has another default route, and none from an advertisement on
//!   the home link.
//! * [`ACCEPT_RA_PREFIXES`]: the machine has a permanent address on the home link, and no address there with
//!   a lifetime.
//!
//! Until then carnet warns in the log and lists an obstacle. A sysctl that carnet has set stays 0 until the
//! station ends, even if a default route vanishes for a moment.
//!
//! The home agent reads other home agents' advertisements (RFC 6275 8.4) from a raw socket, which receives
//! them with any value of the two sysctls.

use carnet_nemo::forwarding::desired::SysctlSetting;

/// Name of the sysctl: whether the kernel makes default routes from advertisements.
pub(crate) const ACCEPT_RA_DEFAULT_ROUTER: &str = "accept_ra_defrtr";
/// Name of the sysctl: whether the kernel makes addresses and on-link routes from advertisements.
pub(crate) const ACCEPT_RA_PREFIXES: &str = "accept_ra_pinfo";

/// Where the machine's IPv6 default routes and one interface's addresses come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RouteAndAddressOrigins {
    /// Whether the machine has an IPv6 default route from a Router Advertisement on the interface.
    pub(crate) has_advertised_route: bool,
    /// Whether the machine has an IPv6 default route that does not come from a Router Advertisement on the
    /// interface.
    pub(crate) has_other_route: bool,
    /// Whether the interface has an address with a lifetime, from an advertisement or DHCPv6.
    pub(crate) has_leased_address: bool,
    /// Whether the interface has a permanent address whose prefix is shorter than 128 bits. Such an address
    /// gives the machine an on-link route.
    pub(crate) has_permanent_address: bool,
}

/// A sysctl of a home link that carnet writes only under its condition at the head of this module.
#[derive(Debug)]
pub(crate) struct ConditionalSetting {
    pub(crate) setting: SysctlSetting,
    /// Index of the interface on which carnet may write the sysctl; `None` while it may not.
    pub(crate) permitted_interface_index: Option<u32>,
}

/// Returns whether this is `accept_ra_defrtr` or `accept_ra_pinfo`, which carnet writes only under a
/// condition.
pub(crate) fn is_conditional_setting(setting: &SysctlSetting) -> bool {
    matches!(&*setting.name, ACCEPT_RA_DEFAULT_ROUTER | ACCEPT_RA_PREFIXES) && setting.value.trim() == "0"
}

/// Returns why carnet may not write the sysctl of a home link, as a text for the operator; `None` if carnet
/// may.
pub(crate) fn obstacle_to_writing_setting(
    setting: &SysctlSetting,
    origins: RouteAndAddressOrigins,
) -> Option<String> {
    let SysctlSetting { interface, name, .. } = setting;
    let why = match &**name {
        ACCEPT_RA_DEFAULT_ROUTER if origins.has_advertised_route => {
            "a Router Advertisement has already given this machine a default route"
        }
        ACCEPT_RA_DEFAULT_ROUTER if !origins.has_other_route => "this machine has no other default route",
        ACCEPT_RA_PREFIXES if origins.has_leased_address => {
            "one of its addresses comes from Router Advertisements on that link"
        }
        ACCEPT_RA_PREFIXES if !origins.has_permanent_address => "it has no permanent address on that link",
        _ => return None,
    };
    let danger = match &**name {
        ACCEPT_RA_PREFIXES => "routes to that link",
        _ => "its default route",
    };
    Some(format!(
        "any host on the home link {interface} can give this machine {danger} by Router Advertisements: \
         carnet does not change net.ipv6.conf.{interface}.{name} from 1 to 0, because {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_ra_changes_only_if_the_machine_needs_no_advertisement() {
        let objects = |name: &str, origins| {
            let setting = SysctlSetting { interface: "h0".into(), name: name.into(), value: "0".into() };
            assert!(is_conditional_setting(&setting));
            obstacle_to_writing_setting(&setting, origins).is_some()
        };
        let (none, all) = (
            RouteAndAddressOrigins::default(),
            RouteAndAddressOrigins {
                has_advertised_route: true,
                has_other_route: true,
                has_leased_address: true,
                has_permanent_address: true,
            },
        );
        for name in [ACCEPT_RA_DEFAULT_ROUTER, ACCEPT_RA_PREFIXES] {
            assert!(objects(name, none) && objects(name, all), "{name}");
        }
        assert!(!objects(
            ACCEPT_RA_DEFAULT_ROUTER,
            RouteAndAddressOrigins { has_advertised_route: false, ..all }
        ));
        assert!(!objects(ACCEPT_RA_PREFIXES, RouteAndAddressOrigins { has_leased_address: false, ..all }));
    }
}
