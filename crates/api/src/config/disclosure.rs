//! A config as somebody else may read it: without what it keeps secret.
//!
//! What may be shown is listed, not what may not: the kinds of values of the [schema] that give nothing away.
//! The value of any other kind, of a key that nobody knows, and every long run of hexadecimal digits is left
//! out. So are comments, where an old key may still stand. Of files only the paths are shown; those that hold
//! secrets are told, so that whoever shows more than the config can take care that nothing of them is in it.

use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::schema::{self, Section};

/// What stands where something was left out.
pub const LEFT_OUT: &str = "LEFT OUT";

/// So many hexadecimal digits in a row are a key, whatever the value is said to be. (Names of certificates
/// have 16.)
const DIGITS_OF_A_KEY: usize = 32;

/// Kinds of values that may be shown, beside those that begin as in [`OPEN_BEGINNINGS`].
const OPEN: [&str; 30] = [
    "URL",
    "IPv4 address",
    "IPv4 address or array",
    "IPv6 address",
    "address",
    "address and port",
    "address with a port",
    "address, array of addresses or \"discover\"",
    "array of interfaces",
    "array of link-layer addresses",
    "array of names of certificates",
    "array of paths",
    "array of ports",
    "array of prefixes",
    "boolean",
    "coordinates",
    "duration",
    "duration or \"off\"",
    "interface",
    "length",
    "lifetime",
    "multicast group",
    "name",
    "path",
    "position",
    "prefix",
    "radio",
    "role",
    "station type",
    "volume",
];

/// Numbers, and words of a list.
const OPEN_BEGINNINGS: [&str; 4] = ["integer, ", "number, ", "array of integers, ", "\""];

/// Words that kinds of tables may have in the place of the table, and that tell no secret: that there is
/// none.
const OPEN_WORDS: [(&str, &str); 2] = [("auth", "none"), ("auth", "ipsec")];

/// Kinds of values that are nobody else's business. Those of neither list are left out as well; a test asks
/// for a decision.
const SECRET: [&str; 1] = ["32 hexadecimal digits"];

/// Paths of files, or of folders with files, that hold secrets.
const SECRET_FILES: [&str; 4] =
    ["auth.key_file", "auth.former.key_file", "station.http_tokens", "security.tickets"];

/// A config without its secrets.
#[derive(Debug, Default)]
pub struct Disclosed {
    /// The config, in TOML.
    pub text: String,
    /// Keys whose value was left out.
    pub left_out: Vec<String>,
    /// These values: for whoever wants to be sure that they stand nowhere else either.
    pub secrets: Vec<String>,
    /// Files and folders that hold secrets, as the config names them.
    pub secret_files: Vec<PathBuf>,
}

/// The keys of a config that hold a secret, or name a file that does.
pub fn secret_keys() -> Vec<String> {
    let inside = schema::SECTIONS.iter().flat_map(|section| {
        let secret = section.keys.iter().filter(|key| SECRET.contains(&key.kind));
        secret.map(|key| path_of(section, key.name))
    });
    inside.chain(SECRET_FILES.map(str::to_owned)).collect()
}

/// Leaves the secrets of a config out; `None` where it is no TOML, and nothing of it can be shown.
pub fn disclose(text: &str) -> Option<Disclosed> {
    let document = DeTable::parse(text).ok()?;
    let mut disclosed = Disclosed::default();
    let mut out = String::new();
    disclosed.table(&mut out, Some(&schema::ROOT), "", document.get_ref());
    disclosed.text = out;
    Some(disclosed)
}

fn path_of(section: &Section, name: &str) -> String {
    if section.path.is_empty() { name.to_owned() } else { format!("{}.{name}", section.path) }
}

fn is_open(kind: &str) -> bool {
    OPEN.contains(&kind) || OPEN_BEGINNINGS.iter().any(|beginning| kind.starts_with(beginning))
}

/// Whether it is one of [`OPEN_WORDS`].
fn is_open_word(kind: &str, value: &DeValue<'_>) -> bool {
    matches!(value, DeValue::String(text) if OPEN_WORDS.contains(&(kind, &**text)))
}

/// The table that a key of a table opens.
fn section_below(section: &Section, name: &str, kind: &str) -> Option<&'static Section> {
    let path = match kind {
        "auth" => "auth".to_owned(),
        // A mobile node's uplinks are a mobile router's.
        _ => path_of(section, name).replacen("mobile_node.", "mobile_router.", 1),
    };
    schema::SECTIONS.into_iter().find(|section| section.path == path)
}

