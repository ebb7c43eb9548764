//! Converted types, which `conversion` makes and `notation` writes.

/// An ASN.1 type, reduced to the parts that the encoding uses, with its names.
pub struct Asn1Type {
    pub name: String,
    /// Name of the type in the ASN.1 module.
    pub asn1_name: String,
    /// Comment on the type in the ASN.1 module.
    pub comment: String,
    pub kind: Kind,
    /// Whether the Rust type is `Copy`.
    pub is_copy: bool,
}

/// Least and greatest value, and whether the constraint is extensible.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub least: i128,
    pub most: i128,
    pub extensible: bool,
}

#[derive(Debug, Clone)]
pub struct Component {
    pub name: String,
    pub type_name: String,
    pub optional: bool,
    /// DEFAULT value as a Rust expression.
    pub default: Option<String>,
}

pub enum Kind {
    Alias(String),
    Integer {
        bounds: Bounds,
        named: Vec<(String, i128)>,
    },
    Enumerated {
        root: Vec<String>,
        additions: Option<Vec<String>>,
    },
    BitString {
        size: Bounds,
        named: Vec<(String, i128)>,
    },
    OctetString {
        size: Bounds,
    },
    Text {
        alphabet: &'static str,
        size: Bounds,
    },
    List {
        item: String,
        size: Bounds,
    },
    Sequence {
        root: Vec<Component>,
        additions: Option<Vec<Component>>,
    },
    Choice {
        root: Vec<(String, String)>,
        additions: Option<Vec<(String, String)>>,
    },
    /// A number, and a value whose type depends on the number. `values` has the type for each number, from an
    /// object set.
    Numbered {
        number: String,
        values: Vec<(i128, String)>,
    },
}
