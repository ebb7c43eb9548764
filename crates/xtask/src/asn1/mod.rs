//! Message types from ETSI's ASN.1 modules.
//!
//! rasn-compiler reads and links the modules. [`conversion`] reduces the result to the parts that the
//! unaligned packed encoding (X.691) uses. [`notation`] writes it in the notation of
//! `crates/its/src/uper/macros.rs`.
//! The crate does not use rasn's own types: its general codec takes several times as long, and is too large
//! for the program.
//!
//! Refused with a message: notation that ETSI's modules do not need, such as SET, REAL, parameters, and size
//! constraints with an extension marker on strings.

mod conversion;
mod names;
mod notation;
mod types;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, bail, ensure};
use rasn_compiler::prelude::*;

/// The ASN.1 modules of one message, which rasn-compiler links together, and those for which it writes files.
/// Each message is linked separately, because rasn-compiler confuses types of the same name in modules of
/// different messages.
struct ModuleFamily {
    folder: &'static str,
    modules: &'static [&'static str],
    generated_modules: &'static [WrittenModule],
}

/// A module for which a file is written: the module's name, and the standard that contains it.
type WrittenModule = (&'static str, &'static str);

const MODULE_FAMILIES: &[ModuleFamily] = &[
    ModuleFamily {
        folder: "version1",
        modules: &["ITS-Container", "CAM-PDU-Descriptions", "DENM-PDU-Descriptions"],
        generated_modules: &[
            ("ITS-Container", "TS 102 894-2 V1.2.1"),
            ("CAM-PDU-Descriptions", "EN 302 637-2 V1.3.2"),
            ("DENM-PDU-Descriptions", "EN 302 637-3 V1.2.2"),
        ],
    },
    ModuleFamily {
        folder: "release1",
        modules: &["ITS-Container", "CAM-PDU-Descriptions", "DENM-PDU-Descriptions"],
        generated_modules: &[
            ("ITS-Container", "TS 102 894-2 V1.3.1"),
            ("CAM-PDU-Descriptions", "EN 302 637-2 V1.4.1"),
            ("DENM-PDU-Descriptions", "EN 302 637-3 V1.3.1"),
        ],
    },
    ModuleFamily {
        folder: "release2",
        modules: &["ETSI-ITS-CDD", "CAM-PDU-Descriptions"],
        generated_modules: &[
            ("ETSI-ITS-CDD", "TS 102 894-2 V2.4.1"),
            ("CAM-PDU-Descriptions", "TS 103 900 V2.3.1"),
        ],
    },
    ModuleFamily {
        folder: "release2",
        modules: &["ETSI-ITS-CDD", "DENM-PDU-Description"],
        generated_modules: &[("DENM-PDU-Description", "TS 103 831 V2.3.1")],
    },
    ModuleFamily {
        folder: "release2",
        modules: &["ETSI-ITS-CDD", "VAM-PDU-Descriptions"],
        generated_modules: &[("VAM-PDU-Descriptions", "TS 103 300-3 V2.3.1")],
    },
    ModuleFamily {
        folder: "release2",
        modules: &[
            "ETSI-ITS-CDD",
            "CPM-PDU-Descriptions",
            "CPM-OriginatingStationContainers",
            "CPM-PerceivedObjectContainer",
            "CPM-PerceptionRegionContainer",
            "CPM-SensorInformationContainer",
        ],
        generated_modules: &[
            ("CPM-PDU-Descriptions", "TS 103 324 V2.1.1"),
            ("CPM-OriginatingStationContainers", "TS 103 324 V2.1.1"),
            ("CPM-PerceivedObjectContainer", "TS 103 324 V2.1.1"),
            ("CPM-PerceptionRegionContainer", "TS 103 324 V2.1.1"),
            ("CPM-SensorInformationContainer", "TS 103 324 V2.1.1"),
        ],
    },
];

