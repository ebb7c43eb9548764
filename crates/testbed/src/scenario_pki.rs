//! Creates the certificates of a scenario's stations. The lab creates each `pki` that a node names
//! (`carnet-lab pki`), with a ticket for each node that names it. The files are in the testbed's own `/run`
//! and vanish with it.
//!
//! In a config, `{pki}` becomes the folder of the node's PKI with `root.cert` and `aa.cert`, and `{tickets}`
//! the folder with the node's ticket. `{revoked}` becomes the names of the tickets of all nodes that are
//! `revoked`, quoted and separated by commas.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::pki;
use crate::scenario::Scenario;

/// Folders with the nodes' certificates, and the revoked tickets.
#[derive(Debug, Default)]
pub struct ScenarioPki {
    /// For each node: folder of its PKI, and folder of its ticket.
    pki_and_ticket_folders: BTreeMap<String, (PathBuf, PathBuf)>,
    /// Names of revoked tickets.
    revoked_nodes: Vec<String>,
}

impl ScenarioPki {
    /// Creates the PKIs of a scenario in `folder`.
    pub fn create_for_scenario(scenario: &Scenario, folder: &Path) -> anyhow::Result<ScenarioPki> {
        let mut trust = ScenarioPki::default();
        let with = |(node, it): (&String, &_)| -> Option<(String, String, bool)> {
            let it: &crate::scenario::Node = it;
            Some((node.clone(), it.pki.as_ref()?.get_ref().clone(), it.revoked))
        };
        for (node, pki, revoked) in scenario.nodes.iter().filter_map(with) {
            let of_pki = folder.join(pki);
            pki::create_pki(&pki::PkiArgs::arguments_for_tickets(of_pki.clone(), 1))
                .context("the PKI of the scenario")?;
            // The folder contains only the new ticket, because the function has moved earlier tickets to
            // their nodes' folders.
            let own = of_pki.join(&node);
            fs::rename(of_pki.join("tickets"), &own).with_context(|| own.display().to_string())?;
            if revoked {
                for file in fs::read_dir(&own)? {
                    let file = file?.path();
                    let is_one = file.extension().is_some_and(|extension| extension == "cert");
                    let name = file.file_stem().filter(|_| is_one);
                    trust.revoked_nodes.extend(name.map(|name| name.to_string_lossy().into_owned()));
                }
            }
            trust.pki_and_ticket_folders.insert(node, (of_pki, own));
        }
        Ok(trust)
    }

    /// Returns the text of a config with placeholders replaced.
    pub fn replace_placeholders(&self, node: &str, text: &str) -> String {
        let quoted: Vec<String> = self.revoked_nodes.iter().map(|name| format!("{name:?}")).collect();
        let text = text.replace("{revoked}", &quoted.join(", "));
        match self.pki_and_ticket_folders.get(node) {
            Some((pki, tickets)) => {
                text.replace("{pki}", &pki.to_string_lossy()).replace("{tickets}", &tickets.to_string_lossy())
            }
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_nodes_get_tickets_and_revocation_list() {
        let folder = std::env::temp_dir().join(format!("carnet-trust-{}", std::process::id()));
        let text = r#"
            title = "t"
            timetable.duration = "1s"
            nodes.a = { carnet = "c", pki = "fleet" }
            nodes.b = { carnet = "c", pki = "fleet", revoked = true }
            nodes.c = { carnet = "c", pki = "foreign" }
            nodes.d = { carnet = "c" }
        "#;
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("c"), "").expect("a config");
        let scenario = crate::scenario::parse_scenario(&folder.join("scenario.toml"), text).expect("is good");
        let trust = ScenarioPki::create_for_scenario(&scenario, &folder).expect("made");
        let files = |node: &str| -> Vec<String> {
            let text = trust.replace_placeholders(node, "{tickets}");
            let all = fs::read_dir(text).expect("tickets").map(|file| file.expect("file").file_name());
            all.map(|name| name.to_string_lossy().into_owned())
                .filter(|name| name.ends_with(".cert"))
                .collect()
        };
        for node in ["a", "b", "c"] {
            assert_eq!(files(node).len(), 1, "{node}");
            assert!(Path::new(&trust.replace_placeholders(node, "{pki}/root.cert")).exists(), "{node}");
        }
        assert_eq!(trust.replace_placeholders("a", "{pki}"), trust.replace_placeholders("b", "{pki}"));
        assert_ne!(trust.replace_placeholders("a", "{pki}"), trust.replace_placeholders("c", "{pki}"));
        let name = files("b")[0].replace(".cert", "");
        assert_eq!(trust.replace_placeholders("a", "[{revoked}]"), format!("[\"{name}\"]"));
        assert_eq!(trust.replace_placeholders("d", "{pki}"), "{pki}");
        fs::remove_dir_all(folder).expect("remove");
    }
}
