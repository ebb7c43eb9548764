//! The differences between two configs, for the log and for events. They name nodes of the home agent by home
//! address, and uplinks and policies of the mobile router by name.

use carnet_mobility::Event;
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::mobile_router::MobileRouterConfig;

use crate::forwarding::LanSettings;

/// Largest number of named entries of each kind; the event only counts the further entries.
const MAX_NAMED_ENTRIES: usize = 64;

/// Names of the differing entries of one kind.
#[derive(Debug, Default)]
struct ListedNames {
    listed_names: Vec<String>,
    unlisted_count: usize,
}

impl ListedNames {
    fn add_name(&mut self, name: String) {
        if self.listed_names.len() < MAX_NAMED_ENTRIES {
            self.listed_names.push(name);
        } else {
            self.unlisted_count += 1;
        }
    }

    fn into_listed_names(mut self) -> Vec<String> {
        if self.unlisted_count > 0 {
            self.listed_names.push(format!("{} more", self.unlisted_count));
        }
        self.listed_names
    }
}

/// The differences between two configs.
#[derive(Debug, Default)]
pub(super) struct ConfigChanges {
    added_entries: ListedNames,
    removed_entries: ListedNames,
    changed_entries: ListedNames,
}

impl ConfigChanges {
    /// Returns the event with the differences; `None` if the configs do not differ.
    pub fn into_event(self) -> Option<Event> {
        let (added, removed, changed) = (
            self.added_entries.into_listed_names(),
            self.removed_entries.into_listed_names(),
            self.changed_entries.into_listed_names(),
        );
        let is_same = added.is_empty() && removed.is_empty() && changed.is_empty();
        (!is_same).then_some(Event::Reloaded { added, removed, changed })
    }

    fn compare_entry(&mut self, name: String, old: Option<()>, new: Option<()>, is_same: bool) {
        match (old, new) {
            (None, Some(())) => self.added_entries.add_name(name),
            (Some(()), None) => self.removed_entries.add_name(name),
            (Some(()), Some(())) if !is_same => self.changed_entries.add_name(name),
            _ => {}
        }
    }

    /// Compares lists whose entries have names.
    fn compare_named_entries<T: PartialEq>(
        &mut self,
        kind: &str,
        old: &[T],
        new: &[T],
        name: impl Fn(&T) -> String,
    ) {
        for entry in old {
            let other = new.iter().find(|other| name(other) == name(entry));
            let is_same = other == Some(entry);
            self.compare_entry(format!("{kind} {}", name(entry)), Some(()), other.map(|_| ()), is_same);
        }
        for entry in new.iter().filter(|entry| !old.iter().any(|other| name(other) == name(entry))) {
            self.added_entries.add_name(format!("{kind} {}", name(entry)));
        }
    }

    /// Compares two home agents. The nodes of each are sorted by home address, and may be very many.
    pub fn compare_home_agents(&mut self, old: Option<&HomeAgentConfig>, new: Option<&HomeAgentConfig>) {
        let (Some(old), Some(new)) = (old, new) else {
            let address = old.or(new).map(|config| format!("home_agent {}", config.address));
            self.compare_entry(address.unwrap_or_default(), old.map(|_| ()), new.map(|_| ()), true);
            return;
        };
        let own = |it: &HomeAgentConfig| {
            (
                (it.address, it.home_prefix, it.home_network, it.home_link.clone(), it.max_lifetime),
                (it.ipv4_address, it.force_udp, it.multiple_care_of_addresses, it.other_agents.clone()),
                (it.ndp_proxy.clone(), it.nat.clone()),
            )
        };
        self.compare_entry(format!("home_agent {}", new.address), Some(()), Some(()), own(old) == own(new));
        let (mut before, mut after) = (old.nodes.iter().peekable(), new.nodes.iter().peekable());
        loop {
            let first =
                |node: Option<&&carnet_mobility::home_agent::AuthorizedNode>| node.map(|it| it.home_address);
            let home_address = match (first(before.peek()), first(after.peek())) {
                (Some(old), Some(new)) => old.min(new),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => return,
            };
            let old = before.next_if(|node| node.home_address == home_address);
            let new = after.next_if(|node| node.home_address == home_address);
            let is_same = old.zip(new).is_some_and(|(old, new)| {
                (&old.prefixes, &old.authentication) == (&new.prefixes, &new.authentication)
                    && (old.nat, old.care_of_test) == (new.nat, new.care_of_test)
            });
            let name = format!("home_agent.mobile_router {home_address}");
            self.compare_entry(name, old.map(|_| ()), new.map(|_| ()), is_same);
        }
    }

    /// Compares two mobile routers, each with the interfaces of its mobile network.
    pub fn compare_mobile_routers(
        &mut self,
        old: Option<(&MobileRouterConfig, &[LanSettings])>,
        new: Option<(&MobileRouterConfig, &[LanSettings])>,
    ) {
        let (Some((old, old_lan)), Some((new, new_lan))) = (old, new) else {
            let home_address =
                old.or(new).map(|(config, _)| format!("mobile_router {}", config.home_address));
            self.compare_entry(home_address.unwrap_or_default(), old.map(|_| ()), new.map(|_| ()), true);
            return;
        };
        let own = |it: &MobileRouterConfig| {
            (
                (it.home_address, it.home_prefix, it.home_agent_ipv4, it.force_udp),
                (it.prefixes.clone(), it.ipv4_prefixes.clone()),
                (it.mode, it.lifetime, it.authentication.clone(), it.liveness),
            )
        };
        self.compare_entry(
            format!("mobile_router {}", new.home_address),
            Some(()),
            Some(()),
            own(old) == own(new),
        );
        self.compare_named_entries("mobile_router.lan", old_lan, new_lan, |it| it.interface.clone());
        self.compare_named_entries("mobile_router.uplink", &old.uplinks, &new.uplinks, |it| {
            it.interface.clone()
        });
        self.compare_named_entries("mobile_router.policy", &old.policies, &new.policies, |it| {
            it.name.clone()
        });
    }
}
