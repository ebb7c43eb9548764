//! Compares `docs/config.md` with the declarations, and the declarations with the reader.
//!
//! `CARNET_UPDATE_CONFIG=1 cargo test -p carnet-api config_page_lists` writes the tables of the page.

use super::super::document::all_sections;
use super::super::keys::{AbsentValue, DeclaredKey, Section};
use super::{CONFIG_WITH_EVERY_KEY, Config, parse};

const CONFIG_PAGE: &str = include_str!("../../../../../docs/config.md");

/// Head of a table of keys.
const KEY_TABLE_HEAD: &str = "\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n";

/// Returns a config with every key of a mobile node that has a default.
fn mobile_node_config() -> String {
    "[station]\nname = \"n\"\n[mobile_node]\nhome_address = \"2001:db8:1::77\"\nhome_prefix = \
     \"2001:db8:1::/64\"\nhome_agent = \"2001:db8:1::1\"\nudp = true\nheartbeat = \"500ms\"\nheartbeat_idle \
     = \"2s\"\nlifetime = \"90s\"\nauth = \"none\"\nuplink = [{ interface = \"wlan0\" }]\n"
        .to_owned()
}

/// Returns the sections that have a chapter. A mobile node's uplinks and policies share the chapters of a
/// mobile router's.
fn sections_with_chapter() -> Vec<&'static Section> {
    all_sections().into_iter().filter(|section| !section.path.starts_with("mobile_node.")).collect()
}

/// Returns the row of `docs/config.md` about a key.
fn row_of_key(section: &Section, key: &dyn DeclaredKey) -> String {
    let declaration = key.declaration();
    let name = declaration.name;
    let default = match declaration.absent_value {
        AbsentValue::Required => "required".to_owned(),
        AbsentValue::Nothing => "none".to_owned(),
        AbsentValue::Default(text) | AbsentValue::Computed(text) => format!("`{text}`"),
    };
    let own = section.replaced_meanings.iter().find(|(key, _)| *key == name).map(|(_, meaning)| *meaning);
    let meaning = own.unwrap_or(declaration.meaning);
    assert!(!meaning.is_empty(), "{} needs a sentence", section.path_of(name));
    let meaning: Vec<&str> = meaning.split_whitespace().collect();
    format!("| `{name}` | {} | {default} | {} |", key.type_name(), meaning.join(" "))
}

/// Returns the page `docs/config.md` with its rows replaced by those of the declarations.
fn page_with_rows(page: &str) -> String {
    let mut page = page.to_owned();
    for section in sections_with_chapter() {
        let heading = format!("\n## {}\n", section.header);
        let start = page.find(&heading).unwrap_or_else(|| panic!("no chapter {}", section.header));
        let table =
            page[start..].find(KEY_TABLE_HEAD).unwrap_or_else(|| panic!("no table in {}", section.header));
        let first = start + table + KEY_TABLE_HEAD.len();
        let last = first + page[first..].find("\n\n").expect("an end");
        let rows: Vec<String> = section.declared_keys.iter().map(|key| row_of_key(section, *key)).collect();
        page.replace_range(first..last, &rows.join("\n"));
    }
    page
}

#[test]
fn config_page_lists_exactly_the_declared_keys() {
    let written = page_with_rows(CONFIG_PAGE);
    if std::env::var_os("CARNET_UPDATE_CONFIG").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
        std::fs::write(path, written).expect("docs/config.md is written");
        return;
    }
    for (found, expected) in CONFIG_PAGE.lines().zip(written.lines()) {
        assert_eq!(
            found, expected,
            "docs/config.md is not what the declarations say: CARNET_UPDATE_CONFIG=1 cargo test -p \
             carnet-api config_page_lists"
        );
    }
    assert_eq!(CONFIG_PAGE.lines().count(), written.lines().count());
}

#[test]
fn every_chapter_of_the_config_page_describes_a_config_section() {
    for heading in CONFIG_PAGE.lines().filter_map(|line| line.strip_prefix("## ")) {
        let known = sections_with_chapter().iter().any(|section| section.header == heading);
        assert!(heading == "Types" || known, "{heading}");
    }
}

