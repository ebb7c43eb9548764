//! Packets that other implementations made, as hex, each beginning with the IPv6 header.
//!
//! `UMIP_*`: frames of UMIP (mobile router and home agent on a stock Debian 6.1 kernel), without their
//! Ethernet headers. They were captured on the home agent's side on 2026-11-21
//! (`umip-register-explicit-implicit-dhaad-ha-side.pcap`); the number is the frame's in that capture. No code
//! of carnet took part in making them.
//!
//! `GOLDEN_*`: Mobility Headers made by hand; scapy 2.8.0 and tshark 4.0.17 both read them as intended.
//! Care-of address 2001:db8:f1::10, home address 2001:db8:1::1234, home agent 2001:db8:1::1.

use super::parse_hex;
use carnet_wire::mobility::ControlPacket;
use std::net::Ipv6Addr;

/// Frame 3: Router Advertisement of the home agent, with H, R in the Prefix Information, R in the Home Agent
/// Information.
pub const UMIP_ROUTER_ADVERTISEMENT: &str = "
    600b468d00403afffe80000000000000ac29befffe08c14dff0200000000000000000000000000018600ef0a4020001e
    0000000000000000030440e000008ca0000046500000000020010db80001000000000000000000010101ae29be08c14d
    0801800000142710";
/// Frame 14: Neighbor Solicitation for the home agent's address.
pub const UMIP_NEIGHBOR_SOLICITATION: &str = "
    6000000000203afffe800000000000004c7397fffe1a9cc4ff0200000000000000000001ff00000187004bbd00000000
    20010db800010000000000000000000101014e73971a9cc4";
/// Frame 15: Neighbor Advertisement that answers frame 14.
pub const UMIP_NEIGHBOR_ADVERTISEMENT: &str = "
    6000000000203aff20010db8000100000000000000000001fe800000000000004c7397fffe1a9cc488008ed9e0000000
    20010db80001000000000000000000010201ae29be08c14d";
/// Frame 16: Binding Update, explicit mode, 60 s, prefix 2001:db8:2::/64.
pub const UMIP_BINDING_UPDATE: &str = "
    6002e63300503c3f20010db800f10000b869f2fffeba1aeb20010db8000100000000000000000001870201020000c910
    20010db80001000000000000000001003b06050034773d65c400000f0100031020010db800f10000b869f2fffeba1aeb
    010200000612004020010db8000200000000000000000000";
/// Frame 17: Neighbor Solicitation of duplicate address detection for the home address. Its checksum is wrong
/// (tshark: bad), like the checksum of every packet that UMIP sends from the unspecified address.
pub const UMIP_DUPLICATE_DETECTION: &str = "
    6000000000183aff00000000000000000000000000000000ff0200000000000000000001ff00010087004b4000000000
    20010db8000100000000000000000100";
/// Frame 22: Neighbor Advertisement of the home agent for the mobile router's home address.
pub const UMIP_PROXY_ADVERTISEMENT: &str = "
    6008ab9d00203aff20010db8000100000000000000000001ff02000000000000000000000000000188006caa80000000
    20010db80001000000000000000001000201ae29be08c14d";
/// Frame 25: Binding Acknowledgement with a type 2 routing header.
pub const UMIP_BINDING_ACKNOWLEDGEMENT: &str = "
    6000b25300282b4020010db800010000000000000000000120010db800f10000b869f2fffeba1aeb8702020100000000
    20010db80001000000000000000001003b010600233c00403d65000f01020000";
/// Frame 35: Echo Request in the tunnel, mobile network to correspondent.
pub const UMIP_TUNNELLED_ECHO: &str = "
    6000a6320068293f20010db800f10000b869f2fffeba1aeb20010db80001000000000000000000016000a63200403a3f
    20010db800020000000000000000000220010db8000c000000000000000000028000641400cf00012af3016b00000000
    c5eb0e0000000000101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637";
