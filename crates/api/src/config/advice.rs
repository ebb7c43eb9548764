//! Advice for an operator about a valid config. `carnet check` prints it; a start of the station does not.

use std::collections::BTreeMap;

use carnet_base::Key;
use toml::de::{DeTable, DeValue};

use super::auth::Auth;
use super::{Config, MobileRouter};

/// Shared keys that the documentation prints, so that they are not secret.
const DOCUMENTED_KEYS: [&str; 3] = [
    "000102030405060708090a0b0c0d0e0f",
    "101112131415161718191a1b1c1d1e1f",
    "20553b8f1d4cd6e0e61441e44ffb349d",
];

/// Returns the shared keys of an `auth`, each with its SPI.
fn keys_with_spi(auth: &Auth) -> impl Iterator<Item = (u32, &Key)> {
    let own = auth.shared_key_auth().map(|mac| (mac.spi, &mac.shared_key));
    own.into_iter().chain(auth.former_keys().iter().map(|former| (former.spi, &former.former_key)))
}

/// Returns whether the documentation prints this shared key.
fn is_documented(key: &Key) -> bool {
    let digits: String = key.octets().iter().map(|octet| format!("{octet:02x}")).collect();
    DOCUMENTED_KEYS.contains(&digits.as_str())
}

impl Config {
    /// Returns the advice about the config in `text`, one line each. Does not repeat the warnings of
    /// [`Config::warnings`].
    pub fn advice_on_config(&self, text: &str) -> Vec<String> {
        let mut advice = Vec::new();
        if let Some(agent) = &self.home_agent {
            let mut routers_of_spi: BTreeMap<u32, Vec<String>> = BTreeMap::new();
            let mut routers_of_key: BTreeMap<&[u8; Key::LENGTH], Vec<String>> = BTreeMap::new();
            for router in &agent.mobile_routers {
                let name = router.home_address.to_string();
                for (spi, key) in keys_with_spi(&router.node_auth) {
                    routers_of_spi.entry(spi).or_default().push(name.clone());
                    routers_of_key.entry(key.octets()).or_default().push(name.clone());
                }
                if keys_with_spi(&router.node_auth).any(|(_, key)| is_documented(key)) {
                    advice.push(format!("home_agent.mobile_router {name}: {DOCUMENTED_KEY_ADVICE}"));
                }
            }
            for routers in routers_of_key.into_values() {
                if let Some(routers) = list_two_names(routers) {
                    advice.push(format!(
                        "home_agent: {routers} have the same key, so each of them can register as another \
                         one; expected a different key for each"
                    ));
                }
            }
            for (spi, routers) in routers_of_spi {
                if let Some(routers) = list_two_names(routers) {
                    advice.push(format!(
                        "home_agent: {routers} have the same SPI {spi}, so logs and counters cannot \
                         distinguish their keys; expected a different SPI for each"
                    ));
                }
            }
        }
        if let Some(router) = &self.mobile_router {
            if keys_with_spi(&router.auth).any(|(_, key)| is_documented(key)) {
                advice.push(format!("{}: {DOCUMENTED_KEY_ADVICE}", router.table_name()));
            }
            advice.extend(advice_on_uplinks_without_priority(router, text));
        }
        advice
    }
}

const DOCUMENTED_KEY_ADVICE: &str = "this key is printed in the documentation, so it is not secret; \
                                    expected a key made by `openssl rand -hex 16`";

/// Lists the first two routers by name and counts the others. Returns `None` if the list has only one router:
/// one router may use an SPI twice.
fn list_two_names(mut routers: Vec<String>) -> Option<String> {
    routers.dedup();
    match routers.as_slice() {
        [first, second] => Some(format!("{first} and {second}")),
        [first, second, others @ ..] => Some(format!("{first}, {second} and {} others", others.len())),
        _ => None,
    }
}

/// Returns the value of a config key; `None` if the table does not have the key.
fn value_of_key<'a, 't>(table: &'a DeTable<'t>, name: &str) -> Option<&'a DeValue<'t>> {
    table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value.get_ref())
}

