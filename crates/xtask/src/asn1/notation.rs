//! Types in the notation of `crates/its/src/uper/macros.rs`, formatted here because rustfmt skips macros.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::types::{Asn1Type, Bounds, Component, Kind};

/// Values for the head of a generated file: the module, its standard, and its folder.
pub struct ModuleHeader<'a> {
    pub module: &'a str,
    pub source: &'a str,
    pub folder: &'a str,
}

/// Longest line of a generated file in columns.
const LINE_WIDTH: usize = 110;

/// Returns the text of a type for one of the macros; `None` if the type belongs to another macro.
type EntryWriter = fn(&Asn1Type) -> Option<String>;

/// Macros in the order in which a generated file calls them.
const MACRO_ENTRIES: [(&str, EntryWriter); 13] = [
    ("integers", integer_entry),
    ("enumerated", |it| enumerated_entry(it, false)),
    ("extensible_enumerated", |it| enumerated_entry(it, true)),
    ("bit_strings", |it| bit_string_entry(it, false)),
    ("variable_bit_strings", |it| bit_string_entry(it, true)),
    ("octet_strings", octet_string_entry),
    ("strings", string_entry),
    ("lists", list_entry),
    ("sequences", |it| sequence_entry(it, false)),
    ("extensible_sequences", |it| sequence_entry(it, true)),
    ("choices", |it| choice_entry(it, false)),
    ("extensible_choices", |it| choice_entry(it, true)),
    ("numbered", numbered_choice_entry),
];

/// Types that Rust code uses as keys of maps, or compares by order.
const ORDERED_TYPES: [&str; 1] = ["ActionId"];

/// Returns the text of a generated file.
pub fn write_module(
    head: &ModuleHeader<'_>,
    types: &[Asn1Type],
    imports: &[String],
    words: &BTreeMap<String, String>,
) -> String {
    let mut text = format!(
        "//! `{module}` (ETSI {source}).\n//!\n\
         //! Generated from `asn1/{folder}/{module}.asn` by `cargo xtask gen-asn1`.\n\
         //! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.\n\n",
        module = head.module,
        source = head.source,
        folder = head.folder,
    );
    for import in imports {
        let _ = writeln!(text, "use super::{import}::*;");
    }
    text.push_str("use crate::uper::macros::*;\n");
    for it in types {
        if let Kind::Alias(ty) = &it.kind {
            text.push('\n');
            text.push_str(&documentation_comment(it, head.module, words, ""));
            let _ = writeln!(text, "pub type {} = {ty};", it.name);
        }
    }
    for (name, entry) in MACRO_ENTRIES {
        let entries: Vec<String> = types
            .iter()
            .filter_map(|it| Some((it, entry(it)?)))
            .map(|(it, entry)| {
                format!(
                    "{}{}    {entry}\n",
                    documentation_comment(it, head.module, words, "    "),
                    derived_traits(it)
                )
            })
            .collect();
        if !entries.is_empty() {
            let _ = write!(text, "\n{name}! {{\n{}}}\n", entries.concat());
        }
    }
    text
}

