//! Converts rasn-compiler's result for the unaligned packed encoding (X.691). Each type has a name of its
//! own, constraints are the least and the greatest value, and additions are apart from the root.
//!
//! Constraints that this encoding does not use are left out (X.691 9.3), such as those on components of a
//! type. The size of a UTF8String has no effect on the encoding either, but stays as a bound for the reader.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use rasn_compiler::prelude::ToplevelDefinition;
use rasn_compiler::prelude::ir::*;

use super::names::{constant_case, pascal_case, snake_case};
use super::types::{Asn1Type, Bounds, Component, Kind};

/// Returns the types of `module`.
///
/// # Errors
/// Returns an error for an unsupported part of the notation.
pub fn convert_module(definitions: &[ToplevelDefinition], module: &str) -> anyhow::Result<Vec<Asn1Type>> {
    let mut known = BTreeMap::new();
    let mut own = Vec::new();
    let mut values = BTreeMap::new();
    let mut sets = BTreeMap::new();
    for definition in definitions {
        let header = match definition {
            ToplevelDefinition::Type(it) => it.module_header.as_ref(),
            _ => None,
        };
        match definition {
            ToplevelDefinition::Type(it) => {
                if header.is_some_and(|header| header.borrow().name == module) {
                    own.push(it);
                    known.insert(it.name.clone(), it);
                } else {
                    known.entry(it.name.clone()).or_insert(it);
                }
            }
            ToplevelDefinition::Value(it) => {
                values.insert(it.name.clone(), &it.value);
            }
            ToplevelDefinition::Object(it) => {
                if let ASN1Information::ObjectSet(set) = &it.value {
                    sets.insert(it.name.clone(), set);
                }
            }
            _ => {}
        }
    }
    let taken = known.keys().map(|name| pascal_case(name)).collect();
    let mut lowering = TypeConverter {
        known_types: known,
        known_values: values,
        object_sets: sets,
        used_names: taken,
        types: Vec::new(),
    };
    for definition in own {
        lowering
            .define_type(
                pascal_case(&definition.name),
                &definition.name,
                &definition.comments,
                &definition.ty,
                &[],
            )
            .with_context(|| definition.name.clone())?;
    }
    Ok(lowering.types)
}

struct TypeConverter<'a> {
    /// Types by name. If two modules define a type of the same name, this is the type of the module to
    /// generate.
    known_types: BTreeMap<String, &'a ToplevelTypeDefinition>,
    known_values: BTreeMap<String, &'a ASN1Value>,
    object_sets: BTreeMap<String, &'a ObjectSet>,
    /// Names that are in use, so that an anonymous type of a component must get another name.
    used_names: BTreeSet<String>,
    types: Vec<Asn1Type>,
}

