//! Removes secrets from a config, for a support bundle.
//!
//! The [declaration](super::keys) of a key says whether others may see its value. This module removes
//! secrets, values of unknown keys, and long runs of hexadecimal digits. It also removes comments, which may
//! contain an old key. Of files it shows only the paths. It lists the files that contain secrets, so that the
//! caller does not include their contents.

use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::document::{ROOT_TABLE, all_sections};
use super::keys::{Disclosure, KeyDeclaration, Section};

/// Text that replaces a removed value.
pub const LEFT_OUT_MARK: &str = "LEFT OUT";

/// Number of consecutive hexadecimal digits from which a value counts as a key. Names of certificates have
/// only 16 digits.
const MIN_DIGITS_OF_KEY: usize = 32;

/// A config without its secrets.
#[derive(Debug, Default)]
pub struct DisclosedConfig {
    /// The config, in TOML.
    pub config_text: String,
    /// Config keys whose values are secrets and were removed.
    pub left_out_keys: Vec<String>,
    /// The removed values, so that a caller can search other texts for them.
    pub removed_secrets: Vec<String>,
    /// Files and folders that hold secrets, as the config names them.
    pub secret_files: Vec<PathBuf>,
}

/// Returns the config keys whose value is a secret, or the path of a file that contains a secret.
pub fn secret_keys() -> Vec<String> {
    let keys = |disclosure| {
        let sections = all_sections().into_iter();
        sections.flat_map(move |section| {
            let keys = section.declared_keys.iter().map(|key| key.declaration());
            keys.filter(move |key| key.disclosure == disclosure).map(|key| section.path_of(key.name))
        })
    };
    keys(Disclosure::Secret).chain(keys(Disclosure::PathOfSecret)).collect()
}

/// Removes the secrets of a config. Returns `None` if the text is no TOML, because the function then cannot
/// find the secrets.
pub fn disclose_config(text: &str) -> Option<DisclosedConfig> {
    let document = DeTable::parse(text).ok()?;
    let mut disclosed = DisclosedConfig::default();
    let mut out = String::new();
    disclosed.write_table(&mut out, Some(&ROOT_TABLE), "", document.get_ref());
    disclosed.config_text = out;
    Some(disclosed)
}

/// Returns whether TOML writes a value as a table, or an array of tables, with its own heading.
fn is_table_with_header(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(items) => !items.is_empty() && items.iter().all(|item| item.get_ref().is_table()),
        _ => false,
    }
}