/// Frame 123: Binding Update of the de-registration, lifetime 0, no prefix.
pub const UMIP_DEREGISTRATION: &str = "
    6002e63300383c3f20010db800f10000b869f2fffeba1aeb20010db8000100000000000000000001870201020000c910
    20010db80001000000000000000001003b03050069ae3d67c40000000100031020010db800f10000b869f2fffeba1aeb";
/// Frame 125: Binding Acknowledgement that answers frame 123.
pub const UMIP_DEREGISTERED: &str = "
    6000b25300282b4020010db800010000000000000000000120010db800f10000b869f2fffeba1aeb8702020100000000
    20010db80001000000000000000001003b010600234900403d67000001020000";
/// Frame 197: Home Agent Address Discovery Request to the anycast address.
pub const UMIP_DISCOVERY_REQUEST: &str = "
    60057d0a00083a3f20010db800f10000b869f2fffeba1aeb20010db800010000fdfffffffffffffe9000d04800018000";
/// Frame 198: Home Agent Address Discovery Reply that answers frame 197.
pub const UMIP_DISCOVERY_REPLY: &str = "
    6003b3f800183a4020010db800010000000000000000000120010db800f10000b869f2fffeba1aeb91009f7b00018000
    20010db8000100000000000000000001";

/// Binding Update: A, H, R, sequence 1, lifetime 60 units, Alternate Care-of Address, prefix 2001:db8:2::/64.
pub const GOLDEN_EXPLICIT: &str = "
    3b060500257a0001c400003c0100031020010db800f10000000000000000001001020000
    0612004020010db8000200000000000000000000";
/// Binding Update: A, H, R, O, sequence 2, Binding Identifier 1 with priority 10 and an IPv6 care-of address,
/// prefix 2001:db8:2::/64.
pub const GOLDEN_BINDING_IDENTIFIER: &str = "
    3b070500051d0002c440003c01040000000023140001000a20010db800f1000000000000000000100102
    00000612004020010db8000200000000000000000000";
/// Binding Update: A, H, R, sequence 3, prefix 2001:db8:2::/64, MN-HA authentication with SPI 300 and the key
/// 000102030405060708090a0b0c0d0e0f.
pub const GOLDEN_AUTHENTICATED: &str = "
    3b0605000f810003c400003c0612004020010db8000200000000000000000000000911010000012c
    99119f05ec6abd2b938bc15101020000";

/// The care-of address of the `GOLDEN_*` messages.
pub const CARE_OF_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf1, 0, 0, 0, 0, 0x10);
/// The home address of the `GOLDEN_*` messages.
pub const HOME_ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x1234);
/// The home agent of the `GOLDEN_*` messages.
pub const HOME_AGENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);

/// Returns the packet with the Binding Update of a `GOLDEN_*` message, as a mobile router sends it.
pub fn golden_packet(mobility_header: &str) -> Vec<u8> {
    ControlPacket {
        source: CARE_OF_ADDRESS,
        destination: HOME_AGENT,
        hop_limit: 64,
        home_address: Some(HOME_ADDRESS),
        routing_home_address: None,
        mobility_header: &mut parse_hex(mobility_header),
    }
    .emit()
}

/// Returns every packet of this file.
pub fn all_packets() -> Vec<Vec<u8>> {
    let captured = [
        UMIP_ROUTER_ADVERTISEMENT,
        UMIP_NEIGHBOR_SOLICITATION,
        UMIP_NEIGHBOR_ADVERTISEMENT,
        UMIP_BINDING_UPDATE,
        UMIP_DUPLICATE_DETECTION,
        UMIP_PROXY_ADVERTISEMENT,
        UMIP_BINDING_ACKNOWLEDGEMENT,
        UMIP_TUNNELLED_ECHO,
        UMIP_DEREGISTRATION,
        UMIP_DEREGISTERED,
        UMIP_DISCOVERY_REQUEST,
        UMIP_DISCOVERY_REPLY,
    ];
    let golden = [GOLDEN_EXPLICIT, GOLDEN_BINDING_IDENTIFIER, GOLDEN_AUTHENTICATED];
    captured.into_iter().map(parse_hex).chain(golden.into_iter().map(golden_packet)).collect()
}