impl<'a> TypeConverter<'a> {
    /// Adds the type `name`. `more` are constraints that a use of the type adds to the type's own
    /// constraints.
    fn define_type(
        &mut self,
        name: String,
        asn1_name: &str,
        comment: &str,
        ty: &ASN1Type,
        more: &[&Constraint],
    ) -> anyhow::Result<()> {
        let constraints: Vec<&Constraint> =
            ty.constraints().into_iter().flatten().chain(more.iter().copied()).collect();
        let named = |values: &Option<Vec<DistinguishedValue>>| {
            values.iter().flatten().map(|it| (constant_case(&it.name), it.value)).collect::<Vec<_>>()
        };
        let kind = match ty {
            ASN1Type::Boolean(_) => Kind::Alias("bool".to_owned()),
            ASN1Type::Null => Kind::Alias("Null".to_owned()),
            ASN1Type::Integer(it) => Kind::Integer {
                bounds: bounds_of(&constraints, false)?.context("an INTEGER without bounds")?,
                named: named(&it.distinguished_values),
            },
            ASN1Type::BitString(it) => Kind::BitString {
                size: bounds_of(&constraints, true)?.context("a BIT STRING of any size")?,
                named: named(&it.distinguished_values),
            },
            ASN1Type::OctetString(_) => Kind::OctetString {
                size: bounds_of(&constraints, true)?.context("an OCTET STRING of any size")?,
            },
            ASN1Type::CharacterString(it) => {
                let alphabet = match it.ty {
                    CharacterStringType::IA5String => "Ia5",
                    CharacterStringType::NumericString => "Numeric",
                    CharacterStringType::UTF8String => "Utf8",
                    other => bail!("{other:?}"),
                };
                // Bounds for a text without a size constraint: the codec reads at most 16,383 characters.
                let any = Bounds { least: 0, most: 16_383, extensible: false };
                Kind::Text { alphabet, size: bounds_of(&constraints, true)?.unwrap_or(any) }
            }
            ASN1Type::Enumerated(it) => {
                let count = it.extensible.unwrap_or(it.members.len());
                let (root, additions) = it.members.split_at(count);
                let mut root: Vec<_> = root.iter().collect();
                // X.691 14.1: members of an enumeration are in the order of their values, not of their
                // positions.
                root.sort_by_key(|member| member.index);
                Kind::Enumerated {
                    root: root.iter().map(|it| pascal_case(&it.name)).collect(),
                    additions: it
                        .extensible
                        .map(|_| additions.iter().map(|it| pascal_case(&it.name)).collect()),
                }
            }
            ASN1Type::SequenceOf(it) => {
                let item = self.convert_component(&it.element_type, &[], &name, "Item")?;
                let size = bounds_of(&constraints, true)?.context("a SEQUENCE OF any size")?;
                Kind::List { item, size }
            }
            ASN1Type::Sequence(it) => match self.convert_numbered_value(it)? {
                Some(kind) => kind,
                None => self.convert_sequence(&name, it)?,
            },
            ASN1Type::Choice(it) => {
                let count = it.extensible.unwrap_or(it.options.len());
                let mut all = Vec::new();
                for option in &it.options {
                    let constraints: Vec<_> = option.constraints.iter().collect();
                    all.push((
                        pascal_case(&option.name),
                        self.convert_component(&option.ty, &constraints, &name, &option.name)?,
                    ));
                }
                let additions = all.split_off(count);
                Kind::Choice { root: all, additions: it.extensible.map(|_| additions) }
            }
            ASN1Type::ElsewhereDeclaredType(it) => {
                if has_visible_bounds(&constraints)? {
                    let base = self.base_type(&it.identifier)?;
                    return self.define_type(name, asn1_name, comment, &base.ty, &constraints);
                }
                Kind::Alias(pascal_case(&it.identifier))
            }
            other => bail!("this generator does not support the ASN.1 type {}", other.as_str()),
        };
        let copy = self.can_copy_kind(&kind);
        self.types.push(Asn1Type {
            name,
            asn1_name: asn1_name.to_owned(),
            comment: comment.to_owned(),
            kind,
            is_copy: copy,
        });
        Ok(())
    }

    /// Returns the type of a component; defines one if the component has an anonymous type.
    fn convert_component(
        &mut self,
        ty: &ASN1Type,
        more: &[&Constraint],
        parent: &str,
        name: &str,
    ) -> anyhow::Result<String> {
        let constraints: Vec<&Constraint> =
            ty.constraints().into_iter().flatten().chain(more.iter().copied()).collect();
        match ty {
            ASN1Type::Boolean(_) => return Ok("bool".to_owned()),
            ASN1Type::Null => return Ok("Null".to_owned()),
            ASN1Type::Integer(it) if it.distinguished_values.is_none() && constraints.is_empty() => {
                return Ok("i64".to_owned());
            }
            ASN1Type::ElsewhereDeclaredType(it) => {
                let base = self.base_type(&it.identifier)?;
                let constrained =
                    !matches!(base.ty, ASN1Type::Enumerated(_)) && has_visible_bounds(&constraints)?;
                if !constrained {
                    return Ok(pascal_case(&it.identifier));
                }
            }
            _ => {}
        }
        let mut own = pascal_case(name);
        if !self.used_names.insert(own.clone()) {
            own = format!("{parent}{own}");
            if !self.used_names.insert(own.clone()) {
                bail!("two ASN.1 types would get the Rust name {own}");
            }
        }
        let comment = format!("`{name}` of [`{parent}`].");
        self.define_type(own.clone(), name, &comment, ty, more)?;
        Ok(own)
    }

