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
    /// Its type in the words of the page.
    #[cfg_attr(not(test), expect(dead_code, reason = "compared with the page by the tests"))]
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
        key("geonet", "table", "none"),
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
    ],
    later: &["http"],
};

/// `[dataplane]`
pub(super) const DATAPLANE: Section = Section {
    header: "[dataplane]",
    path: "dataplane",
    keys: &[key("path", "\"auto\", \"bpf\", \"xdp\" or \"tun\"", "\"auto\"")],
    later: &[],
};

/// `[home_agent]`
pub(super) const HOME_AGENT: Section = Section {
    header: "[home_agent]",
    path: "home_agent",
    keys: &[
        key("address", "address", "required"),
        key("home_prefix", "prefix", "required"),
        key("home_link", "interface", "none"),
        key("max_lifetime", "lifetime", "\"10m\""),
        key("preference", "integer, 0 to 65535", "0"),
        key("dhaad", "false", "false"),
        key("mobile_router", "tables", "none"),
    ],
    later: &["ipv4_address"],
};

/// `[[home_agent.mobile_router]]`
pub(super) const ALLOWED_ROUTER: Section = Section {
    header: "[[home_agent.mobile_router]]",
    path: "home_agent.mobile_router",
    keys: &[
        key("home_address", "address", "required"),
        key("prefixes", "array of prefixes", "[]"),
        key("auth", "auth", "required"),
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
        key("home_agent", "address", "required"),
        key("prefixes", "array of prefixes", "[]"),
        key("registration", "\"explicit\" or \"implicit\"", "\"explicit\""),
        key("lifetime", "lifetime", "\"60s\""),
        key("lan", "array of interfaces", "[]"),
        key("advertise", "boolean", "true"),
        key("auth", "auth", "required"),
        key("uplink", "tables", "required"),
    ],
    later: &["home_agent_ipv4"],
};

/// `[[mobile_router.uplink]]`
pub(super) const UPLINK: Section = Section {
    header: "[[mobile_router.uplink]]",
    path: "mobile_router.uplink",
    keys: &[key("interface", "interface", "required"), key("priority", "integer, 1 to 127", "10")],
    later: &["bid", "signal"],
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
        key("position", "position", "required"),
        key("range", "length", "\"1km\""),
        key("standard", "\"1.4.1\", \"1.3.1\" or \"1.2.1\"", "\"1.4.1\""),
        key("forwarding", "table", "none"),
        key("beacon", "table", "none"),
        key("area", "tables", "none"),
    ],
    later: &["ipv6_interface"],
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
        key("piggyback", "boolean", "false"),
        key("hops", "integer, 1 to 255", "1"),
        key("every", "integer, 1 to 10000", "1"),
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
    ],
    later: &["group"],
};

/// `[conformance]`
pub(super) const CONFORMANCE: Section = Section {
    header: "[conformance]",
    path: "conformance",
    keys: &[key("upper_tester", "address and port", "required"), key("anywhere", "boolean", "false")],
    later: &[],
};

/// All tables but the top.
#[cfg(test)]
pub(super) const SECTIONS: [&Section; 12] = [
    &STATION,
    &DATAPLANE,
    &HOME_AGENT,
    &ALLOWED_ROUTER,
    &MOBILE_ROUTER,
    &UPLINK,
    &AUTH,
    &GEONET,
    &FORWARDING,
    &BEACON,
    &AREA,
    &CONFORMANCE,
];
