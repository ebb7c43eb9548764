//! The keys of the config file, as data: what the reader accepts, and what `docs/config.md` has to say.
//!
//! The reader can only ask for keys that are listed here, and the tests compare this list with the page,
//! so that neither gets ahead of the other.

/// A table of the config file.
pub(super) struct Section {
    /// As an operator writes it: `[station]`, `[[mobile_router.uplink]]`, or `auth` for the inline table.
    pub header: &'static str,
    /// Dotted path that goes before a key in messages; empty at the top.
    pub path: &'static str,
    /// Keys that this version accepts, in the order of the page.
    pub keys: &'static [Key],
    /// Keys with a meaning, but not in this version.
    pub later: &'static [&'static str],
}

/// A key of a table.
pub(super) struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its type in the words of the page, by which it is decided whether others may see it.
    pub kind: &'static str,
    /// What goes when it is absent, in the words of the page: `required`, `none` or a value in TOML.
    #[cfg_attr(not(test), expect(dead_code, reason = "compared with the page by the tests"))]
    pub default: &'static str,
}

const fn key(name: &'static str, kind: &'static str, default: &'static str) -> Key {
    Key { name, kind, default }
}

/// The tables at the top of the file.
pub(super) const ROOT: Section = Section {
    header: "the config",
    path: "",
    keys: &[
        key("station", "table", "required"),
        key("dataplane", "table", "none"),
        key("home_agent", "table", "none"),
        key("mobile_router", "table", "none"),
        key("mobile_node", "table", "none"),
        key("geonet", "table", "none"),
        key("facilities", "table", "none"),
        key("security", "table", "none"),
        key("conformance", "table", "none"),
    ],
    later: &[],
};

/// `[station]`
pub(super) const STATION: Section = Section {
    header: "[station]",
    path: "station",
    keys: &[
        key("name", "name", "required"),
        key("socket", "path", "\"/run/carnet/NAME.sock\""),
        key("state_dir", "path", "none"),
        key("record", "path", "none"),
        key("http", "address with a port", "none"),
        key("http_tokens", "path", "none"),
        key("http_pages", "path", "\"/usr/share/carnet/web\""),
        key("sandbox", "\"auto\", \"required\" or \"off\"", "\"auto\""),
    ],
    later: &[],
};

/// `[dataplane]`
pub(super) const DATAPLANE: Section = Section {
    header: "[dataplane]",
    path: "dataplane",
    keys: &[key("path", "\"auto\", \"bpf\", \"xdp\", \"kernel\" or \"tun\"", "\"auto\"")],
    later: &[],
};

/// `[home_agent]`
pub(super) const HOME_AGENT: Section = Section {
    header: "[home_agent]",
    path: "home_agent",
    keys: &[
        key("address", "address", "required"),
        key("ipv4_address", "IPv4 address", "none"),
        key("udp", "boolean", "false"),
        key("multiple_care_of", "\"bulk\", \"single\" or \"none\"", "\"bulk\""),
        key("care_of_test", "\"on\" or \"off\"", "\"on\""),
        key("home_prefix", "prefix", "required"),
        key("home_network", "prefix", "none"),
        key("home_link", "interface", "none"),
        key("max_lifetime", "lifetime", "\"10m\""),
        key("preference", "integer, 0 to 65535", "0"),
        key("dhaad", "boolean", "false"),
        key("peer", "tables", "none"),
        key("mobile_router", "tables", "none"),
    ],
    later: &[],
};

/// `[[home_agent.peer]]`
pub(super) const PEER: Section = Section {
    header: "[[home_agent.peer]]",
    path: "home_agent.peer",
    keys: &[key("address", "address", "required"), key("preference", "integer, 0 to 65535", "0")],
    later: &[],
};

/// `[[home_agent.mobile_router]]`
pub(super) const ALLOWED_ROUTER: Section = Section {
    header: "[[home_agent.mobile_router]]",
    path: "home_agent.mobile_router",
    keys: &[
        key("home_address", "address", "required"),
        key("prefixes", "array of prefixes", "[]"),
        key("auth", "auth", "required"),
        key("nat", "boolean", "true"),
        key("care_of_test", "\"on\" or \"off\"", "none"),
    ],
    later: &[],
};

