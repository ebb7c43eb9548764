//! `carnet ipsec`: prints strongSwan's part of `auth = "ipsec"` (RFC 4877), as a file for swanctl.
//!
//! IPsec protects messages in transport mode between home address and home agent. IKEv2 runs between any
//! address of the node and an address of the home agent's machine (`--gateway`). strongSwan calls this
//! `transport_proxy`. Security associations do not depend on the care-of address, so a Binding Update from a
//! new care-of address uses the present security associations. If the address that IKE uses is gone, IKE
//! starts again from another address. It does not use MOBIKE (RFC 4555): with MOBIKE, strongSwan (5.9.8)
//! replaces the home address by the new address. With `--data` IPsec encrypts all packets of the tunnel as
//! well: ESP in tunnel mode between the home address and the gateway, inside carnet's tunnel. The ends of
//! this ESP tunnel do not change, so uplinks and policies work as before. (RFC 4877 7.2.4 uses the care-of
//! address instead, so that each handover changes the security association.)
//!
//! Addresses identify the two ends (RFC 4877 7.3: ID_IPV6_ADDR): the home address, and the home agent's
//! address. The operator configures secrets and certificates, and the rest of strongSwan.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use anyhow::bail;
use carnet_api::config::{Auth, Config, DataplanePath};

use crate::cli::{Ipsec, IpsecAuth};

/// Proposals for ESP: AES-GCM with a fresh Diffie-Hellman exchange (RFC 8221, RFC 8247).
const ESP_PROPOSALS: &str = "aes128gcm16-ecp256,aes256gcm16-ecp384";

/// Addresses of the two ends of a security association.
struct AssociationEnds<'a> {
    local: Ipv6Addr,
    remote: Ipv6Addr,
    prefixes: &'a [ipnet::Ipv6Net],
    is_agent: bool,
}

/// Returns the text of the swanctl file.
///
/// # Errors
/// Returns an error if the config does not use IPsec, or if the config does not fit the options of the
/// command.
pub fn swanctl_config(config: &Config, options: &Ipsec) -> anyhow::Result<String> {
    if !config.has_ipsec() {
        bail!(
            "{}: expected a mobile router or home agent with auth = \"ipsec\", found none",
            options.config.display()
        );
    }
    if options.data && config.dataplane.path != DataplanePath::Tun {
        bail!(
            "--data: expected dataplane.path = \"tun\", because IPsec cannot encrypt packets that BPF \
             programs forward"
        );
    }
    let own = |address| address == options.gateway;
    if config.home_agent.as_ref().is_some_and(|agent| own(agent.address)) {
        bail!(
            "--gateway: expected an address on an interface of the home agent's machine, found the home \
             agent's own address {}",
            options.gateway
        );
    }
    let mut text = format!(
        "# Of {}, by carnet ipsec: change that and make this anew.\nconnections {{\n",
        options.config.display()
    );
    if let Some(agent) = &config.home_agent {
        for router in agent.mobile_routers.iter().filter(|router| router.node_auth == Auth::Ipsec) {
            let (local, remote, prefixes) = (agent.address, router.home_address, &router.prefixes[..]);
            write_connections(
                &mut text,
                options,
                &AssociationEnds { local, remote, prefixes, is_agent: true },
            );
        }
    }
    if let Some(router) = config.mobile_router.as_ref().filter(|router| router.auth == Auth::Ipsec)
        && let Some(home_agent) = router.home_agents.addresses.first()
    {
        let (local, remote, prefixes) = (router.home_address, *home_agent, &router.prefixes[..]);
        write_connections(&mut text, options, &AssociationEnds { local, remote, prefixes, is_agent: false });
    }
    text.push_str("}\n");
    if options.auth == IpsecAuth::Psk {
        let _ = write!(text, "{}", SECRETS_SECTION);
    }
    Ok(text)
}

const SECRETS_SECTION: &str = "\
# The secrets are not carnet's. In a file of their own, which root alone can read, for each node:
#   secrets { ike-NAME { id-1 = HOME-ADDRESS
#                        id-2 = HOME-AGENT
#                        secret = \"...\" } }
";

fn write_connections(text: &mut String, options: &Ipsec, ends: &AssociationEnds<'_>) {
    let AssociationEnds { local, remote, is_agent, .. } = *ends;
    let home_address = if is_agent { remote } else { local };
    let name = format!("carnet-{:x}", u128::from(home_address));
    let auth = match options.auth {
        IpsecAuth::Psk => "psk",
        IpsecAuth::Pubkey => "pubkey",
    };
    let write_ends = |text: &mut String| {
        let _ = write!(
            text,
            "    version = 2\n    mobike = no\n    dpd_delay = 10s\n    keyingtries = 0\n    \
             local {{\n      auth = {auth}\n      id = {local}\n    }}\n    \
             remote {{\n      auth = {auth}\n      id = {remote}\n    }}\n"
        );
    };
    // The home agent does not know a node's address before the node starts IKE. So the home agent's file
    // never starts a negotiation.
    let actions = if is_agent { "" } else { TRAP_ACTIONS };
    let gateway = if is_agent { "local_addrs" } else { "remote_addrs" };
    let _ = write!(text, "  {name} {{\n    {gateway} = {}\n", options.gateway);
    write_ends(text);
    let _ = write!(
        text,
        "    children {{\n      messages {{\n        mode = transport_proxy\n        \
         local_ts = {local}/128[135]\n        remote_ts = {remote}/128[135]\n        \
         esp_proposals = {ESP_PROPOSALS}\n{actions}      }}\n    }}\n  }}\n"
    );
    if !options.data || ends.prefixes.is_empty() {
        return;
    }
    let prefixes: Vec<String> = ends.prefixes.iter().map(ToString::to_string).collect();
    let prefixes = prefixes.join(",");
    let (near, far) = if is_agent { ("::/0", &prefixes[..]) } else { (&prefixes[..], "::/0") };
    let (source, destination) =
        if is_agent { (options.gateway, home_address) } else { (home_address, options.gateway) };
    let _ = write!(text, "  {name}-data {{\n    local_addrs = {source}\n    remote_addrs = {destination}\n");
    write_ends(text);
    let _ = write!(
        text,
        "    children {{\n      data {{\n        mode = tunnel\n        local_ts = {near}\n        \
         remote_ts = {far}\n        esp_proposals = {ESP_PROPOSALS}\n{TRAP_ACTIONS}      }}\n"
    );
    if !is_agent {
        // Packets between links of the mobile network, and packets from the router itself to its hosts,
        // bypass IPsec.
        let _ = write!(
            text,
            "      on-board {{\n        mode = pass\n        local_ts = {prefixes}\n        \
             remote_ts = {prefixes}\n        start_action = trap\n      }}\n"
        );
    }
    text.push_str("    }\n  }\n");
}

/// The first packet starts the negotiation of the security association. No packet leaves without a security
/// association.
const TRAP_ACTIONS: &str =
    "        start_action = trap\n        dpd_action = restart\n        close_action = trap\n";
