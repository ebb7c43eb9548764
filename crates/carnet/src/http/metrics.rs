//! `GET /metrics`: metrics for a Prometheus server, in its text format 0.0.4.
//!
//! Counters keep their names of docs/counters.md, with underscores for dots. If several counters divide one
//! total (`dropped`, `left`, `received`), the last part of the name is a label, so that sums make sense.
//! Names and labels are API: later versions may add names, but never rename one. Bindings are only a number
//! in the metrics; `GET /v1/bindings` lists them.

use std::fmt::{Display, Write};

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use carnet_api::model::{
    Counters, NatStatus, NdpProxyStatus, OutsideCount, Policy, Security, Status, Uplink,
};

use super::{ApiRefusal, ApiState};
use crate::request::StationRequest;

const METRICS_MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Words in counter names after which the last part of the name becomes a label, each with the name of the
/// label.
const LABELS_BY_WORD: [(&str, &str); 3] =
    [("dropped", "reason"), ("left", "reason"), ("received", "message")];

/// Answers `GET /metrics`.
pub(super) async fn answer_metrics(app: ApiState) -> Result<Response, ApiRefusal> {
    let status = app.answer_in_json(StationRequest::Status).await?;
    let uplinks = app.answer_in_json(StationRequest::Uplinks).await?;
    let policies = app.answer_in_json(StationRequest::Policies).await?;
    let counters = app.answer_in_json(StationRequest::Counters).await?;
    // A station without security has no metrics of security.
    let security = app.answer_in_json(StationRequest::Security).await?.ok();
    let text = metrics_text(&status, &uplinks, &policies, security.as_ref(), &counters);
    Ok(([(CONTENT_TYPE, METRICS_MEDIA_TYPE)], text).into_response())
}

pub(super) fn metrics_text(
    status: &Status,
    uplinks: &[Uplink],
    policies: &[Policy],
    security: Option<&Security>,
    counters: &Counters,
) -> String {
    let mut page = MetricsPage::default();
    let names = [("name", status.name.as_str()), ("version", status.version.as_str())];
    page.write_gauge("carnet_info", "The station.", [(&names[..], 1)]);
    page.write_gauge(
        "carnet_uptime_seconds",
        "Since the start of the station.",
        [(&[][..], status.uptime_s)],
    );
    if let Some(path) = &status.dataplane {
        let labels = [("path", path.as_str())];
        page.write_gauge("carnet_dataplane_info", "The way that packets take.", [(&labels[..], 1)]);
    }
    if let Some(agent) = &status.home_agent {
        page.write_gauge(
            "carnet_home_agent_bindings",
            "Bindings in the home agent's binding cache.",
            [(&[][..], agent.bindings)],
        );
        write_nat_metrics(&mut page, &agent.nat);
        agent.ndp_proxy.iter().for_each(|proxy| write_proxy_metrics(&mut page, proxy));
    }
    if let Some(router) = &status.mobile_router {
        let labels = [("state", router.state.as_str())];
        page.write_gauge("carnet_mobile_router_state", "1 for the present state.", [(&labels[..], 1)]);
        let reachable = router.reachable.map(u8::from);
        let help = "1 if the mobile router reaches its home agent through an uplink, otherwise 0.";
        page.write_gauge(
            "carnet_mobile_router_reachable",
            help,
            reachable.map(|reachable| (&[][..], reachable)),
        );
        let prefixes = || router.ipv4_prefixes.iter();
        let names: Vec<String> = prefixes().map(|ipv4| ipv4.prefix.to_string()).collect();
        let labels: Vec<_> = names.iter().map(|name| [("prefix", name.as_str())]).collect();
        let accepted = labels.iter().zip(prefixes()).map(|(labels, it)| (&labels[..], u8::from(it.accepted)));
        let help = "1 if the tunnel carries packets of the IPv4 prefix, otherwise 0.";
        page.write_gauge("carnet_mobile_router_ipv4_prefix", help, accepted);
    }
    write_uplink_gauges(&mut page, uplinks);
    write_counters_without_tunnel(&mut page, uplinks, policies);
    security.into_iter().for_each(|security| write_security_gauges(&mut page, security));
    let mut last = String::new();
    for (name, value) in counters {
        let (family, label) = metric_family_of(name);
        if family != last {
            page.write_family_head(&family, "counter", "docs/counters.md");
        }
        page.write_sample(&family, &label.map(|label| vec![label]).unwrap_or_default(), value);
        last = family;
    }
    page.0
}

