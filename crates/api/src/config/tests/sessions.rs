//! Keys of encrypted sessions.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

/// The key pairs of RFC 7748 6.1.
const PRIVATE_KEY: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
const PUBLIC_KEYS: [&str; 2] =
    ["hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=", "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="];

/// A folder with key files, which is removed at the end.
struct KeyFolder(PathBuf);

impl KeyFolder {
    fn new(name: &str) -> KeyFolder {
        let path = std::env::temp_dir().join(format!("carnet-api-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        let folder = KeyFolder(path);
        folder.write_file("own.key", PRIVATE_KEY, 0o600);
        folder
    }

    fn write_file(&self, name: &str, text: &str, mode: u32) {
        let path = self.0.join(name);
        fs::write(&path, format!("{text}\n")).expect("a key");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
    }

    /// Parses a config whose key files are in this folder. Removes the folder's path from the errors.
    fn parse(&self, text: &str) -> Result<Config, String> {
        let file = self.0.join("c.toml").display().to_string();
        let folder = format!("{}/", self.0.display());
        Config::parse(text, &file).map_err(|errors| errors.to_string().replace(&folder, ""))
    }
}

impl Drop for KeyFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn home_agent_config() -> String {
    format!(
        "[station]\nname = \"agent\"\nprivate_key_file = \"own.key\"\n[home_agent]\naddress = \
         \"2001:db8:1::1\"\nhome_prefix = \"2001:db8:1::/64\"\n[[home_agent.mobile_router]]\nhome_address = \
         \"2001:db8:1::5\"\nauth = {{ public_key = \"{}\" }}\n",
        PUBLIC_KEYS[0]
    )
}

fn router_config() -> String {
    let keys = format!("home_agent_key = \"{}\"", PUBLIC_KEYS[1]);
    SMALL_ROUTER_CONFIG
        .replace("auth = \"none\"", &keys)
        .replace("\"bus-42\"\n", "\"bus-42\"\nprivate_key_file = \"own.key\"\n")
}

/// Config of a radio with direct routes to neighbouring vehicles (MNPP).
const RADIO_CONFIG: &str =
    "[geonet]\ninterface = \"eth1\"\nposition = \"fixed:48,11\"\nipv6_interface = \"gn0\"\nmnpp = {}\n";

#[test]
fn direct_routes_of_router_with_keys_are_encrypted_by_default() {
    let folder = KeyFolder::new("encrypted-direct");
    let routes = "direct_routes = [\"2001:db8:a::/48\"]\n";
    let with_routes = |router: String| router.replace("uplink", &format!("{routes}uplink"));
    let config = folder.parse(&with_routes(router_config())).expect("a config");
    assert!(config.mobile_router.as_ref().expect("a router").encrypts_direct_routes());
    assert_eq!(config.describe_encryption().as_deref(), Some("encrypted"));
    assert!(config.encrypts_all_tunnels());
    let config = folder.parse(&with_routes(SMALL_ROUTER_CONFIG.to_owned())).expect("a config");
    assert!(!config.mobile_router.expect("a router").encrypts_direct_routes(), "without a key");
}

/// With `direct_encryption = "off"`, packets between vehicles leave in the clear, and the status says so.
#[test]
fn direct_encryption_off_permits_direct_routes_and_neighbours_in_the_clear() {
    let folder = KeyFolder::new("direct");
    let off = |text: &str| {
        let config = router_config().replace("uplink", &format!("direct_encryption = \"off\"\n{text}uplink"));
        folder.parse(&config).expect("a config").describe_encryption()
    };
    assert_eq!(off("").as_deref(), Some("encrypted"));
    let in_part = Some("encrypted, packets between vehicles in the clear");
    assert_eq!(off("direct_routes = [\"2001:db8:a::/48\"]\n").as_deref(), in_part);
    let config = router_config().replace("uplink", "direct_encryption = \"off\"\nuplink") + RADIO_CONFIG;
    let config = folder.parse(&config).expect("a config");
    assert_eq!(config.describe_encryption().as_deref(), in_part);
    assert!(!config.encrypts_all_tunnels());
}

#[test]
fn config_reads_key_pairs_of_home_agent_and_mobile_router() {
    let folder = KeyFolder::new("pairs");
    folder.write_file("shared.key", PUBLIC_KEYS[1], 0o600);
    let config = folder.parse(&home_agent_config()).expect("a config");
    assert_eq!(config.describe_encryption().as_deref(), Some("encrypted"));
    let private_key = config.station.private_key.as_ref().expect("a key");
    let private = private_key.present_key.octets();
    assert_eq!((private[0], private[31]), (0x77, 0x2a));
    assert!(private_key.next_key.is_none() && private_key.key_file.ends_with("own.key"));
    let agent = config.home_agent.expect("a home agent");
    assert_eq!(agent.tunnel_port, 51820);
    let keys = agent.mobile_routers[0].node_auth.session_keys().expect("keys").clone();
    assert_eq!((keys.public_keys[0].0[0], keys.preshared_key), (0x85, None));

    let with_psk = router_config().replace("uplink", "preshared_key_file = \"shared.key\"\nuplink");
    let mut config = folder.parse(&with_psk).expect("a config");
    let router = config.mobile_router.as_ref().expect("a router");
    assert_eq!(router.home_agent_port, 51820);
    let keys = router.auth.session_keys().expect("keys");
    assert_eq!(keys.preshared_key.as_ref().expect("a key").octets()[0], 0xde);
    config.wipe_keys();
    assert_eq!(config.station.private_key.expect("a key").present_key.octets(), [0; 32]);
    let keys = config.mobile_router.expect("a router").auth.session_keys().expect("keys").clone();
    assert_eq!(keys.preshared_key.expect("a key").octets(), [0; 32]);

    // Two home agents with different public keys.
    let several = with_psk
        .replace("home_agent = \"2001:db8:1::1\"", "home_agent = [\"2001:db8:1::1\", \"2001:db8:1::2\"]")
        .replace(
            &format!("\"{}\"", PUBLIC_KEYS[1]),
            &format!("[\"{}\", \"{}\"]", PUBLIC_KEYS[1], PUBLIC_KEYS[0]),
        );
    let config = folder.parse(&several).expect("a config");
    assert_eq!(
        config.mobile_router.expect("a router").auth.session_keys().expect("keys").public_keys.len(),
        2
    );
    let clear = parse(SMALL_ROUTER_CONFIG);
    assert_eq!(clear.describe_encryption().as_deref(), Some("in the clear"));
    assert!(!clear.encrypts_all_tunnels());
}

/// A station with encrypted sessions stores timestamps of handshakes and announced keys in its state
/// directory.
#[test]
fn key_pair_without_state_dir_has_a_warning() {
    let folder = KeyFolder::new("state");
    for (config, expected) in [
        (home_agent_config(), "home_agent without station.state_dir: after a restart"),
        (router_config(), "mobile_router without station.state_dir: after a restart with an earlier clock"),
    ] {
        let warnings = folder.parse(&config).expect("a config").warnings();
        assert!(warnings.len() == 1 && warnings[0].starts_with(expected), "{warnings:?}");
        let stored = config.replace("[station]", "[station]\nstate_dir = \"/var/lib/carnet\"");
        assert!(folder.parse(&stored).expect("a config").warnings().is_empty());
    }
}

#[test]
fn keys_without_effect_beside_key_pairs_or_without_them_have_a_warning() {
    let folder = KeyFolder::new("effect");
    let parse = |config: &str| {
        let config = config.replace("[station]", "[station]\nstate_dir = \"/var/lib/carnet\"");
        folder.parse(&config).expect("a config").warnings()
    };
    let router = |config: String, key: &str| config.replace("home_agent =", &format!("{key}\nhome_agent ="));
    let agent = |config: String, key: &str| config.replace("[home_agent]", &format!("[home_agent]\n{key}"));
    let in_the_clear = "[[home_agent.mobile_router]]\nhome_address = \"2001:db8:1::6\"\n\
                        auth = { spi = 300, key = \"000102030405060708090a0b0c0d0e0f\" }\n";
    for (config, expected) in [
        (
            router(router_config(), "udp = true"),
            "mobile_router.udp has no effect together with `home_agent_key`",
        ),
        (
            agent(home_agent_config(), "udp = true"),
            "home_agent.udp has no effect, because each mobile router has a `public_key`",
        ),
    ] {
        let warnings = parse(&config);
        assert!(warnings.len() == 1 && warnings[0].starts_with(expected), "{warnings:?}");
    }
    for config in [
        router(router_config(), "home_agent_port = 443"),
        agent(home_agent_config(), "tunnel_port = 443"),
        agent(home_agent_config() + in_the_clear, "udp = true"),
    ] {
        assert_eq!(parse(&config), Vec::<String>::new());
    }
    let clear = parse(&router(SMALL_ROUTER_CONFIG.to_owned(), "home_agent_port = 443"));
    let expected = "mobile_router.home_agent_port has no effect without `home_agent_key`";
    assert!(clear.iter().any(|warning| warning.starts_with(expected)), "{clear:?}");
    let start = home_agent_config().find("[[").expect("a router");
    let clear = parse(&agent(home_agent_config()[..start].to_owned() + in_the_clear, "tunnel_port = 443"));
    let expected = "home_agent.tunnel_port has no effect, because no mobile router has a `public_key`";
    assert!(clear.iter().any(|warning| warning.starts_with(expected)), "{clear:?}");
}

#[test]
fn next_private_key_is_read_beside_the_present_one() {
    let folder = KeyFolder::new("next");
    folder.write_file("own.key.next", PUBLIC_KEYS[1], 0o600);
    let mut config = folder.parse(&home_agent_config()).expect("a config");
    let keys = config.station.private_key.as_ref().expect("a key");
    let first: Vec<u8> = keys.keys_newest_first().map(|key| key.octets()[0]).collect();
    assert_eq!(first, [0xde, 0x77]);
    config.wipe_keys();
    let keys = config.station.private_key.expect("a key");
    assert!(keys.keys_newest_first().all(|key| key.octets() == [0; 32]));

    folder.write_file("own.key.next", PUBLIC_KEYS[1], 0o644);
    let error = folder.parse(&home_agent_config()).expect_err("an open file");
    assert!(error.contains("other users may read or write own.key.next (mode 0644)"), "{error}");
    folder.write_file("own.key.next", "", 0o600);
    let error = folder.parse(&home_agent_config()).expect_err("an empty file");
    assert!(error.contains("own.key.next: the key has 0 characters"), "{error}");
}

#[test]
fn config_reports_mistakes_in_session_keys() {
    let folder = KeyFolder::new("mistakes");
    folder.write_file("open.key", PRIVATE_KEY, 0o640);
    folder.write_file("short.key", "abc", 0o600);
    let second = format!(
        "[[home_agent.mobile_router]]\nhome_address = \"2001:db8:1::6\"\nauth = {{ public_key = \"{}\" }}\n",
        PUBLIC_KEYS[0]
    );
    let key = format!("\"{}\"", PUBLIC_KEYS[1]);
    for (text, expected) in [
        (
            home_agent_config().replace("own.key", "open.key"),
            "c.toml:3:20: `station.private_key_file`: other users may read or write open.key (mode 0640), \
             expected mode 0600 (chmod 600)",
        ),
        (
            home_agent_config().replace("own.key", "short.key"),
            "c.toml:3:20: `station.private_key_file`: short.key: the key has 3 characters, expected a key of \
             44 characters (base64, 32 octets), as `carnet key` prints it",
        ),
        (
            home_agent_config().replace("private_key_file = \"own.key\"\n", ""),
            "c.toml:8:8: encrypted sessions need a private key of this station, expected \
             `station.private_key_file`",
        ),
        (
            home_agent_config() + &second,
            "c.toml:12:8: the public key is that at c.toml:9:8, expected another",
        ),
        (
            home_agent_config().replace("hSDw", "hSD-"),
            "c.toml:9:23: `auth.public_key`: the key is no base64, expected a key of 44 characters (base64, \
             32 octets), as `carnet key` prints it",
        ),
        (
            home_agent_config().replace("auth = { ", "auth = { spi = 300, "),
            "c.toml:9:16: `auth.spi`: found this key beside `public_key`, expected one of the two",
        ),
        (
            router_config().replace("home_agent_key", "#"),
            "c.toml:5:1: `mobile_router.auth` is missing, expected authentication to be chosen: \
             { public_key = \"...\" }, { spi = 300, key = \"...\" }, \"ipsec\" or \"none\", or \
             `home_agent_key`",
        ),
        (
            router_config().replace("uplink", "auth = \"none\"\nuplink"),
            "c.toml:9:18: `mobile_router.home_agent_key`: found both `auth` and `home_agent_key`, expected \
             one of them",
        ),
        (
            router_config().replace(&key, &format!("[{key}, {key}]")),
            "c.toml:9:18: there are 2 keys for 1 home agents, expected one, or one for each",
        ),
        (
            router_config() + RADIO_CONFIG,
            "c.toml:15:8: packets to neighbouring vehicles are in the clear, expected no [geonet.mnpp], or \
             `mobile_router.direct_encryption = \"off\"`",
        ),
        (
            router_config()
                .replace("home_agent_key = ", "auth = { public_key = ")
                .replace("=\"\nup", "=\" }\nup"),
            "c.toml:9:8: `mobile_router.auth`: a mobile router names the home agent's key, expected \
             `home_agent_key`",
        ),
    ] {
        assert_eq!(folder.parse(&text).expect_err(expected), expected, "{text}");
    }
}