/// `[mobile_router]`
pub(super) const MOBILE_ROUTER: Section = Section {
    header: "[mobile_router]",
    path: "mobile_router",
    keys: &[
        key("home_address", "address", "required"),
        key("home_prefix", "prefix", "required"),
        key("home_agent", "address, array of addresses or \"discover\"", "required"),
        key("home_agent_ipv4", "IPv4 address or array", "none"),
        key("udp", "boolean", "false"),
        key("heartbeat", "duration or \"off\"", "none"),
        key("heartbeat_idle", "duration", "\"1s\""),
        key("prefixes", "array of prefixes", "[]"),
        key("registration", "\"explicit\" or \"implicit\"", "\"explicit\""),
        key("lifetime", "lifetime", "\"60s\""),
        key("lan", "array of interfaces", "[]"),
        key("advertise", "boolean", "true"),
        key("nesting", "boolean", "false"),
        key("nested_routers", "array of link-layer addresses", "[]"),
        key("direct_routes", "array of prefixes", "[]"),
        key("prefix_discovery", "boolean", "false"),
        key("captive_portal_probe", "URL", "none"),
        key("auth", "auth", "required"),
        key("uplink", "tables", "required"),
        key("policy", "tables", "none"),
    ],
    later: &[],
};

/// `[mobile_node]`: what a mobile router has, less its mobile network.
pub(super) const MOBILE_NODE: Section = Section {
    header: "[mobile_node]",
    path: "mobile_node",
    keys: &[
        key("home_address", "address", "required"),
        key("home_prefix", "prefix", "required"),
        key("home_agent", "address, array of addresses or \"discover\"", "required"),
        key("home_agent_ipv4", "IPv4 address", "none"),
        key("udp", "boolean", "false"),
        key("heartbeat", "duration or \"off\"", "none"),
        key("heartbeat_idle", "duration", "\"1s\""),
        key("lifetime", "lifetime", "\"60s\""),
        key("nesting", "boolean", "false"),
        key("prefix_discovery", "boolean", "false"),
        key("captive_portal_probe", "URL", "none"),
        key("auth", "auth", "required"),
        key("uplink", "tables", "required"),
        key("policy", "tables", "none"),
    ],
    later: &[],
};

/// `[[mobile_node.uplink]]`
pub(super) const NODE_UPLINK: Section =
    Section { header: "[[mobile_node.uplink]]", path: "mobile_node.uplink", ..UPLINK };

/// `[[mobile_node.policy]]`
pub(super) const NODE_POLICY: Section =
    Section { header: "[[mobile_node.policy]]", path: "mobile_node.policy", ..POLICY };

/// `[[mobile_router.uplink]]`
pub(super) const UPLINK: Section = Section {
    header: "[[mobile_router.uplink]]",
    path: "mobile_router.uplink",
    keys: &[
        key("interface", "interface", "required"),
        key("bid", "integer, 1 to 65535", "none"),
        key("cost", "integer, 0 to 65535", "0"),
        key("capacity", "integer, 1 to 100000000", "none"),
        key("volume", "volume", "none"),
        key("volume_period", "\"day\", \"week\" or \"month\"", "\"month\""),
        key("volume_day", "integer, 1 to 31", "1"),
        key("volume_action", "\"last_resort\" or \"stop\"", "\"last_resort\""),
        key("roaming", "\"allowed\" or \"never\"", "\"allowed\""),
        key("priority", "integer, 1 to 127", "10"),
        key("signal", "signal", "none"),
        key("signal_file", "path", "none"),
        key("signal_timeout", "duration", "\"1m\""),
    ],
    later: &[],
};

/// `[[mobile_router.policy]]`
pub(super) const POLICY: Section = Section {
    header: "[[mobile_router.policy]]",
    path: "mobile_router.policy",
    keys: &[
        key("name", "name", "required"),
        key("dscp", "array of integers, 0 to 63", "[]"),
        key("protocol", "\"tcp\", \"udp\" or \"icmpv6\"", "none"),
        key("ports", "array of ports", "[]"),
        key("prefixes", "array of prefixes", "[]"),
        key("action", "\"failover\", \"balance\" or \"duplicate\"", "required"),
        key("uplinks", "array of interfaces", "required"),
    ],
    later: &[],
};