impl DisclosedConfig {
    /// Writes a table: first its values, then the tables inside, because a heading applies to all lines up to
    /// the next heading.
    fn write_table(
        &mut self,
        out: &mut String,
        section: Option<&'static Section>,
        heading: &str,
        table: &DeTable<'_>,
    ) {
        let entries = || table.iter().map(|(name, value)| (&**name.get_ref(), value.get_ref()));
        for (name, value) in entries().filter(|(_, value)| !is_table_with_header(value)) {
            out.push_str(&format!("{} = ", key_as_toml(name)));
            self.write_key_value(out, section, name, value);
            out.push('\n');
        }
        for (name, value) in entries().filter(|(_, value)| is_table_with_header(value)) {
            let below = declaration_of(section, name).and_then(|key| key.subsection);
            let heading = if heading.is_empty() {
                key_as_toml(name).into_owned()
            } else {
                format!("{heading}.{}", key_as_toml(name))
            };
            match value {
                DeValue::Table(table) => {
                    out.push_str(&format!("\n[{heading}]\n"));
                    self.write_table(out, below, &heading, table);
                }
                DeValue::Array(items) => {
                    for item in items {
                        if let DeValue::Table(table) = item.get_ref() {
                            out.push_str(&format!("\n[[{heading}]]\n"));
                            self.write_table(out, below, &heading, table);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn write_key_value(
        &mut self,
        out: &mut String,
        section: Option<&'static Section>,
        name: &str,
        value: &DeValue<'_>,
    ) {
        let path = section.map_or(name.to_owned(), |section| section.path_of(name));
        let disclosure = declaration_of(section, name).map_or(Disclosure::Secret, |key| key.disclosure);
        if disclosure == Disclosure::PathOfSecret
            && let DeValue::String(file) = value
        {
            self.secret_files.push(PathBuf::from(&**file));
        }
        let is_open = match disclosure {
            Disclosure::Open | Disclosure::PathOfSecret => !contains_secret_key(value),
            Disclosure::Words(words) => matches!(value, DeValue::String(text) if words.contains(&&**text)),
            Disclosure::Secret => false,
        };
        if is_open {
            write_value(out, value);
        } else {
            collect_texts(value, &mut self.removed_secrets);
            self.left_out_keys.push(path);
            out.push_str(&format!("\"{LEFT_OUT_MARK}\""));
        }
    }
}

/// Returns the declaration of a key; `None` if the program does not know the key.
fn declaration_of(section: Option<&'static Section>, name: &str) -> Option<&'static KeyDeclaration> {
    section.and_then(|section| section.declaration_of(name))
}

/// Returns whether a value contains text that looks like a key.
fn contains_secret_key(value: &DeValue<'_>) -> bool {
    let mut texts = Vec::new();
    collect_texts(value, &mut texts);
    texts.iter().any(|text| {
        let mut runs = text.split(|character: char| !character.is_ascii_hexdigit());
        runs.any(|run| run.len() >= MIN_DIGITS_OF_KEY)
    })
}

/// Collects the strings and numbers in a value.
fn collect_texts(value: &DeValue<'_>, found: &mut Vec<String>) {
    match value {
        DeValue::String(text) => found.push(text.to_string()),
        DeValue::Integer(number) => found.push(number.as_str().to_owned()),
        DeValue::Float(number) => found.push(number.as_str().to_owned()),
        DeValue::Array(items) => items.iter().for_each(|item| collect_texts(item.get_ref(), found)),
        DeValue::Table(table) => table.values().for_each(|item| collect_texts(item.get_ref(), found)),
        DeValue::Boolean(_) | DeValue::Datetime(_) => {}
    }
}

fn write_value(out: &mut String, value: &DeValue<'_>) {
    match value {
        DeValue::String(text) => write_quoted(out, text),
        DeValue::Integer(number) => out.push_str(&number.to_string()),
        DeValue::Float(number) => out.push_str(number.as_str()),
        DeValue::Boolean(flag) => out.push_str(if *flag { "true" } else { "false" }),
        DeValue::Datetime(time) => out.push_str(&time.to_string()),
        DeValue::Array(items) => {
            out.push('[');
            for (number, item) in items.iter().enumerate() {
                out.push_str(if number == 0 { "" } else { ", " });
                write_value(out, item.get_ref());
            }
            out.push(']');
        }
        // A key with disclosure `Open` never has a table as its value. If there is one nevertheless, hide it.
        DeValue::Table(_) => write_quoted(out, LEFT_OUT_MARK),
    }
}

fn write_quoted(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            character if character.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(character))),
            character => out.push(character),
        }
    }
    out.push('"');
}

/// Returns a key as TOML writes it.
fn key_as_toml(name: &str) -> std::borrow::Cow<'_, str> {
    let bare = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_' || octet == b'-';
    // An operator may have written a secret in place of the name of a config key. Hide such a name.
    if name.len() >= MIN_DIGITS_OF_KEY && name.bytes().all(|octet| octet.is_ascii_hexdigit()) {
        return "left_out".into();
    }
    if !name.is_empty() && name.bytes().all(bare) {
        return name.into();
    }
    let mut quoted = String::new();
    write_quoted(&mut quoted, name);
    quoted.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list has every secret key of the config. The test fails if a developer adds a secret key without
    /// adding it here.
    #[test]
    fn bundle_redacts_values_of_secret_config_keys() {
        let expected = [
            "auth.key",
            "auth.former.key",
            "station.private_key_file",
            "station.http_tokens",
            "auth.preshared_key_file",
            "auth.key_file",
            "auth.former.key_file",
            "mobile_router.preshared_key_file",
            "mobile_node.preshared_key_file",
            "security.tickets",
        ];
        assert_eq!(secret_keys(), expected);
    }

    /// If messages are refused, a maintainer first needs to know whether they are authenticated. So the
    /// support bundle shows the word `none`.
    #[test]
    fn bundle_shows_auth_none_instead_of_redacting_it() {
        let text = "[mobile_router]\nauth = \"none\"\n[[home_agent.mobile_router]]\nauth = \"swordfish\"\n";
        let disclosed = disclose_config(text).expect("TOML");
        assert!(
            disclosed.config_text.contains("[mobile_router]\nauth = \"none\"\n"),
            "{}",
            disclosed.config_text
        );
        assert!(!disclosed.config_text.contains("swordfish"), "{}", disclosed.config_text);
        assert_eq!(disclosed.left_out_keys, ["home_agent.mobile_router.auth"]);
        assert_eq!(disclosed.removed_secrets, ["swordfish"]);
    }

    #[test]
    fn bundled_config_keeps_all_public_values_and_parses() {
        let text = r#"
# an old key: ffeeddccbbaa99887766554433221100
[station]
name = "a"
state_dir = "/a \"b\"\\\u0001"
http = "[::1]:8440"
[dataplane]
path = "tun"
[mobile_node]
home_address = "2001:db8::2"
home_prefix = "2001:db8::/64"
home_agent = "2001:db8::1"
auth = { spi = 0x12c, key = "000102030405060708090a0b0c0d0e0f", replay = "timestamp" }
[[mobile_node.uplink]]
interface = "wlan0"
signal = { good = -60, poor = -80 }
[[mobile_node.uplink]]
interface = "wwan0"
"#;
        let disclosed = disclose_config(text).expect("TOML");
        assert_eq!(disclosed.left_out_keys, ["auth.key"]);
        assert_eq!(disclosed.removed_secrets, ["000102030405060708090a0b0c0d0e0f"]);
        for secret in ["0001020304", "ffeedd", "old key"] {
            assert!(!disclosed.config_text.contains(secret), "{}", disclosed.config_text);
        }
        let again = disclosed.config_text.replace(LEFT_OUT_MARK, "000102030405060708090a0b0c0d0e0f");
        let read = |text: &str| super::super::Config::parse(text, "c.toml").expect("a config");
        assert_eq!(read(&again), read(text));
    }

    #[test]
    fn bundle_redacts_former_keys() {
        let text = r#"
[[home_agent.mobile_router]]
home_address = "2001:db8::2"
auth = { spi = 301, key_file = "new.key", former = [
    { spi = 300, key = "000102030405060708090a0b0c0d0e0f" },
    { spi = 299, key_file = "old.key" },
] }
"#;
        let disclosed = disclose_config(text).expect("TOML");
        assert!(!disclosed.config_text.contains("00010203"), "{}", disclosed.config_text);
        assert!(
            disclosed.config_text.contains("spi = 300") && disclosed.config_text.contains("spi = 299"),
            "{}",
            disclosed.config_text
        );
        assert_eq!(disclosed.left_out_keys, ["auth.former.key"]);
        assert_eq!(disclosed.removed_secrets, ["000102030405060708090a0b0c0d0e0f"]);
        assert_eq!(disclosed.secret_files, ["new.key", "old.key"].map(PathBuf::from));
    }

    #[test]
    fn bundle_redacts_values_of_unknown_config_keys() {
        let text = r#"
passwort = "geheim"
[station]
name = "00112233445566778899aabbccddeeff"
secret = "geheim"
[broker]
user = "geheim"
inner = { also = ["geheim"] }
[home_agent]
auth = { key_file = "/etc/carnet/a.key" }
[[home_agent.mobile_router]]
auth = { kee = "geheim", key_file = "b.key" }
00112233445566778899aabbccddeeff = "geheim"
"#;
        let disclosed = disclose_config(text).expect("TOML");
        assert!(
            !disclosed.config_text.contains("geheim") && !disclosed.config_text.contains("0011"),
            "{}",
            disclosed.config_text
        );
        assert_eq!(disclosed.secret_files, [PathBuf::from("b.key")]);
        assert!(disclose_config("a = ").is_none());
    }
}