/// Writes all generated files. With `check`, writes nothing and compares the files with their new content.
///
/// # Errors
///
/// Returns an error if a module cannot be read or parsed, or if a compared file differs.
pub fn generate_modules(root: &Path, check: bool) -> anyhow::Result<()> {
    let crate_root = root.join("crates/its");
    let mut wrong = Vec::new();
    for family in MODULE_FAMILIES {
        let definitions = parse_and_link(&crate_root.join("asn1").join(family.folder), family.modules)?;
        for (module, source) in family.generated_modules {
            let types =
                conversion::convert_module(&definitions, module).with_context(|| (*module).to_owned())?;
            ensure!(!types.is_empty(), "expected ASN.1 types in the module {module}, found none");
            let words = read_descriptions(&crate_root.join("asn1").join(family.folder).join("words.txt"))?;
            let head = notation::ModuleHeader { module, source, folder: family.folder };
            let imports = imports_of_module(&definitions, module);
            let text = notation::write_module(&head, &types, &imports, &words);
            let name = format!("src/asn1/{}/{}.rs", family.folder, names::snake_case(module));
            let path = crate_root.join(&name);
            if std::fs::read_to_string(&path).is_ok_and(|there| there == text) {
                continue;
            }
            if check {
                wrong.push(name);
            } else {
                std::fs::write(&path, text).with_context(|| name)?;
            }
        }
    }
    if !wrong.is_empty() {
        bail!(
            "the file {} differs from what the generator writes: run `cargo xtask gen-asn1`",
            wrong.join(", ")
        );
    }
    Ok(())
}

/// Returns the names of the generated files that the file of `module` has to import.
fn imports_of_module(definitions: &[ToplevelDefinition], module: &str) -> Vec<String> {
    let header = definitions.iter().find_map(|definition| match definition {
        ToplevelDefinition::Type(it) => it.module_header.clone().filter(|it| it.borrow().name == module),
        _ => None,
    });
    let Some(header) = header else { return Vec::new() };
    let mut files: Vec<String> = header
        .borrow()
        .imports
        .iter()
        .map(|it| names::snake_case(&it.global_module_reference.module_reference))
        .collect();
    files.sort();
    files.dedup();
    files
}

/// Returns rasn-compiler's result for the modules.
fn parse_and_link(folder: &Path, modules: &[&str]) -> anyhow::Result<Vec<ToplevelDefinition>> {
    let collected = Rc::new(RefCell::new(Vec::new()));
    let texts = modules
        .iter()
        .map(|module| {
            let path = folder.join(format!("{module}.asn"));
            Ok(decode_text(&std::fs::read(&path).with_context(|| path.display().to_string())?))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let (first, rest) = texts.split_first().context("no modules")?;
    let compiler = Compiler::<DefinitionCollector, _>::new()
        .with_backend(DefinitionCollector(Rc::clone(&collected)))
        .add_asn_literal(first.as_str());
    let compiler = rest.iter().fold(compiler, |compiler, text| compiler.add_asn_literal(text.as_str()));
    let result = compiler.compile_to_string().map_err(|error| anyhow::anyhow!("{error}"))?;
    if let Some(warning) = result.warnings.first() {
        bail!("{}: {warning}", folder.display());
    }
    Ok(collected.take())
}

/// Decodes text: some modules have comments in a Windows encoding.
fn decode_text(octets: &[u8]) -> String {
    String::from_utf8(octets.to_vec()).unwrap_or_else(|_| {
        let letter = |octet: &u8| match octet {
            0x91 | 0x92 => '\'',
            0x93 | 0x94 => '"',
            0x80..=0x9f => '-',
            other => char::from(*other),
        };
        octets.iter().map(letter).collect()
    })
}

/// Reads this project's comments for types that have no comment in the ASN.1 module, by type. Each line of
/// the file is `Type: words`.
fn read_descriptions(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, words)| (name.to_owned(), words.to_owned()))
        .collect())
}

/// A backend that keeps the linked definitions, and generates nothing.
#[derive(Default)]
struct DefinitionCollector(Rc<RefCell<Vec<ToplevelDefinition>>>);

impl Backend for DefinitionCollector {
    type Config = ();
    const FILE_EXTENSION: &'static str = ".rs";

    fn generate_module(
        &mut self,
        mut definitions: Vec<ToplevelDefinition>,
    ) -> Result<GeneratedModule, GeneratorError> {
        self.0.borrow_mut().append(&mut definitions);
        Ok(GeneratedModule::empty())
    }

    fn generate(&self, _: ToplevelDefinition) -> Result<String, GeneratorError> {
        Ok(String::new())
    }

    fn config(&self) -> &() {
        &()
    }

    fn from_config((): ()) -> Self {
        DefinitionCollector::default()
    }

    fn new((): (), _: TaggingEnvironment, _: ExtensibilityEnvironment) -> Self {
        DefinitionCollector::default()
    }
}
