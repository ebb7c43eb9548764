//! `docs/config.md` against the schema, and the schema against the reader.

use super::super::schema::{SECTIONS, Section};
use super::{Config, FULL, parse};

const PAGE: &str = include_str!("../../../../../docs/config.md");

/// A config with every key of a mobile node that has a default.
fn node() -> String {
    "[station]\nname = \"n\"\n[mobile_node]\nhome_address = \"2001:db8:1::77\"\nhome_prefix = \"2001:db8:1::/64\"\n\
     home_agent = \"2001:db8:1::1\"\nudp = true\nheartbeat = \"500ms\"\nheartbeat_idle = \"2s\"\nlifetime = \"90s\"\n\
     auth = \"none\"\nuplink = [{ interface = \"wlan0\" }]\n"
        .to_owned()
}

/// The chapter of the page about a section.
fn chapter(section: &Section) -> &'static str {
    let heading = format!("\n## {}\n", section.header);
    let start = PAGE.find(&heading).unwrap_or_else(|| panic!("no chapter {}", section.header));
    let text = &PAGE[start + heading.len()..];
    text.find("\n## ").map_or(text, |end| &text[..end])
}

#[test]
fn the_page_and_the_schema_have_the_same_keys() {
    for section in SECTIONS {
        let page: Vec<Vec<&str>> = chapter(section)
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let page: Vec<(&str, &str, &str)> = page.iter().map(|row| (row[0], row[1], row[2])).collect();
        let schema: Vec<(String, &str, String)> = section
            .keys
            .iter()
            .map(|key| {
                let plain = matches!(key.default, "required" | "none");
                let default = if plain { key.default.to_owned() } else { format!("`{}`", key.default) };
                (format!("`{}`", key.name), key.kind, default)
            })
            .collect();
        let schema: Vec<(&str, &str, &str)> =
            schema.iter().map(|(name, kind, default)| (name.as_str(), *kind, default.as_str())).collect();
        assert_eq!(page, schema, "{}", section.header);
    }
}

#[test]
fn the_page_has_no_chapter_of_a_section_that_is_not() {
    for heading in PAGE.lines().filter_map(|line| line.strip_prefix("## ")) {
        assert!(heading == "Types" || SECTIONS.iter().any(|section| section.header == heading), "{heading}");
    }
}

#[test]
fn every_example_of_the_page_parses() {
    // The examples name key files; give them what the files would have.
    let key = "key = \"000102030405060708090a0b0c0d0e0f\"";
    let mut examples = 0;
    for (index, _) in PAGE.match_indices("```toml\n") {
        let text = &PAGE[index + "```toml\n".len()..];
        let text = &text[..text.find("\n```").expect("an end")];
        let text = text.replace("key_file = \"bus-42.key\"", key).replace("key_file = \"bus-43.key\"", key);
        if let Err(errors) = Config::parse(&text, "docs/config.md") {
            panic!("{errors}\n{text}");
        }
        examples += 1;
    }
    assert_eq!(examples, 27);
}

#[test]
fn every_key_of_the_schema_is_read() {
    for section in SECTIONS {
        for key in section.keys {
            // A date is right nowhere.
            let (before, after) = match section.header {
                "auth" => ("auth = { ", " }\n"),
                "auth.former" => ("auth = { former = [{ ", " }] }\n"),
                "signal" => ("signal = { ", " }\n"),
                _ => ("", "\n"),
            };
            let header = match section.header {
                "auth" | "auth.former" => "[mobile_router]",
                "signal" => "[[mobile_router.uplink]]",
                header => header,
            };
            let text = format!("{header}\n{before}{} = 1979-05-27{after}", key.name);
            let errors = Config::parse(&text, "c.toml").expect_err("a date").to_string();
            let expected = format!("`{}.{}`: a date does not go here", section.path, key.name);
            assert!(errors.contains(&expected), "{text}{errors}");
        }
    }
}

#[test]
fn the_defaults_of_the_page_are_the_defaults() {
    for section in SECTIONS {
        for key in section.keys.iter().filter(|key| !matches!(key.default, "required" | "none")) {
            if section.header == "auth" {
                continue; // inline, below
            }
            let full = match key.name {
                // These are of the other kind of beacons.
                "beacons_in_range" | "shortest" | "longest" | "load_limit" | "company_speed" => {
                    FULL.replace("interval = \"3s\"\njitter = \"500ms\"", "adaptive = true")
                }
                _ if section.header == "[mobile_node]" => node(),
                "recovery" => FULL.replace("planarisation = \"rng\"\n", ""),
                _ => FULL.to_owned(),
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
                // These three belong together.
                "prefixes" => {
                    absent.replace("lan = [\"i0\", \"i1\"]\n", "").replace("fd00:2::1", "2001:db8:2::5")
                }
                _ => absent,
            };
            let value = key.default.replace("NAME", "bus-42");
            let given =
                absent.replace(section.header, &format!("{}\n{} = {value}", section.header, key.name));
            assert_eq!(parse(&absent), parse(&given), "{} {}", section.header, key.name);
        }
    }
    let window = |text| parse(&FULL.replace(", window = \"10s\"", text));
    assert_eq!(window(""), window(", window = \"7s\""));
    let replay = |text| parse(&FULL.replace("replay = \"timestamp\", window = \"10s\"", text));
    assert_eq!(replay(""), replay("replay = \"sequence\""));
}