/// Returns a number with separated thousands.
pub fn group_digits(number: i128) -> String {
    let plain = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (place, digit) in plain.chars().enumerate() {
        if place > 0 && (plain.len() - place).is_multiple_of(3) && plain.len() > 4 {
            text.push('_');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// Returns the doc comment of a type: this project's words if there are any, otherwise the first sentences of
/// the comment in the ASN.1 module.
fn documentation_comment(
    it: &Asn1Type,
    module: &str,
    words: &BTreeMap<String, String>,
    indent: &str,
) -> String {
    let mut said = words.get(&it.name).cloned().unwrap_or_else(|| first_paragraph(&it.comment));
    if said.is_empty() {
        said = format!("`{}` of `{module}`.", it.asn1_name);
    }
    let mut text = String::new();
    let mut line = String::new();
    for word in said.split_whitespace() {
        if !line.is_empty() && indent.len() + 5 + line.len() + word.len() > LINE_WIDTH {
            let _ = writeln!(text, "{indent}/// {line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(text, "{indent}/// {line}");
    text
}

/// Returns the first paragraph of a comment in an ASN.1 module, in a form for rustdoc.
fn first_paragraph(comment: &str) -> String {
    // A comment with a link was written by this generator, so it needs no change.
    if comment.contains("[`") {
        return comment.to_owned();
    }
    let mut said = String::new();
    for line in comment.lines() {
        let line = line.trim().trim_start_matches(['*', '-']).trim();
        let over = line.is_empty() || line.starts_with("The value") || line.starts_with("It shall");
        if line.starts_with('@') || (over && !said.is_empty()) {
            break;
        }
        if !over {
            said.push(' ');
            said.push_str(line);
        }
    }
    let mut plain = String::new();
    for letter in said.trim().chars() {
        if matches!(letter, '[' | ']' | '<' | '>' | '*' | '_' | '`') {
            plain.push('\\');
        }
        plain.push(letter);
    }
    plain
}

fn derived_traits(it: &Asn1Type) -> String {
    // The macros of all kinds except sequences and choices derive these traits themselves.
    let by_macro = !matches!(it.kind, Kind::Sequence { .. } | Kind::Choice { .. });
    match (it.is_copy && !by_macro, ORDERED_TYPES.contains(&it.name.as_str())) {
        (true, true) => "    #[derive(Copy, PartialOrd, Ord, Hash)]\n".to_owned(),
        (true, false) => "    #[derive(Copy, Hash)]\n".to_owned(),
        _ => String::new(),
    }
}

/// Returns the smallest integer type of Rust for these bounds.
fn integer_type(bounds: Bounds) -> &'static str {
    let Bounds { least, most, extensible } = bounds;
    // Do not use a small type for an extensible constraint, because a later release may have larger values.
    let small = !extensible;
    match least {
        0.. if small && most <= u8::MAX.into() => "u8",
        0.. if small && most <= u16::MAX.into() => "u16",
        0.. if most <= u32::MAX.into() => "u32",
        0.. => "u64",
        _ if small && least >= i8::MIN.into() && most <= i8::MAX.into() => "i8",
        _ if small && least >= i16::MIN.into() && most <= i16::MAX.into() => "i16",
        _ if least >= i32::MIN.into() && most <= i32::MAX.into() => "i32",
        _ => "i64",
    }
}

fn range_text(bounds: Bounds) -> String {
    let mark = if bounds.extensible { " [extensible]" } else { "" };
    format!("{}..={}{mark}", group_digits(bounds.least), group_digits(bounds.most))
}

/// Returns items in braces, on one line if they fit.
fn braced_list(start: &str, items: &[String], end: &str) -> String {
    let one = format!("{start} {{ {} }}{end}", items.join(", "));
    if one.len() + 4 <= LINE_WIDTH && !items.is_empty() {
        return one;
    }
    if items.is_empty() {
        return format!("{start} {{}}{end}");
    }
    let lines: String = items.iter().map(|item| format!("        {item},\n")).collect();
    format!("{start} {{\n{lines}    }}{end}")
}

fn integer_entry(it: &Asn1Type) -> Option<String> {
    let Kind::Integer { bounds, named } = &it.kind else { return None };
    let within = |value: i128| (bounds.least..=bounds.most).contains(&value);
    let unavailable = named.iter().find(|(name, value)| name == "UNAVAILABLE" && within(*value));
    let default = match (it.name.as_str(), unavailable) {
        // Protocol version 2 is that of the messages that carnet sends.
        ("ProtocolVersion", _) => 2,
        // 600 s is the default validity of a DENM that has no such value.
        ("ValidityDuration", _) => 600,
        (_, Some((_, value))) => *value,
        _ if within(0) => 0,
        _ => bounds.least,
    };
    let start = format!(
        "{}({}) {}, default {}",
        it.name,
        integer_type(*bounds),
        range_text(*bounds),
        group_digits(default)
    );
    let constants: Vec<String> = named
        .iter()
        .filter(|(_, value)| bounds.extensible || within(*value))
        .map(|(name, value)| format!("{name} = {}", group_digits(*value)))
        .collect();
    if constants.is_empty() {
        return Some(format!("{start};"));
    }
    Some(braced_list(&start, &constants, ";"))
}

fn enumerated_entry(it: &Asn1Type, extensible: bool) -> Option<String> {
    let Kind::Enumerated { root, additions } = &it.kind else { return None };
    if additions.is_some() != extensible {
        return None;
    }
    let default = root.iter().position(|name| name == "Unavailable").unwrap_or_default();
    let names: Vec<String> = root
        .iter()
        .enumerate()
        .map(|(place, name)| if place == default { format!("#[default] {name}") } else { name.clone() })
        .collect();
    let first = braced_list(&it.name, &names, "");
    Some(match additions {
        Some(later) if !later.is_empty() => braced_list(&first, later, ""),
        _ => first,
    })
}

fn bit_string_entry(it: &Asn1Type, variable: bool) -> Option<String> {
    let Kind::BitString { size, named } = &it.kind else { return None };
    if variable != (size.least != size.most || size.extensible) {
        return None;
    }
    let number = match size.most {
        ..=8 => "u8",
        9..=16 => "u16",
        17..=32 => "u32",
        _ => "u64",
    };
    if variable {
        return Some(format!("{}({number}) {};", it.name, range_text(*size)));
    }
    let constants: Vec<String> = named.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    Some(braced_list(&format!("{}({number}) {}", it.name, size.most), &constants, ""))
}

fn octet_string_entry(it: &Asn1Type) -> Option<String> {
    let Kind::OctetString { size } = &it.kind else { return None };
    Some(format!("{} {};", it.name, range_text(*size)))
}

fn string_entry(it: &Asn1Type) -> Option<String> {
    let Kind::Text { alphabet, size } = &it.kind else { return None };
    Some(format!("{} {alphabet} {};", it.name, range_text(*size)))
}

fn list_entry(it: &Asn1Type) -> Option<String> {
    let Kind::List { item, size } = &it.kind else { return None };
    Some(format!("{}[{item}] {};", it.name, range_text(*size)))
}

fn component_text(it: &Component) -> String {
    let ty = if it.optional { format!("Option<{}>", it.type_name) } else { it.type_name.clone() };
    match &it.default {
        Some(value) => format!("{}: {ty} = {value}", it.name),
        None => format!("{}: {ty}", it.name),
    }
}

fn sequence_entry(it: &Asn1Type, extensible: bool) -> Option<String> {
    let Kind::Sequence { root, additions } = &it.kind else { return None };
    if additions.is_some() != extensible {
        return None;
    }
    let first = braced_list(&it.name, &root.iter().map(component_text).collect::<Vec<_>>(), "");
    // An addition is optional, because an earlier release lacks it.
    let addition = |it: &Component| format!("{}: {}", it.name, it.type_name);
    Some(match additions {
        Some(later) if !later.is_empty() => {
            braced_list(&first, &later.iter().map(addition).collect::<Vec<_>>(), "")
        }
        _ => first,
    })
}

fn choice_entry(it: &Asn1Type, extensible: bool) -> Option<String> {
    let Kind::Choice { root, additions } = &it.kind else { return None };
    if additions.is_some() != extensible {
        return None;
    }
    let alternative = |(name, ty): &(String, String)| format!("{name}({ty})");
    let first = braced_list(&it.name, &root.iter().map(alternative).collect::<Vec<_>>(), "");
    Some(match additions {
        Some(later) if !later.is_empty() => {
            braced_list(&first, &later.iter().map(alternative).collect::<Vec<_>>(), "")
        }
        _ => first,
    })
}

fn numbered_choice_entry(it: &Asn1Type) -> Option<String> {
    let Kind::Numbered { number, values } = &it.kind else { return None };
    let values: Vec<String> =
        values.iter().map(|(number, ty)| format!("{ty}({ty}) = {}", group_digits(*number))).collect();
    Some(braced_list(&format!("{}({number})", it.name), &values, ""))
}
