//! Generates the JSON Schema (2020-12) of Rust types from their source. A schema describes the JSON that
//! serde writes for a struct or an enum, and has the comments of the type.
//!
//! The module supports only the Rust constructs that the API's types use. It refuses all others, so that the
//! test fails on a new construct.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use syn::punctuated::Punctuated;
use syn::{Attribute, Fields, GenericArgument, Item, Meta, PathArguments, Token, Type, Variant};

/// Returns the bounds of a field that the handlers check although the Rust type does not have them. The
/// schema gets these bounds. The API answers a request outside of them with 422.
fn bounds_of_field(name: &str, field: &str) -> Value {
    match (name, field) {
        ("AreaRequest", "name") => {
            json!({"minLength": 1, "maxLength": 64, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"})
        }
        ("AreaRequest", "distance_a_m" | "distance_b_m") | ("GnCircle", "radius_m") => json!({"minimum": 1}),
        ("AreaRequest", "angle_deg") => json!({"maximum": 359}),
        ("AreaRequest", "lifetime_ms") => json!({"minimum": 1, "maximum": 31_622_400_000_u64}),
        ("GnPlace" | "GnCircle", "latitude") => json!({"minimum": -90, "maximum": 90}),
        ("GnPlace" | "GnCircle", "longitude") => json!({"minimum": -180, "maximum": 180}),
        ("GnPingRequest", "count") => json!({"minimum": 1, "maximum": 65_535}),
        ("GnPingRequest", "interval_ms" | "timeout_ms") => json!({"minimum": 1, "maximum": 3_600_000}),
        ("GnSendRequest", "hop_limit") => json!({"minimum": 1}),
        ("GnSendRequest", "lifetime_ms") => json!({"minimum": 50, "maximum": 600_000}),
        _ => json!({}),
    }
}

/// Returns the schema of a type that is a string in JSON; `None` for any other type.
fn string_schema(name: &str) -> Option<Value> {
    let gn_address = json!({"type": "string", "pattern": "^[0-9a-fA-F]{4}(:[0-9a-fA-F]{4}){3}$"});
    let mac = json!({"type": "string", "pattern": "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$"});
    let station = || json!([gn_address, mac, {"type": "string", "format": "ipv6"}]);
    Some(match name {
        "String" => json!({"type": "string"}),
        "Ipv4Addr" => json!({"type": "string", "format": "ipv4"}),
        "Ipv6Addr" => json!({"type": "string", "format": "ipv6"}),
        "IpAddr" => {
            json!({"anyOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}]})
        }
        "Cause" => {
            let names = carnet_api::model::Cause::CAUSE_NAMES.map(|(name, _)| name);
            json!({"anyOf": [
                {"type": "integer", "minimum": 0, "maximum": u8::MAX},
                {"type": "string", "enum": names.as_slice()},
            ]})
        }
        "Ipv4Net" => json!({"type": "string", "pattern": "^[0-9.]+/[0-9]{1,2}$"}),
        "Ipv6Net" => json!({"type": "string", "pattern": "^[0-9a-f:.]+/[0-9]{1,3}$"}),
        "Octets" => json!({"type": "string", "pattern": "^([0-9a-fA-F]{2})*$"}),
        "GnAddress" => gn_address,
        "MacAddress" => mac,
        "GnStation" => json!({"anyOf": station()}),
        "GnTarget" => {
            let mut kinds = station();
            kinds.as_array_mut()?.push(json!({"type": "string", "pattern": "^area:.+$"}));
            json!({"anyOf": kinds})
        }
        _ => return None,
    })
}

fn integer_schema(name: &str) -> Option<Value> {
    let (low, high) = match name {
        "u8" => (0, u64::from(u8::MAX)),
        "u16" => (0, u64::from(u16::MAX)),
        "u32" => (0, u64::from(u32::MAX)),
        "u64" | "usize" => (0, u64::MAX),
        "i8" => (i64::from(i8::MIN), i8::MAX as u64),
        "i32" => (i64::from(i32::MIN), i32::MAX as u64),
        _ => return None,
    };
    Some(json!({"type": "integer", "minimum": low, "maximum": high}))
}

/// The serde attributes of a type, a variant or a field.
#[derive(Default)]
struct SerdeAttributes {
    rename: Option<String>,
    rename_all: Option<String>,
    tag: Option<String>,
    /// Whether the key may be absent in a request.
    default: bool,
    /// Whether the key may be absent in an answer.
    may_be_absent: bool,
    /// Whether the key of an `Option` must be present.
    must_be_present: bool,
    denies_unknown_keys: bool,
}

impl SerdeAttributes {
    fn of_attributes(attributes: &[Attribute]) -> SerdeAttributes {
        let mut serde = SerdeAttributes::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
            let metas = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            for meta in metas.expect("serde's attributes") {
                let name = meta.path().get_ident().map(ToString::to_string).unwrap_or_default();
                let text = match &meta {
                    Meta::NameValue(pair) => match &pair.value {
                        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
                        _ => None,
                    },
                    _ => None,
                };
                match name.as_str() {
                    "rename" => serde.rename = text,
                    "rename_all" => serde.rename_all = text,
                    "tag" => serde.tag = text,
                    "default" => serde.default = true,
                    "skip_serializing_if" => serde.may_be_absent = true,
                    "deserialize_with" if text.as_deref() == Some("deserialize_present_option") => {
                        serde.must_be_present = true
                    }
                    "deny_unknown_fields" => serde.denies_unknown_keys = true,
                    other => panic!("serde({other}): say here what it does to the schema"),
                }
            }
        }
        serde
    }

    /// Returns the JSON name of a variant.
    fn variant_name(&self, name: &str) -> String {
        let between = match self.rename_all.as_deref() {
            Some("snake_case") => '_',
            Some("kebab-case") => '-',
            other => panic!("rename_all {other:?}: say here what it does to a name"),
        };
        let mut words = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !words.is_empty() {
                words.push(between);
            }
            words.extend(letter.to_lowercase());
        }
        words
    }
}

/// Returns the doc comment as plain text, without examples and links.
fn comment_text(attributes: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        let Meta::NameValue(pair) = &attribute.meta else { continue };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(line), .. }) = &pair.value else { continue };
        let line = line.value().trim().to_owned();
        if line.starts_with("```") {
            break;
        }
        lines.push(line);
    }
    lines.join(" ").trim().replace("[`", "`").replace("`]", "`")
}