    fn convert_sequence(&mut self, name: &str, it: &SequenceOrSet) -> anyhow::Result<Kind> {
        // rasn-compiler puts the components that COMPONENTS OF includes behind all others, although they are
        // first in ETSI's types. It also counts one component too many for each COMPONENTS OF.
        let mut members: Vec<&SequenceOrSetMember> = it.members.iter().collect();
        let taken_over = self.count_components_of(it)?;
        let own = members.len() - taken_over;
        members.rotate_left(own);
        let count = it.extensible.map_or(members.len(), |count| count - it.components_of.len());
        let mut all = Vec::new();
        for member in members {
            let constraints: Vec<_> = member.constraints.iter().collect();
            // A group of additions in `[[ ]]` is encoded as a SEQUENCE of its own (X.691 19.9). rasn-compiler
            // names the group by its first component.
            let group = member.name.strip_prefix("ext_group_").map(|first| format!("{first}Group"));
            let ty = match &group {
                Some(group) => {
                    let own = format!("{name}{}", pascal_case(group));
                    let comment = format!("Additions to [`{name}`].");
                    self.define_type(own.clone(), group, &comment, &member.ty, &[])?;
                    own
                }
                None => self.convert_component(&member.ty, &constraints, name, &member.name)?,
            };
            let default = match &member.optionality {
                Optionality::Default(value) => Some(self.default_expression(&member.ty, &ty, value)?),
                _ => None,
            };
            all.push(Component {
                name: snake_case(group.as_ref().unwrap_or(&member.name)),
                type_name: ty,
                optional: matches!(member.optionality, Optionality::Optional),
                default,
            });
        }
        let additions = all.split_off(count);
        if additions.iter().any(|it| it.default.is_some()) {
            bail!("this generator does not support an extension addition with a DEFAULT");
        }
        Ok(Kind::Sequence { root: all, additions: it.extensible.map(|_| additions) })
    }

    /// Returns the number of components that COMPONENTS OF includes from other types.
    fn count_components_of(&self, it: &SequenceOrSet) -> anyhow::Result<usize> {
        let mut count = 0;
        for name in &it.components_of {
            let ASN1Type::Sequence(base) = &self.base_type(name)?.ty else {
                bail!("COMPONENTS OF {name}: expected a SEQUENCE, found another type")
            };
            if !base.components_of.is_empty() {
                bail!("this generator does not support COMPONENTS OF within COMPONENTS OF");
            }
            count += base.extensible.unwrap_or(base.members.len());
        }
        Ok(count)
    }

    /// Returns the kind of a SEQUENCE that consists of a number and a value whose type depends on the number
    /// (X.681). `None` for any other SEQUENCE.
    fn convert_numbered_value(&self, it: &SequenceOrSet) -> anyhow::Result<Option<Kind>> {
        let [number, value] = &it.members[..] else { return Ok(None) };
        let ASN1Type::ObjectClassField(field) = &value.ty else { return Ok(None) };
        let ASN1Type::ElsewhereDeclaredType(number) = &number.ty else {
            bail!("expected a declared type for the number of an open type, found another kind")
        };
        let mut values = Vec::new();
        for constraint in &field.constraints {
            let Constraint::Table(table) = constraint else { continue };
            for set in &table.object_set.values {
                let ObjectSetValue::Reference(name) = set else {
                    bail!("expected a reference to an object set in a table constraint, found an inline set")
                };
                let set = self.object_sets.get(name).context("an object set that is not there")?;
                for object in &set.values {
                    values.push(self.number_and_type_of_object(object)?);
                }
            }
        }
        Ok(Some(Kind::Numbered { number: pascal_case(&number.identifier), values }))
    }