/// Whether a value is a table, or an array of such, that stands under a heading of its own.
fn is_headed(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(items) => !items.is_empty() && items.iter().all(|item| item.get_ref().is_table()),
        _ => false,
    }
}

impl Disclosed {
    /// Values first, then the tables below: a heading holds until the next one.
    fn table(
        &mut self,
        out: &mut String,
        section: Option<&'static Section>,
        heading: &str,
        table: &DeTable<'_>,
    ) {
        let entries = || table.iter().map(|(name, value)| (&**name.get_ref(), value.get_ref()));
        for (name, value) in entries().filter(|(_, value)| !is_headed(value)) {
            out.push_str(&format!("{} = ", key(name)));
            self.value(out, section, name, value);
            out.push('\n');
        }
        for (name, value) in entries().filter(|(_, value)| is_headed(value)) {
            let kind = kind_of(section, name);
            let below = section.and_then(|section| section_below(section, name, kind));
            let heading =
                if heading.is_empty() { key(name).into_owned() } else { format!("{heading}.{}", key(name)) };
            match value {
                DeValue::Table(table) => {
                    out.push_str(&format!("\n[{heading}]\n"));
                    self.table(out, below, &heading, table);
                }
                DeValue::Array(items) => {
                    for item in items {
                        if let DeValue::Table(table) = item.get_ref() {
                            out.push_str(&format!("\n[[{heading}]]\n"));
                            self.table(out, below, &heading, table);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn value(
        &mut self,
        out: &mut String,
        section: Option<&'static Section>,
        name: &str,
        value: &DeValue<'_>,
    ) {
        let path = section.map_or(name.to_owned(), |section| path_of(section, name));
        if SECRET_FILES.contains(&path.as_str())
            && let DeValue::String(file) = value
        {
            self.secret_files.push(PathBuf::from(&**file));
        }
        let kind = kind_of(section, name);
        if is_open_word(kind, value) || is_open(kind) && !has_key(value) {
            write(out, value);
        } else {
            strings(value, &mut self.secrets);
            self.left_out.push(path);
            out.push_str(&format!("\"{LEFT_OUT}\""));
        }
    }
}

fn kind_of(section: Option<&'static Section>, name: &str) -> &'static str {
    let known = section.and_then(|section| section.keys.iter().find(|key| key.name == name));
    known.map_or("unknown", |key| key.kind)
}

/// Whether something in it looks like a key.
fn has_key(value: &DeValue<'_>) -> bool {
    let mut texts = Vec::new();
    strings(value, &mut texts);
    texts.iter().any(|text| {
        let mut runs = text.split(|character: char| !character.is_ascii_hexdigit());
        runs.any(|run| run.len() >= DIGITS_OF_A_KEY)
    })
}

/// The strings and numbers in a value.
fn strings(value: &DeValue<'_>, found: &mut Vec<String>) {
    match value {
        DeValue::String(text) => found.push(text.to_string()),
        DeValue::Integer(number) => found.push(number.as_str().to_owned()),
        DeValue::Float(number) => found.push(number.as_str().to_owned()),
        DeValue::Array(items) => items.iter().for_each(|item| strings(item.get_ref(), found)),
        DeValue::Table(table) => table.values().for_each(|item| strings(item.get_ref(), found)),
        DeValue::Boolean(_) | DeValue::Datetime(_) => {}
    }
}

fn write(out: &mut String, value: &DeValue<'_>) {
    match value {
        DeValue::String(text) => quote(out, text),
        DeValue::Integer(number) => out.push_str(&number.to_string()),
        DeValue::Float(number) => out.push_str(number.as_str()),
        DeValue::Boolean(flag) => out.push_str(if *flag { "true" } else { "false" }),
        DeValue::Datetime(time) => out.push_str(&time.to_string()),
        DeValue::Array(items) => {
            out.push('[');
            for (number, item) in items.iter().enumerate() {
                out.push_str(if number == 0 { "" } else { ", " });
                write(out, item.get_ref());
            }
            out.push(']');
        }
        // No open kind is a table.
        DeValue::Table(_) => quote(out, LEFT_OUT),
    }
}

fn quote(out: &mut String, text: &str) {
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

/// A key as TOML writes it.
fn key(name: &str) -> std::borrow::Cow<'_, str> {
    let bare = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_' || octet == b'-';
    // A name that nobody knows may be a key in the wrong place.
    if name.len() >= DIGITS_OF_A_KEY && name.bytes().all(|octet| octet.is_ascii_hexdigit()) {
        return "left_out".into();
    }
    if !name.is_empty() && name.bytes().all(bare) {
        return name.into();
    }
    let mut quoted = String::new();
    quote(&mut quoted, name);
    quoted.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds of values that are tables of their own.
    const TABLES: [&str; 4] = ["table", "tables", "auth", "signal"];

    /// Who adds a kind of value, or a path, has to say whether others may see it.
    #[test]
    fn every_kind_of_value_is_open_or_secret_or_a_table() {
        // Paths of what holds no secret.
        const OPEN_FILES: [&str; 8] = [
            "station.socket",
            "station.state_dir",
            "station.record",
            "station.http_pages",
            "mobile_router.uplink.signal_file",
            "security.roots",
            "security.authorities",
            "geonet.position",
        ];
        let mut files = Vec::new();
        for section in schema::SECTIONS {
            for key in section.keys {
                let path = path_of(section, key.name);
                let groups = [is_open(key.kind), SECRET.contains(&key.kind), TABLES.contains(&key.kind)];
                let found = groups.into_iter().filter(|found| *found).count();
                assert_eq!(
                    found, 1,
                    "{path}: kind {:?} is to be in one of OPEN, SECRET and TABLES",
                    key.kind
                );
                if TABLES.contains(&key.kind) {
                    assert!(section_below(section, key.name, key.kind).is_some(), "{path} has no section");
                }
                if key.kind.contains("path") || key.kind == "position" {
                    files.push(path);
                }
            }
        }
        for path in files {
            let known = [OPEN_FILES.contains(&path.as_str()), SECRET_FILES.contains(&path.as_str())];
            assert_eq!(known.into_iter().filter(|found| *found).count(), 1, "does {path} hold secrets?");
        }
    }

    /// Whether messages are authenticated is the first thing to know where they are refused.
    #[test]
    fn that_there_is_no_key_is_shown_and_no_other_word_in_its_place() {
        let text = "[mobile_router]\nauth = \"none\"\n[[home_agent.mobile_router]]\nauth = \"swordfish\"\n";
        let disclosed = disclose(text).expect("TOML");
        assert!(disclosed.text.contains("[mobile_router]\nauth = \"none\"\n"), "{}", disclosed.text);
        assert!(!disclosed.text.contains("swordfish"), "{}", disclosed.text);
        assert_eq!(disclosed.left_out, ["home_agent.mobile_router.auth"]);
        assert_eq!(disclosed.secrets, ["swordfish"]);
    }

    #[test]
    fn what_is_no_secret_is_all_there_and_can_be_read_again() {
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
        let disclosed = disclose(text).expect("TOML");
        assert_eq!(disclosed.left_out, ["auth.key"]);
        assert_eq!(disclosed.secrets, ["000102030405060708090a0b0c0d0e0f"]);
        for secret in ["0001020304", "ffeedd", "old key"] {
            assert!(!disclosed.text.contains(secret), "{}", disclosed.text);
        }
        let again = disclosed.text.replace(LEFT_OUT, "000102030405060708090a0b0c0d0e0f");
        let read = |text: &str| super::super::Config::parse(text, "c.toml").expect("a config");
        assert_eq!(read(&again), read(text));
    }

    #[test]
    fn former_keys_are_secret_as_well() {
        let text = r#"
[[home_agent.mobile_router]]
home_address = "2001:db8::2"
auth = { spi = 301, key_file = "new.key", former = [
    { spi = 300, key = "000102030405060708090a0b0c0d0e0f" },
    { spi = 299, key_file = "old.key" },
] }
"#;
        let disclosed = disclose(text).expect("TOML");
        assert!(!disclosed.text.contains("00010203"), "{}", disclosed.text);
        assert!(
            disclosed.text.contains("spi = 300") && disclosed.text.contains("spi = 299"),
            "{}",
            disclosed.text
        );
        assert_eq!(disclosed.left_out, ["auth.former.key"]);
        assert_eq!(disclosed.secrets, ["000102030405060708090a0b0c0d0e0f"]);
        assert_eq!(disclosed.secret_files, ["new.key", "old.key"].map(PathBuf::from));
    }

    #[test]
    fn what_nobody_knows_is_left_out() {
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
        let disclosed = disclose(text).expect("TOML");
        assert!(!disclosed.text.contains("geheim") && !disclosed.text.contains("0011"), "{}", disclosed.text);
        assert_eq!(disclosed.secret_files, [PathBuf::from("b.key")]);
        assert!(disclose("a = ").is_none());
    }
}