/// All types of the sources, and the schemas of those that another type or a request refers to.
pub struct ApiTypes {
    items_by_name: BTreeMap<String, Item>,
    /// Types that the bodies of requests contain, directly or as a part. In these types, a key with a default
    /// is optional.
    types_in_requests: BTreeSet<String>,
    schemas: BTreeMap<String, Value>,
}

impl ApiTypes {
    /// Reads all types of these sources.
    pub fn read_sources(sources: &[String]) -> ApiTypes {
        let files = sources.iter().map(|source| syn::parse_file(source).expect("a source file"));
        let named = files.flat_map(|file| file.items).filter_map(|item| {
            let name = match &item {
                Item::Struct(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Type(item) => &item.ident,
                _ => return None,
            };
            Some((name.to_string(), item))
        });
        ApiTypes {
            items_by_name: named.collect(),
            types_in_requests: BTreeSet::new(),
            schemas: BTreeMap::new(),
        }
    }

    /// Marks the types of request bodies.
    pub fn note_request_types<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let mut open: Vec<String> = names.map(str::to_owned).collect();
        while let Some(name) = open.pop() {
            let Some(item) = self.items_by_name.get(&name) else { continue };
            if !self.types_in_requests.insert(name) {
                continue;
            }
            let fields: Vec<&Fields> = match item {
                Item::Struct(item) => vec![&item.fields],
                Item::Enum(item) => item.variants.iter().map(|variant| &variant.fields).collect(),
                _ => Vec::new(),
            };
            for field in fields.into_iter().flatten() {
                let (name, arguments) = generic_parts(&field.ty);
                open.extend(arguments.iter().map(|inner| generic_parts(inner).0));
                open.push(name);
            }
        }
    }