    fn number_and_type_of_object(&self, object: &ObjectSetValue) -> anyhow::Result<(i128, String)> {
        let ObjectSetValue::Inline(InformationObjectFields::DefaultSyntax(fields)) = object else {
            bail!("expected an inline object in default syntax, found another kind")
        };
        let mut number = None;
        let mut ty = None;
        for field in fields {
            match field {
                InformationObjectField::FixedValueField(it) => number = self.integer_value(&it.value),
                InformationObjectField::TypeField(it) => {
                    if let ASN1Type::ElsewhereDeclaredType(it) = &it.ty {
                        ty = Some(pascal_case(&it.identifier));
                    }
                }
                _ => {}
            }
        }
        number.zip(ty).context("an object without a number or a type")
    }

    fn integer_value(&self, value: &ASN1Value) -> Option<i128> {
        match value {
            ASN1Value::LinkedElsewhereDefinedValue { identifier, .. }
            | ASN1Value::ElsewhereDeclaredValue { identifier, .. } => {
                self.known_values.get(identifier).and_then(|value| self.integer_value(value))
            }
            other => parse_integer(other),
        }
    }

    /// Returns a DEFAULT value as a Rust expression. `ty` is the name of the component's Rust type.
    fn default_expression(&self, declared: &ASN1Type, ty: &str, value: &ASN1Value) -> anyhow::Result<String> {
        // A Rust type alias has no constructor, so use the constructor of the type behind it.
        let constructor = match declared {
            ASN1Type::ElsewhereDeclaredType(it) if pascal_case(&it.identifier) == ty => {
                pascal_case(&self.base_type(&it.identifier)?.name)
            }
            _ => ty.to_owned(),
        };
        match value {
            ASN1Value::EnumeratedValue { enumerable, .. } => {
                Ok(format!("{constructor}::{}", pascal_case(enumerable)))
            }
            ASN1Value::Boolean(value) => Ok(value.to_string()),
            ASN1Value::LinkedNestedValue { value, .. } if matches!(**value, ASN1Value::Boolean(_)) => {
                self.default_expression(declared, ty, value)
            }
            other => {
                let number = self.integer_value(other).with_context(|| format!("DEFAULT {other:?}"))?;
                Ok(format!("{constructor}({})", super::notation::group_digits(number)))
            }
        }
    }

    /// Returns the definition of this type, after following all aliases.
    fn base_type(&self, name: &str) -> anyhow::Result<&'a ToplevelTypeDefinition> {
        let found = *self.known_types.get(name).with_context(|| format!("{name} is not there"))?;
        match &found.ty {
            ASN1Type::ElsewhereDeclaredType(it) if it.constraints.is_empty() => {
                self.base_type(&it.identifier)
            }
            _ => Ok(found),
        }
    }

    fn can_copy_kind(&self, kind: &Kind) -> bool {
        let named = |ty: &str| self.can_copy_named_type(ty);
        match kind {
            Kind::Alias(ty) => named(ty),
            Kind::Integer { .. } | Kind::Enumerated { .. } | Kind::BitString { .. } => true,
            Kind::Sequence { root, additions } => {
                root.iter().chain(additions.iter().flatten()).all(|it| named(&it.type_name))
            }
            // The codec stores an unknown alternative as octets, so a CHOICE with an extension marker is not
            // `Copy`.
            Kind::Choice { root, additions: None } => root.iter().all(|(_, ty)| named(ty)),
            _ => false,
        }
    }

    fn can_copy_named_type(&self, name: &str) -> bool {
        if matches!(name, "bool" | "i64" | "Null") {
            return true;
        }
        if let Some(own) = self.types.iter().find(|it| it.name == name) {
            return own.is_copy;
        }
        self.known_types
            .values()
            .find(|it| pascal_case(&it.name) == name)
            .is_some_and(|it| self.can_copy_type(&it.ty))
    }

    fn can_copy_type(&self, ty: &ASN1Type) -> bool {
        match ty {
            ASN1Type::Boolean(_)
            | ASN1Type::Null
            | ASN1Type::Integer(_)
            | ASN1Type::Enumerated(_)
            | ASN1Type::BitString(_) => true,
            ASN1Type::ElsewhereDeclaredType(it) => self.can_copy_named_type(&pascal_case(&it.identifier)),
            ASN1Type::Sequence(it) => it.members.iter().all(|it| self.can_copy_type(&it.ty)),
            ASN1Type::Choice(it) => {
                it.extensible.is_none() && it.options.iter().all(|it| self.can_copy_type(&it.ty))
            }
            _ => false,
        }
    }
}