/// Returns advice about uplinks without a priority if other uplinks have one. The function reads the text of
/// the config, because in `router` an absent priority has already become the default.
fn advice_on_uplinks_without_priority(router: &MobileRouter, text: &str) -> Vec<String> {
    let Ok(document) = DeTable::parse(text) else { return Vec::new() };
    let Some(DeValue::Table(table)) = value_of_key(document.get_ref(), router.table_name()) else {
        return Vec::new();
    };
    let Some(DeValue::Array(uplinks)) = value_of_key(table, "uplink") else { return Vec::new() };
    let names = |name: &str| -> Vec<bool> {
        let has_key = |uplink: &DeValue<'_>| match uplink {
            DeValue::Table(uplink) => value_of_key(uplink, name).is_some(),
            _ => false,
        };
        uplinks.iter().map(|uplink| has_key(uplink.get_ref())).collect()
    };
    let (bids, priorities) = (names("bid"), names("priority"));
    let missing = match (bids.contains(&true), priorities.contains(&true)) {
        (true, true) => "neither `bid` nor `priority`",
        (true, false) => "no `bid`",
        (false, true) => "no `priority`",
        (false, false) => return Vec::new(),
    };
    let ranks = bids.into_iter().zip(priorities).map(|(bid, priority)| bid || priority);
    let unranked = router.uplinks.iter().zip(ranks).filter(|(_, ranked)| !ranked);
    let tell = |interface: &str| {
        format!(
            "{}.uplink {interface}: it has {missing}, but other uplinks have it: is that intended?",
            router.table_name()
        )
    };
    unranked.map(|(uplink, _)| tell(&uplink.interface)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the advice for a config with mobile routers (each with an SPI and a key) and uplinks.
    fn advice_for_routers(routers: &[(u32, &str)], uplinks: &str) -> Vec<String> {
        let mut text = "[station]\nname = \"n\"\n[home_agent]\naddress = \"2001:db8:1::1\"\n\
                        home_prefix = \"2001:db8:1::/64\"\n"
            .to_owned();
        for (number, (spi, key)) in routers.iter().enumerate() {
            text += &format!(
                "[[home_agent.mobile_router]]\nhome_address = \"2001:db8:1::a{number}\"\n\
                 prefixes = [\"2001:db8:a{number}::/64\"]\nauth = {{ spi = {spi}, key = \"{key}\" }}\n"
            );
        }
        if !uplinks.is_empty() {
            text += &format!(
                "[mobile_node]\nhome_address = \"2001:db8:2::77\"\nhome_prefix = \"2001:db8:2::/64\"\n\
                 home_agent = \"2001:db8:2::1\"\nauth = \"none\"\nuplink = [{uplinks}]\n"
            );
        }
        Config::parse(&text, "c.toml").expect("a config").advice_on_config(&text)
    }

    const A: &str = "a0000000000000000000000000000001";
    const B: &str = "a0000000000000000000000000000002";

    #[test]
    fn keys_and_spis_shared_by_several_routers_are_reported() {
        assert_eq!(advice_for_routers(&[(300, A), (301, B)], ""), [""; 0]);
        let told = advice_for_routers(&[(300, A), (300, B)], "");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("home_agent: 2001:db8:1::a0 and 2001:db8:1::a1 have the same SPI 300"),
            "{told:?}"
        );
        let told = advice_for_routers(&[(300, A), (301, A), (302, B), (303, A)], "");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("home_agent: 2001:db8:1::a0, 2001:db8:1::a1 and 1 others have the same key"),
            "{told:?}"
        );
    }

    #[test]
    fn check_warns_of_keys_copied_from_the_documentation() {
        let told = advice_for_routers(&[(300, DOCUMENTED_KEYS[0]), (301, B)], "");
        assert_eq!(told, [format!("home_agent.mobile_router 2001:db8:1::a0: {DOCUMENTED_KEY_ADVICE}")]);
    }

    /// Each key that a page of the documentation contains causes advice.
    #[test]
    fn check_knows_every_key_printed_in_the_documentation() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        for page in std::fs::read_dir(folder).expect("the pages").map(|entry| entry.expect("a page").path()) {
            if page.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = std::fs::read_to_string(&page).expect("a page");
            let words = text.split(|character: char| !character.is_ascii_alphanumeric());
            let is_key =
                |word: &&str| word.len() == 32 && word.bytes().all(|octet| octet.is_ascii_hexdigit());
            for key in words.filter(is_key) {
                assert!(DOCUMENTED_KEYS.contains(&key), "{}: {key}", page.display());
            }
        }
    }

    #[test]
    fn check_warns_of_an_uplink_without_priority() {
        let uplink = |more: &str| format!("{{ interface = \"{}\"{more} }}", &"wlan0wwan0"[..5]);
        let other = |more: &str| format!("{{ interface = \"wwan0\"{more} }}");
        for (first, second, expected) in [
            ("", "", None),
            (", bid = 1", ", bid = 2", None),
            (", priority = 5", ", bid = 2", None),
            ("", ", bid = 2", Some("no `bid`")),
            ("", ", priority = 20", Some("no `priority`")),
            ("", ", bid = 2, priority = 20", Some("neither `bid` nor `priority`")),
        ] {
            let told = advice_for_routers(&[(300, A)], &[uplink(first), other(second)].join(", "));
            let expected = expected.map(|missing| {
                format!(
                    "mobile_node.uplink wlan0: it has {missing}, but other uplinks have it: is that intended?"
                )
            });
            assert_eq!(told, expected.into_iter().collect::<Vec<_>>(), "{first} {second}");
        }
    }
}