    /// Returns a reference to a named type, and creates its schema.
    pub fn reference_to(&mut self, name: &str) -> Value {
        if !self.schemas.contains_key(name) {
            self.schemas.insert(name.to_owned(), Value::Null);
            let schema = match self.items_by_name.get(name).cloned() {
                Some(item) => self.schema_of_item(name, &item),
                None => string_schema(name)
                    .unwrap_or_else(|| panic!("{name} is declared in no file that is read")),
            };
            self.schemas.insert(name.to_owned(), schema);
        }
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    pub fn into_schemas(self) -> BTreeMap<String, Value> {
        self.schemas
    }

    fn schema_of_item(&mut self, name: &str, item: &Item) -> Value {
        let (attributes, mut schema) = match item {
            Item::Struct(item) => {
                let serde = SerdeAttributes::of_attributes(&item.attrs);
                let schema = string_schema(name);
                let object =
                    || self.object_schema(name, &item.fields, serde.default, serde.denies_unknown_keys);
                (&item.attrs, schema.unwrap_or_else(object))
            }
            Item::Enum(item) => {
                let schema = match string_schema(name) {
                    Some(schema) => schema,
                    None => self.choice_schema(
                        name,
                        &SerdeAttributes::of_attributes(&item.attrs),
                        item.variants.iter().collect(),
                    ),
                };
                (&item.attrs, schema)
            }
            Item::Type(item) => (&item.attrs, self.schema_of_type(&item.ty)),
            _ => unreachable!("only these were taken"),
        };
        schema["description"] = comment_text(attributes).into();
        schema
    }

    fn object_schema(&mut self, name: &str, fields: &Fields, defaults: bool, deny_unknown: bool) -> Value {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for field in fields {
            let serde = SerdeAttributes::of_attributes(&field.attrs);
            let ident = field.ident.as_ref().expect("a field with a name").to_string();
            let mut schema = self.schema_of_type(&field.ty);
            for (key, value) in bounds_of_field(name, &ident).as_object().expect("an object") {
                schema[key] = value.clone();
            }
            schema["description"] = comment_text(&field.attrs).into();
            let key = serde.rename.unwrap_or(ident);
            let optional = generic_parts(&field.ty).0 == "Option" && !serde.must_be_present;
            let may_be_absent = match self.types_in_requests.contains(name) {
                true => defaults || serde.default || optional,
                false => serde.may_be_absent,
            };
            if !may_be_absent {
                required.push(key.clone());
            }
            properties.insert(key, schema);
        }
        let mut schema = json!({"type": "object", "properties": properties, "required": required});
        if deny_unknown {
            schema["additionalProperties"] = false.into();
        }
        schema
    }

    fn choice_schema(&mut self, name: &str, serde: &SerdeAttributes, variants: Vec<&Variant>) -> Value {
        if serde.tag.is_none() && variants.iter().all(|variant| matches!(variant.fields, Fields::Unit)) {
            let words: Vec<String> =
                variants.iter().map(|variant| serde.variant_name(&variant.ident.to_string())).collect();
            return json!({"type": "string", "enum": words});
        }
        let mut kinds = Vec::new();
        for variant in variants {
            let word = serde.variant_name(&variant.ident.to_string());
            let mut kind = match (&serde.tag, &variant.fields) {
                (None, Fields::Unit) => json!({"const": word}),
                (None, Fields::Unnamed(fields)) => {
                    let inner = self.schema_of_type(&fields.unnamed[0].ty);
                    json!({"type": "object", "properties": {&word: inner}, "required": [word],
                           "additionalProperties": false})
                }
                (Some(tag), Fields::Named(_)) => {
                    let mut object =
                        self.object_schema(name, &variant.fields, false, serde.denies_unknown_keys);
                    object["properties"][tag] = json!({"const": word});
                    object["required"].as_array_mut().expect("a list").push(tag.as_str().into());
                    object
                }
                (Some(tag), Fields::Unnamed(fields)) => {
                    let inner = self.schema_of_type(&fields.unnamed[0].ty);
                    json!({"allOf": [inner], "type": "object", "properties": {tag: {"const": word}},
                           "required": [tag]})
                }
                _ => panic!("{name}: say here what serde makes of the variant {word}"),
            };
            kind["description"] = comment_text(&variant.attrs).into();
            kinds.push(kind);
        }
        json!({"oneOf": kinds})
    }

    fn schema_of_type(&mut self, kind: &Type) -> Value {
        let (name, arguments) = generic_parts(kind);
        match (name.as_str(), arguments.as_slice()) {
            ("Option", [inner]) => {
                let mut schema = self.schema_of_type(inner);
                match schema.get("type").and_then(Value::as_str).map(str::to_owned) {
                    Some(kind) => {
                        schema["type"] = json!([kind, "null"]);
                        schema
                    }
                    None => json!({"anyOf": [schema, {"type": "null"}]}),
                }
            }
            ("Vec", [inner]) => json!({"type": "array", "items": self.schema_of_type(inner)}),
            ("BTreeMap", [_, inner]) => {
                json!({"type": "object", "additionalProperties": self.schema_of_type(inner)})
            }
            ("bool", []) => json!({"type": "boolean"}),
            ("f64", []) => json!({"type": "number"}),
            (name, []) => integer_schema(name)
                .or_else(|| string_schema(name).filter(|_| !self.items_by_name.contains_key(name)))
                .unwrap_or_else(|| self.reference_to(name)),
            (name, _) => panic!("{name}<…>: say here what serde makes of it"),
        }
    }
}

/// Returns the last name of a type's path, and its arguments.
fn generic_parts(kind: &Type) -> (String, Vec<Type>) {
    let Type::Path(path) = kind else { panic!("a type without a name") };
    let last = path.path.segments.last().expect("a name");
    let arguments = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => {
            let types = arguments.args.iter().filter_map(|argument| match argument {
                GenericArgument::Type(kind) => Some(kind.clone()),
                _ => None,
            });
            types.collect()
        }
        _ => Vec::new(),
    };
    (last.ident.to_string(), arguments)
}