#[test]
fn every_example_of_the_page_parses() {
    // The examples name key files, which the test replaces by their contents.
    let key = "key = \"000102030405060708090a0b0c0d0e0f\"";
    let mut examples = 0;
    for (index, _) in CONFIG_PAGE.match_indices("```toml\n") {
        let text = &CONFIG_PAGE[index + "```toml\n".len()..];
        let text = &text[..text.find("\n```").expect("an end")];
        let text = text.replace("key_file = \"bus-42.key\"", key).replace("key_file = \"bus-43.key\"", key);
        if let Err(errors) = Config::parse(&text, "docs/config.md") {
            panic!("{errors}\n{text}");
        }
        examples += 1;
    }
    assert_eq!(examples, 30);
}

#[test]
fn every_declared_key_is_read() {
    for section in all_sections() {
        for key in section.declared_keys.iter().map(|key| key.declaration()) {
            // A date is no valid value of any key.
            let (before, after) = match section.header {
                "auth" => ("auth = { ", " }\n"),
                "auth.former" => ("auth = { former = [{ ", " }] }\n"),
                "signal" => ("signal = { ", " }\n"),
                _ => ("", "\n"),
            };
            let header = match section.header {
                "auth" | "auth.former" => "[mobile_router]",
                "signal" => "[[mobile_router.uplink]]",
                "[[mobile_router.lan.allow]]" => "[[mobile_router.lan]]\n[[mobile_router.lan.allow]]",
                header => header,
            };
            let text = format!("{header}\n{before}{} = 1979-05-27{after}", key.name);
            let errors = Config::parse(&text, "c.toml").expect_err("a date").to_string();
            let expected = format!("`{}.{}`: a date is not permitted here", section.path, key.name);
            assert!(errors.contains(&expected), "{text}{errors}");
        }
    }
}

#[test]
fn config_page_states_the_defaults_of_the_parser() {
    for section in sections_with_chapter() {
        for key in section.declared_keys.iter().map(|key| key.declaration()) {
            let (AbsentValue::Default(default) | AbsentValue::Computed(default)) = key.absent_value else {
                continue;
            };
            if section.header == "auth" {
                continue; // inline, below
            }
            let full = match key.name {
                // These keys of `[geonet.beacon]` need `adaptive = true`.
                "beacons_in_range" | "shortest" | "longest" | "load_limit" | "company_speed" => {
                    CONFIG_WITH_EVERY_KEY.replace("interval = \"3s\"\njitter = \"500ms\"", "adaptive = true")
                }
                _ if section.header == "[mobile_node]" => mobile_node_config(),
                "recovery" => CONFIG_WITH_EVERY_KEY.replace("planarisation = \"rng\"\n", ""),
                _ => CONFIG_WITH_EVERY_KEY.to_owned(),
            };
            let mut header = "";
            let absent: String = full
                .lines()
                .filter(|line| {
                    if line.starts_with('[') {
                        header = line;
                    }
                    header != section.header || !line.starts_with(&format!("{} =", key.name))
                })
                .map(|line| format!("{line}\n"))
                .collect();
            let absent = match key.name {
                // A config without `prefixes` must have no `lan`, and its home address must be in the home
                // prefix.
                "prefixes" => {
                    absent.replace("lan = [\"i0\", \"i1\"]\n", "").replace("fd00:2::1", "2001:db8:2::5")
                }
                _ => absent,
            };
            let value = default.replace("NAME", "bus-42");
            let given =
                absent.replace(section.header, &format!("{}\n{} = {value}", section.header, key.name));
            assert_eq!(parse(&absent), parse(&given), "{} {}", section.header, key.name);
        }
    }
    let window = |text| parse(&CONFIG_WITH_EVERY_KEY.replace(", window = \"10s\"", text));
    assert_eq!(window(""), window(", window = \"7s\""));
    let replay =
        |text| parse(&CONFIG_WITH_EVERY_KEY.replace("replay = \"timestamp\", window = \"10s\"", text));
    assert_eq!(replay(""), replay("replay = \"sequence\""));
}
