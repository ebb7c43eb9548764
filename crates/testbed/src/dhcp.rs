//! Asks for an IPv4 address of a node by DHCP, with BusyBox's client `udhcpc`.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;

use crate::process::{command_in_node, run_for_output};
use crate::tools;

/// Name of the DHCP client's program, and of its Debian package.
pub const DHCP_CLIENT: (&str, &str) = ("busybox", "busybox");

/// Script that the client runs with its lease. It sets the address and the default route, and prints the
/// address. It does not change the machine's `/etc/resolv.conf`.
const CLIENT_SCRIPT: &str = r#"#!/bin/sh
[ "$1" = bound ] || exit 0
ip -4 address replace "$ip/$mask" dev "$interface"
for first in $router; do ip -4 route replace default via "$first"; break; done
echo "lease $ip"
"#;

/// Gets a lease for an interface of a node, and returns its address. A node that has a lease gets the same
/// address again. The function writes the client's script into `folder`.
///
/// # Errors
/// Returns the output of the client, if no server has given it an address.
pub fn obtain_lease(node: &str, interface: &str, folder: &Path) -> anyhow::Result<Ipv4Addr> {
    let script = folder.join("udhcpc.sh");
    std::fs::write(&script, CLIENT_SCRIPT).with_context(|| format!("cannot write {}", script.display()))?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    let mut command = command_in_node(node, tools::path_of_program(DHCP_CLIENT.0));
    command.args(["udhcpc", "-f", "-q", "-n", "-t", "10", "-T", "1", "-i", interface, "-s"]).arg(&script);
    let text = run_for_output(&mut command).with_context(|| format!("node {node} got no address by DHCP"))?;
    let address = text.lines().find_map(|line| line.strip_prefix("lease ")?.parse().ok());
    address.with_context(|| format!("udhcpc in node {node} printed no address: {text}"))
}