fn write_uplink_gauges(page: &mut MetricsPage, uplinks: &[Uplink]) {
    fn write_for_each<V: Display>(
        page: &mut MetricsPage,
        uplinks: &[Uplink],
        name: &str,
        help: &str,
        value: impl Fn(&Uplink) -> Option<V>,
    ) {
        let labels: Vec<_> =
            uplinks.iter().map(|uplink| [("interface", uplink.interface.as_str())]).collect();
        let values = uplinks.iter().zip(&labels);
        page.write_gauge(
            name,
            help,
            values.filter_map(|(uplink, labels)| Some((&labels[..], value(uplink)?))),
        );
    }
    let active = |uplink: &Uplink| Some(u8::from(uplink.active));
    write_for_each(page, uplinks, "carnet_uplink_active", "Whether it carries the traffic.", active);
    // The state `down: REASON` has a reason for people, so the metric has only the state `down`.
    let states: Vec<_> = uplinks
        .iter()
        .map(|uplink| {
            let state = uplink.state.split_once(':').map_or(uplink.state.as_str(), |(state, _)| state);
            [("interface", uplink.interface.as_str()), ("state", state)]
        })
        .collect();
    page.write_gauge(
        "carnet_uplink_state",
        "1 for the present state.",
        states.iter().map(|labels| (&labels[..], 1)),
    );
    write_for_each(page, uplinks, "carnet_uplink_signal_dbm", "As it was measured last.", |uplink| {
        uplink.signal_dbm
    });
    let seconds = |uplink: &Uplink| uplink.rtt_ms.map(|time| time / 1000.0);
    write_for_each(page, uplinks, "carnet_uplink_rtt_seconds", "Round trip to the home agent.", seconds);
    write_for_each(page, uplinks, "carnet_uplink_loss_ratio", "Share of lost probes.", |uplink| uplink.loss);
    let capacity = |uplink: &Uplink| uplink.capacity_kbit_s.map(|capacity| u64::from(capacity) * 125);
    write_for_each(
        page,
        uplinks,
        "carnet_uplink_capacity_bytes_per_second",
        "Configured or measured.",
        capacity,
    );
    let used = "In this period of its volume, both directions.";
    write_for_each(page, uplinks, "carnet_uplink_volume_used_bytes", used, |uplink| uplink.volume_used);
    write_for_each(page, uplinks, "carnet_uplink_volume_limit_bytes", "What it may carry.", |uplink| {
        uplink.volume
    });
    let portal = |uplink: &Uplink| Some(u8::from(uplink.captive_portal.is_some()));
    write_for_each(
        page,
        uplinks,
        "carnet_uplink_captive_portal",
        "Whether its network announces a captive portal or redirects to one.",
        portal,
    );
    let roaming = |uplink: &Uplink| uplink.roaming.map(u8::from);
    write_for_each(
        page,
        uplinks,
        "carnet_uplink_roaming",
        "Whether its modem is in another operator's network.",
        roaming,
    );
}

/// Writes whether NAT at the home agent is in force, and its counters.
fn write_nat_metrics(page: &mut MetricsPage, nat: &[NatStatus]) {
    if nat.is_empty() {
        return;
    }
    let labels: Vec<[(&str, &str); 2]> = nat
        .iter()
        .map(|nat| [("family", nat.family.name()), ("interface", nat.interface.as_str())])
        .collect();
    let each = || nat.iter().zip(&labels);
    let in_force = each().map(|(nat, labels)| (&labels[..], u8::from(nat.in_force)));
    page.write_gauge(
        "carnet_home_agent_nat_in_force",
        "1 if the kernel has the rules, otherwise 0.",
        in_force,
    );
    let name = "carnet_home_agent_nat_packets_total";
    page.write_family_head(name, "counter", "Packets of mobile networks whose addresses NAT has changed.");
    for (NatStatus { translated, .. }, labels) in each() {
        page.write_both_directions(name, labels, [translated.packets_out, translated.packets_in]);
    }
    let name = "carnet_home_agent_nat_bytes_total";
    page.write_family_head(name, "counter", "Octets of these packets.");
    for (NatStatus { translated, .. }, labels) in each() {
        page.write_both_directions(name, labels, [translated.octets_out, translated.octets_in]);
    }
}

/// Writes the numbers of proxy Neighbor Discovery.
fn write_proxy_metrics(page: &mut MetricsPage, proxy: &NdpProxyStatus) {
    let interface = [("interface", proxy.interface.as_str())];
    for (name, kind, help, value) in [
        (
            "up",
            "gauge",
            "1 if the home agent can answer on the link, otherwise 0.",
            u64::from(proxy.state == "up"),
        ),
        ("addresses", "gauge", "Single addresses for which the home agent answers.", proxy.addresses),
        ("prefixes", "gauge", "Mobile networks for whose addresses the home agent answers.", proxy.prefixes),
        ("answers_total", "counter", "Answered solicitations.", proxy.answered),
        ("refused_total", "counter", "Solicitations beyond the limit, without an answer.", proxy.refused),
    ] {
        let name = format!("carnet_home_agent_ndp_proxy_{name}");
        page.write_family_head(&name, kind, help);
        page.write_sample(&name, &interface, value);
    }
}

