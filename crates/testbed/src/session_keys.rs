//! Makes the key pairs of a scenario's stations, for encrypted sessions.
//!
//! A station gets a key pair if its config has the placeholder `{key}`. The lab makes it with `carnet key`,
//! as a user does. In the config, `{key}` becomes the file with the private key of this node, and
//! `{public_key:NODE}` the public key of another node. The files are in the testbed's own `/run` and vanish
//! with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::process::run_for_output;
use crate::scenario::Scenario;

/// Placeholder of a config for the file with the private key.
const PRIVATE_KEY_PLACEHOLDER: &str = "{key}";

/// Key pairs of the stations.
#[derive(Debug, Default)]
pub struct ScenarioKeys {
    /// File of the private key, and the public key, by node.
    key_by_node: BTreeMap<String, (PathBuf, String)>,
}

impl ScenarioKeys {
    /// Makes a key pair for each node whose config needs one. `folder` has the scenario's files; the keys go
    /// into `key_folder`.
    ///
    /// # Errors
    /// Returns an error if a config cannot be read, or if the program cannot make a key pair.
    pub fn make_for_scenario(
        scenario: &Scenario,
        folder: &Path,
        program: &Path,
        key_folder: &Path,
    ) -> anyhow::Result<ScenarioKeys> {
        let mut keys = ScenarioKeys::default();
        for (name, node) in &scenario.nodes {
            let Some(config) = &node.carnet else { continue };
            let config = folder.join(config.get_ref());
            let text =
                fs::read_to_string(&config).with_context(|| format!("cannot read {}", config.display()))?;
            if !text.contains(PRIVATE_KEY_PLACEHOLDER) {
                continue;
            }
            fs::create_dir_all(key_folder)
                .with_context(|| format!("cannot make {}", key_folder.display()))?;
            let file = key_folder.join(format!("{name}.key"));
            let mut command = Command::new(program);
            command.args(["key", "--out"]).arg(&file);
            let public_key = run_for_output(&mut command)
                .with_context(|| format!("cannot make the key pair of node {name}"))?;
            keys.key_by_node.insert(name.clone(), (file, public_key.trim().to_owned()));
        }
        Ok(keys)
    }

    /// Returns the text of a node's config with the placeholders replaced.
    ///
    /// # Errors
    /// Returns an error if the text names the public key of a node without a key pair.
    pub fn replace_placeholders(&self, node: &str, text: &str) -> anyhow::Result<String> {
        let mut text = text.to_owned();
        if let Some((file, _)) = self.key_by_node.get(node) {
            text = text.replace(PRIVATE_KEY_PLACEHOLDER, &file.to_string_lossy());
        }
        for (name, (_, public_key)) in &self.key_by_node {
            text = text.replace(&format!("{{public_key:{name}}}"), public_key);
        }
        let left = text.split_once("{public_key:").and_then(|(_, rest)| rest.split_once('}'));
        ensure!(
            left.is_none(),
            "{{public_key:{}}}: expected a node whose config has {PRIVATE_KEY_PLACEHOLDER}",
            left.map(|(name, _)| name).unwrap_or_default()
        );
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> ScenarioKeys {
        let of = |name: &str| (PathBuf::from(format!("/run/keys/{name}.key")), format!("public-{name}"));
        ScenarioKeys { key_by_node: ["ha", "mr"].map(|name| (name.to_owned(), of(name))).into() }
    }

    #[test]
    fn config_gets_own_private_key_and_public_key_of_other_node() {
        let text = "private_key_file = \"{key}\"\nhome_agent_key = \"{public_key:ha}\"\n";
        let filled = keys().replace_placeholders("mr", text).expect("both nodes have keys");
        assert_eq!(filled, "private_key_file = \"/run/keys/mr.key\"\nhome_agent_key = \"public-ha\"\n");
    }

    #[test]
    fn public_key_of_a_node_without_key_pair_is_refused() {
        let refused =
            keys().replace_placeholders("mr", "x = \"{public_key:cn}\"").expect_err("cn has no key");
        assert_eq!(refused.to_string(), "{public_key:cn}: expected a node whose config has {key}");
    }
}