/// Returns whether a constraint limits values or sizes.
fn has_visible_bounds(constraints: &[&Constraint]) -> anyhow::Result<bool> {
    Ok(bounds_of(constraints, false)?.is_some() || bounds_of(constraints, true)?.is_some())
}

/// Combines all constraints on values, or with `sizes` all constraints on sizes. The last constraint decides
/// whether the result is extensible (X.680 50.8). `None` without a constraint.
fn bounds_of(constraints: &[&Constraint], sizes: bool) -> anyhow::Result<Option<Bounds>> {
    let mut all: Option<Bounds> = None;
    for constraint in constraints {
        let Constraint::Subtype(set) = constraint else { continue };
        let Some(mut found) = bounds_of_set(&set.set, sizes)? else { continue };
        found.extensible |= set.extensible;
        all = Some(all.map_or(found, |all| intersect_bounds(all, found)));
    }
    Ok(all)
}

fn intersect_bounds(one: Bounds, other: Bounds) -> Bounds {
    Bounds { least: one.least.max(other.least), most: one.most.min(other.most), extensible: other.extensible }
}

fn bounds_of_set(set: &ElementOrSetOperation, sizes: bool) -> anyhow::Result<Option<Bounds>> {
    match set {
        ElementOrSetOperation::Element(element) => bounds_of_element(element, sizes),
        ElementOrSetOperation::SetOperation(it) => {
            let one = bounds_of_element(&it.base, sizes)?;
            let other = bounds_of_set(&it.operant, sizes)?;
            Ok(match (&it.operator, one, other) {
                (SetOperator::Union, Some(one), Some(other)) => Some(Bounds {
                    least: one.least.min(other.least),
                    most: one.most.max(other.most),
                    extensible: one.extensible || other.extensible,
                }),
                // If one part of a union has no effect on the encoding, the whole union has none.
                (SetOperator::Union, ..) => None,
                (SetOperator::Intersection, Some(one), Some(other)) => Some(intersect_bounds(one, other)),
                (SetOperator::Intersection, one, other) => one.or(other),
                (SetOperator::Except, one, _) => one,
            })
        }
    }
}

fn bounds_of_element(element: &SubtypeElements, sizes: bool) -> anyhow::Result<Option<Bounds>> {
    Ok(match element {
        SubtypeElements::SizeConstraint(inner) if sizes => bounds_of_set(inner, false)?,
        SubtypeElements::SingleValue { value, extensible } if !sizes => {
            parse_integer(value).map(|value| Bounds { least: value, most: value, extensible: *extensible })
        }
        SubtypeElements::ValueRange { min, max, extensible } if !sizes => {
            let bound =
                |value: &Option<ASN1Value>| value.as_ref().and_then(parse_integer).context("MIN or MAX");
            Some(Bounds { least: bound(min)?, most: bound(max)?, extensible: *extensible })
        }
        SubtypeElements::PermittedAlphabet(_) => {
            bail!("this generator does not support a permitted alphabet (FROM)")
        }
        _ => None,
    })
}

fn parse_integer(value: &ASN1Value) -> Option<i128> {
    match value {
        ASN1Value::Integer(value) | ASN1Value::LinkedIntValue { value, .. } => Some(*value),
        ASN1Value::LinkedNestedValue { value, .. } => parse_integer(value),
        _ => None,
    }
}