/// Writes the counters of packets without the tunnel: those of policies, and those to captive portals.
fn write_counters_without_tunnel(page: &mut MetricsPage, uplinks: &[Uplink], policies: &[Policy]) {
    let of_policies = policies.iter().flat_map(|policy| {
        policy.outside.iter().map(|(uplink, count)| {
            let labels = vec![("policy", policy.name.as_str()), ("interface", uplink.as_str())];
            (labels, count)
        })
    });
    let of_policies: Vec<_> = of_policies.collect();
    let of_portals = uplinks.iter().filter_map(|uplink| {
        Some((vec![("interface", uplink.interface.as_str())], uplink.portal_outside.as_ref()?))
    });
    let of_portals: Vec<_> = of_portals.collect();
    let packets = |count: &OutsideCount| [count.packets_out, count.packets_in];
    let octets = |count: &OutsideCount| [count.octets_out, count.octets_in];
    let (policy, portal) = ("of the policy without the tunnel", "of hosts with access to the captive portal");
    for (family, of, counts) in [("breakout", policy, of_policies), ("portal", portal, of_portals)] {
        if counts.is_empty() {
            continue;
        }
        let name = format!("carnet_{family}_packets_total");
        page.write_family_head(&name, "counter", &format!("Packets {of}."));
        counts.iter().for_each(|(labels, count)| page.write_both_directions(&name, labels, packets(count)));
        let name = format!("carnet_{family}_bytes_total");
        page.write_family_head(&name, "counter", &format!("Octets {of}."));
        counts.iter().for_each(|(labels, count)| page.write_both_directions(&name, labels, octets(count)));
    }
}

fn write_security_gauges(page: &mut MetricsPage, security: &Security) {
    let tickets = [("now", security.tickets_now), ("later", security.tickets_later)];
    let labels = tickets.map(|(holds, count)| ([("holds", holds)], count));
    let help = "Number of the station's own authorization tickets that are valid now, or later.";
    page.write_gauge(
        "carnet_security_tickets",
        help,
        labels.iter().map(|(labels, count)| (&labels[..], *count)),
    );
    let ends = |end: Option<u64>| end.map(|end| (&[][..], end));
    let help = "Time at which the authorization ticket that signs messages now expires.";
    let until = security.ticket.as_ref().map(|ticket| ticket.until);
    page.write_gauge("carnet_security_ticket_end_timestamp_seconds", help, ends(until));
    let help = "Time at which the last of the station's own authorization tickets expires.";
    page.write_gauge("carnet_security_last_ticket_end_timestamp_seconds", help, ends(security.tickets_until));
    let waiting = [("verification", security.queued), ("certificate", security.parked)];
    let labels = waiting.map(|(lacks, count)| ([("for", lacks)], count));
    let help = "Number of received messages that wait for verification or for a certificate.";
    page.write_gauge(
        "carnet_security_waiting",
        help,
        labels.iter().map(|(labels, count)| (&labels[..], *count)),
    );
}

/// Returns the metric family of a counter, and the counter's label. Counters are sorted by name, so a family
/// is contiguous.
fn metric_family_of(name: &str) -> (String, Option<(&str, &str)>) {
    let labelled = name.rsplit_once('.').and_then(|(front, last)| {
        let part = front.rsplit('.').next()?;
        let label = LABELS_BY_WORD.iter().find(|(label, _)| *label == part)?.1;
        Some((front, (label, last)))
    });
    let (front, label) = labelled.map_or((name, None), |(front, label)| (front, Some(label)));
    (format!("carnet_{}_total", front.replace('.', "_")), label)
}

#[derive(Default)]
struct MetricsPage(String);

impl MetricsPage {
    /// Writes a family of metrics; writes no line if the family has no samples.
    fn write_gauge<'l, V: Display>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (&'l [(&'l str, &'l str)], V)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_some() {
            self.write_family_head(name, "gauge", help);
        }
        for (labels, value) in samples {
            self.write_sample(name, labels, value);
        }
    }

    fn write_family_head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Writes a sample for packets that leave, and one for answers.
    fn write_both_directions(&mut self, name: &str, labels: &[(&str, &str)], [out, answers]: [u64; 2]) {
        for (direction, value) in [("out", out), ("in", answers)] {
            self.write_sample(name, &[labels, &[("direction", direction)]].concat(), value);
        }
    }

    fn write_sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if at == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_families_and_labels() {
        for (name, expected, label) in [
            ("tunnel.encapsulated", "carnet_tunnel_encapsulated_total", None),
            ("tunnel.dropped.scope", "carnet_tunnel_dropped_total", Some(("reason", "scope"))),
            ("fast_path.left.syn", "carnet_fast_path_left_total", Some(("reason", "syn"))),
            (
                "mobility.received.binding_update",
                "carnet_mobility_received_total",
                Some(("message", "binding_update")),
            ),
            ("geonet.ipv6.received", "carnet_geonet_ipv6_received_total", None),
        ] {
            assert_eq!(metric_family_of(name), (expected.to_owned(), label), "{name}");
        }
    }

    #[test]
    fn metric_labels_are_escaped() {
        let mut page = MetricsPage::default();
        page.write_gauge("g", "help", [(&[("a", "x\"\\\ny"), ("b", "")][..], 1.5)]);
        assert_eq!(page.0, "# HELP g help\n# TYPE g gauge\ng{a=\"x\\\"\\\\\\ny\",b=\"\"} 1.5\n");
        page.write_gauge("none", "help", std::iter::empty::<(&[_], u8)>());
        assert!(!page.0.contains("none"));
    }
}