/// The inline table `signal` of an uplink.
pub(super) const SIGNAL: Section = Section {
    header: "signal",
    path: "mobile_router.uplink.signal",
    keys: &[key("good", "integer, -200 to 100", "required"), key("poor", "integer, -200 to 100", "required")],
    later: &[],
};

/// The inline table `auth` of a mobile router, at either end.
pub(super) const AUTH: Section = Section {
    header: "auth",
    path: "auth",
    keys: &[
        key("spi", "integer, 256 to 4294967295", "required"),
        key("key", "32 hexadecimal digits", "none"),
        key("key_file", "path", "none"),
        key("replay", "\"sequence\" or \"timestamp\"", "\"sequence\""),
        key("window", "duration", "\"7s\""),
        key("per_agent", "boolean", "false"),
        key("former", "tables", "none"),
    ],
    later: &[],
};

/// `auth.former`: the keys that are accepted beside the one of `auth`.
pub(super) const FORMER: Section = Section {
    header: "auth.former",
    path: "auth.former",
    keys: &[
        key("spi", "integer, 256 to 4294967295", "required"),
        key("key", "32 hexadecimal digits", "none"),
        key("key_file", "path", "none"),
    ],
    later: &[],
};

/// `[geonet]`
pub(super) const GEONET: Section = Section {
    header: "[geonet]",
    path: "geonet",
    keys: &[
        key("interface", "radio", "required"),
        key("station_type", "station type", "\"unknown\""),
        key("address", "\"auto\", \"managed:MAC\" or \"anonymous\"", "\"auto\""),
        key("set_link_address", "boolean", "true"),
        key("position", "position", "required"),
        key("range", "length", "\"1km\""),
        key("standard", "\"1.4.1\", \"1.3.1\" or \"1.2.1\"", "\"1.4.1\""),
        key("ipv6_interface", "interface", "none"),
        key("ipv6", "table", "none"),
        key("mnpp", "table", "none"),
        key("multicast", "table", "none"),
        key("dcc", "table", "none"),
        key("forwarding", "table", "none"),
        key("beacon", "table", "none"),
        key("mib", "table", "none"),
        key("area", "tables", "none"),
    ],
    later: &[],
};

/// `[geonet.ipv6]`, or the inline table `ipv6`.
pub(super) const IPV6: Section = Section {
    header: "[geonet.ipv6]",
    path: "geonet.ipv6",
    keys: &[
        key("dynamic_interface", "interface", "none"),
        key("learnt_links", "integer, 0 to 64", "0"),
        key("hop_limit", "integer, 1 to 255", "none"),
        key("reorder_wait", "duration", "\"0s\""),
        key("reorder_rule", "\"shorter\", \"changed\" or \"always\"", "\"shorter\""),
        key("reorder_hold", "\"packets\" or \"acknowledgements\"", "\"packets\""),
        key("congestion_mark", "integer, 1 to 10000000", "none"),
        key("fragments", "boolean", "false"),
    ],
    later: &[],
};

/// `[geonet.mnpp]`, or the inline table `mnpp`.
pub(super) const MNPP: Section = Section {
    header: "[geonet.mnpp]",
    path: "geonet.mnpp",
    keys: &[
        key("authorization", "\"home_agent\" or \"none\"", "\"home_agent\""),
        key("shortest_prefix", "integer, 1 to 128", "64"),
        key("hops", "integer, 1 to 10", "1"),
        key("interval", "duration", "\"10s\""),
    ],
    later: &[],
};

/// `[geonet.multicast]`, or the inline table `multicast`.
pub(super) const MULTICAST: Section = Section {
    header: "[geonet.multicast]",
    path: "geonet.multicast",
    keys: &[
        key("lan", "array of interfaces", "required"),
        key("unmapped", "boolean", "false"),
        key("robustness", "integer, 1 to 7", "2"),
        key("query_interval", "duration", "\"125s\""),
        key("query_response_interval", "duration", "\"10s\""),
    ],
    later: &[],
};

