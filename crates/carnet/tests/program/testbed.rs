//! Home agent, core, mobile router with two uplinks, and a host in the mobile network, each a network
//! namespace.
//!
//! ```text
//!             2001:db8:f0::/64        2001:db8:f1::/64, 2001:db8:f2::/64       2001:db8:a::/64
//!   agent ha0 ---------------- ha core wlan, wwan ---------------- wlan0, wwan0 router lan0 ---- eth0 host
//!   ::2                        ::1     ::1                         ::10                           ::10
//! ```
//!
//! The core is also the correspondent, 2001:db8:c::1. All addresses and routes are static.

use std::net::Ipv6Addr;

use crate::hosts::{Host, ScratchFolder};
use crate::station::Station;
use crate::traffic::EchoTraffic;

/// The home agent's address.
pub const HOME_AGENT_ADDRESS: &str = "2001:db8:1::1";
/// The mobile router's home address.
pub const HOME_ADDRESS: &str = "2001:db8:1::1234";
/// Care-of address of the mobile router on each uplink.
pub const CARE_OF_ADDRESSES: [&str; 2] = ["2001:db8:f1::10", "2001:db8:f2::10"];
/// Address of a host on the Internet.
pub const CORRESPONDENT: &str = "2001:db8:c::1";
/// Address of the host in the mobile network.
pub const ON_BOARD_HOST: &str = "2001:db8:a::10";

pub fn parse_address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// The hosts of the testbed, and a directory for sockets and other files.
pub struct Testbed {
    pub agent: Host,
    pub core: Host,
    pub router: Host,
    pub host: Host,
    pub scratch: ScratchFolder,
}

impl Testbed {
    pub fn new() -> Testbed {
        let (agent, core, router, host) = (Host::new(), Host::new(), Host::new(), Host::new());
        let bed = Testbed { agent, core, router, host, scratch: ScratchFolder::new() };
        bed.core.write_sysctl("all/forwarding", "1");
        bed.core.create_link("ha", &bed.agent, "ha0");
        bed.core.run_ip_batch(
            "addr add 2001:db8:f0::1/64 dev ha
             addr add 2001:db8:c::1/128 dev lo
             route add 2001:db8:1::/64 via 2001:db8:f0::2
             route add 2001:db8:a::/64 via 2001:db8:f0::2
             route add 2001:db8:b::/64 via 2001:db8:f0::2",
        );
        bed.agent.run_ip_batch(
            "addr add 2001:db8:f0::2/64 dev ha0
             route add default via 2001:db8:f0::1",
        );
        bed.add_uplink(0);
        bed.add_uplink(1);
        bed.add_lan();
        for host in [&bed.agent, &bed.core, &bed.router, &bed.host] {
            host.wait_until_settled();
        }
        bed
    }

    /// Creates an uplink, `wlan0` (0) or `wwan0` (1), with its address and default route.
    pub fn add_uplink(&self, number: usize) {
        let (far, near) = [("wlan", "wlan0"), ("wwan", "wwan0")][number];
        let net = number + 1;
        self.core.create_link(far, &self.router, near);
        self.core.run_ip(&format!("-6 addr add 2001:db8:f{net}::1/64 dev {far}"));
        self.router.run_ip(&format!("-6 addr add 2001:db8:f{net}::10/64 dev {near}"));
        let gateway = format!("2001:db8:f{net}::1");
        self.router.run_ip(&format!("-6 route add default via {gateway} dev {near} metric {}", 100 * net));
    }

    /// Creates the mobile network, with the host inside.
    pub fn add_lan(&self) {
        self.router.create_link("lan0", &self.host, "eth0");
        self.host.run_ip_batch(
            "addr add 2001:db8:a::10/64 dev eth0
             route add default via 2001:db8:a::1 metric 10",
        );
    }

    pub fn agent_config(&self) -> String {
        format!(
            "[station]\n\
             name = 'agent'\n\
             socket = '{}'\n\
             \n\
             [home_agent]\n\
             address = '{HOME_AGENT_ADDRESS}'\n\
             home_prefix = '2001:db8:1::/64'\n\
             \n\
             [[home_agent.mobile_router]]\n\
             home_address = '{HOME_ADDRESS}'\n\
             prefixes = ['2001:db8:a::/64']\n\
             auth = {{ spi = 300, key = '000102030405060708090a0b0c0d0e0f' }}\n",
            self.scratch.path_of("agent.sock").display()
        )
    }

    pub fn router_config(&self) -> String {
        format!(
            "[station]\n\
             name = 'router'\n\
             socket = '{}'\n\
             \n\
             [mobile_router]\n\
             home_address = '{HOME_ADDRESS}'\n\
             home_prefix = '2001:db8:1::/64'\n\
             home_agent = '{HOME_AGENT_ADDRESS}'\n\
             prefixes = ['2001:db8:a::/64']\n\
             lifetime = '60s'\n\
             lan = ['lan0']\n\
             auth = {{ spi = 300, key = '000102030405060708090a0b0c0d0e0f' }}\n\
             \n\
             [[mobile_router.uplink]]\n\
             interface = 'wlan0'\n\
             priority = 10\n\
             \n\
             [[mobile_router.uplink]]\n\
             interface = 'wwan0'\n\
             priority = 20\n",
            self.scratch.path_of("router.sock").display()
        )
    }

    /// Starts traffic from the host inside to the correspondent and back.
    pub fn start_echo(&self, per_second: u32) -> EchoTraffic {
        EchoTraffic::start(
            &self.host,
            parse_address(ON_BOARD_HOST),
            &self.core,
            parse_address(CORRESPONDENT),
            per_second,
        )
    }

    /// Starts both stations and waits until the router is registered.
    pub fn start_stations(&self) -> (Station, Station) {
        let agent = Station::start(&self.agent, &self.agent_config());
        let router = Station::start(&self.router, &self.router_config());
        router.wait_until_registered();
        (agent, router)
    }
}

/// Adds a line to the `[station]` table of a config.
pub fn config_with_station_line(config: &str, line: &str) -> String {
    config.replacen("[station]\n", &format!("[station]\n{line}\n"), 1)
}