/// `[geonet.dcc]`, or the inline table `dcc`.
pub(super) const DCC: Section = Section {
    header: "[geonet.dcc]",
    path: "geonet.dcc",
    keys: &[
        key("algorithm", "\"reactive\" or \"adaptive\"", "\"reactive\""),
        key("time_on_air", "\"1ms\" or \"500us\"", "\"1ms\""),
        key("data_rate", "integer, 3, 6, 9, 12, 18, 24 or 27", "6"),
        key("queue_length", "integer, 1 to 100", "10"),
        key("assumed_busy", "integer, 0 to 100", "0"),
    ],
    later: &[],
};

/// `[geonet.forwarding]`, or the inline table `forwarding`.
pub(super) const FORWARDING: Section = Section {
    header: "[geonet.forwarding]",
    path: "geonet.forwarding",
    keys: &[
        key("unicast", "\"greedy\" or \"cbf\"", "\"greedy\""),
        key("area", "\"simple\", \"cbf\" or \"advanced\"", "\"cbf\""),
        key("recovery", "\"none\" or \"gpsr\"", "\"none\""),
        key("planarisation", "\"gabriel\" or \"rng\"", "\"gabriel\""),
        key("link_lifetime", "duration", "none"),
    ],
    later: &[],
};

/// `[geonet.beacon]`, or the inline table `beacon`.
pub(super) const BEACON: Section = Section {
    header: "[geonet.beacon]",
    path: "geonet.beacon",
    keys: &[
        key("interval", "duration", "\"3s\""),
        key("jitter", "duration", "\"750ms\""),
        key("adaptive", "boolean", "false"),
        key("beacons_in_range", "integer, 1 to 1000", "16"),
        key("shortest", "duration", "\"100ms\""),
        key("longest", "duration", "\"2s\""),
        key("load_limit", "integer, 0 to 100000", "500"),
        key("company_speed", "boolean", "false"),
        key("deviation", "length", "none"),
        key("lifetime", "integer, 1 to 63", "none"),
        key("piggyback", "boolean", "false"),
        key("hops", "integer, 1 to 255", "1"),
        key("every", "integer, 1 to 10000", "1"),
    ],
    later: &[],
};

/// `[geonet.mib]`
pub(super) const MIB: Section = Section {
    header: "[geonet.mib]",
    path: "geonet.mib",
    keys: &[
        key("is_mobile", "boolean", "none"),
        key("max_sdu_size", "integer, 1 to 8000", "1398"),
        key("lifetime_location_entry", "duration", "\"20s\""),
        key("lifetime_neighbour", "duration", "\"20s\""),
        key("location_service_max_retransmissions", "integer, 0 to 255", "10"),
        key("location_service_retransmit_timer", "duration", "\"1s\""),
        key("location_service_buffer_size", "integer, 0 to 268435456", "1024"),
        key("location_service_max_pending", "integer, 1 to 65536", "256"),
        key("default_hop_limit", "integer, 1 to 255", "10"),
        key("duplicate_packet_list_length", "integer, 1 to 16", "8"),
        key("max_packet_lifetime", "duration", "\"10m\""),
        key("default_packet_lifetime", "duration", "\"60s\""),
        key("max_packet_data_rate", "integer, 0 to 4000000", "100"),
        key("packet_data_rate_beta", "integer, 0 to 99", "90"),
        key("max_area_size", "integer, 1 to 100000", "10"),
        key("min_repetition_interval", "duration", "\"100ms\""),
        key("next_hop_hold", "duration", "\"0s\""),
        key("cbf_min_time", "duration", "\"1ms\""),
        key("cbf_max_time", "duration", "\"100ms\""),
        key("sector_angle", "integer, 1 to 180", "30"),
        key("advanced_max_counter", "integer, 1 to 255", "3"),
        key("unicast_buffer_size", "integer, 0 to 268435456", "256000"),
        key("broadcast_buffer_size", "integer, 0 to 268435456", "1024000"),
        key("cbf_buffer_size", "integer, 0 to 268435456", "256000"),
        key("max_neighbours", "integer, 1 to 1000000", "16384"),
        key("max_other_stations", "integer, 1 to 1000000", "16384"),
        key("pai_interval", "length", "\"80m\""),
        key("position_update_interval", "duration", "\"1s\""),
    ],
    later: &[],
};

/// `[[geonet.area]]`
pub(super) const AREA: Section = Section {
    header: "[[geonet.area]]",
    path: "geonet.area",
    keys: &[
        key("name", "name", "required"),
        key("shape", "\"circle\", \"rectangle\" or \"ellipse\"", "required"),
        key("center", "coordinates", "required"),
        key("radius", "length", "none"),
        key("distance_a", "length", "none"),
        key("distance_b", "length", "none"),
        key("angle", "integer, 0 to 359", "0"),
        key("group", "multicast group", "none"),
        key("prefix", "prefix", "none"),
        key("ipv6_interface", "interface", "none"),
    ],
    later: &[],
};

/// `[facilities]`
pub(super) const FACILITIES: Section = Section {
    header: "[facilities]",
    path: "facilities",
    keys: &[
        key("cam", "boolean", "true"),
        key("station_id", "integer, 0 to 4294967295", "none"),
        key("vehicle_length", "number, 0.1 to 102.1", "none"),
        key("vehicle_width", "number, 0.1 to 6", "none"),
        key("role", "role", "\"default\""),
        key("keep_alive", "boolean", "true"),
        key("ldm_stations", "integer, 1 to 100000", "4096"),
        key("ldm_events", "integer, 1 to 10000", "256"),
        key("service", "tables", "none"),
    ],
    later: &[],
};

/// `[[facilities.service]]`
pub(super) const SERVICE: Section = Section {
    header: "[[facilities.service]]",
    path: "facilities.service",
    keys: &[
        key("its_aid", "integer, 0 to 270549119", "required"),
        key("address", "IPv6 address", "none"),
        key("port", "integer, 1 to 65535", "none"),
    ],
    later: &[],
};

/// `[security]`
pub(super) const SECURITY: Section = Section {
    header: "[security]",
    path: "security",
    keys: &[
        key("policy", "\"off\", \"accept_unsigned\" or \"strict\"", "\"strict\""),
        key("roots", "array of paths", "[]"),
        key("authorities", "array of paths", "[]"),
        key("tickets", "path", "none"),
        key("revoked", "array of names of certificates", "[]"),
        key("verifications_per_second", "integer, 1 to 1000000", "2000"),
        key("pseudonyms", "table", "none"),
    ],
    later: &[],
};

/// `[security.pseudonyms]`
pub(super) const PSEUDONYMS: Section = Section {
    header: "[security.pseudonyms]",
    path: "security.pseudonyms",
    keys: &[
        key("min_first_distance", "length", "\"800m\""),
        key("max_first_distance", "length", "\"1500m\""),
        key("distance", "length", "\"800m\""),
        key("min_time", "duration", "\"2m\""),
        key("max_time", "duration", "\"6m\""),
        key("longest_lock", "duration", "\"255s\""),
    ],
    later: &[],
};

/// `[conformance]`
pub(super) const CONFORMANCE: Section = Section {
    header: "[conformance]",
    path: "conformance",
    keys: &[key("upper_tester", "address and port", "required"), key("anywhere", "boolean", "false")],
    later: &[],
};

/// All tables but the top, and those of a mobile node whose keys are a mobile router's.
pub(super) const SECTIONS: [&Section; 26] = [
    &STATION,
    &DATAPLANE,
    &HOME_AGENT,
    &PEER,
    &ALLOWED_ROUTER,
    &MOBILE_ROUTER,
    &MOBILE_NODE,
    &UPLINK,
    &POLICY,
    &SIGNAL,
    &AUTH,
    &FORMER,
    &GEONET,
    &IPV6,
    &MNPP,
    &MULTICAST,
    &DCC,
    &FORWARDING,
    &BEACON,
    &MIB,
    &AREA,
    &FACILITIES,
    &SERVICE,
    &SECURITY,
    &PSEUDONYMS,
    &CONFORMANCE,
];
