// The parts of the page, each drawn from an answer of the station.

import { el, plain } from "./dom.js";
import { clock, count, duration, fixed, octets } from "./format.js";
import * as history from "./history.js";
import { chart, map, timeline } from "./draw.js";

/** Rows of a table; the rest is counted. */
const ROWS = 250;

const list = (value) => (Array.isArray(value) ? value : []);
const known = (value, write) => (value === null || value === undefined ? "–" : write ? write(value) : value);

const panel = (id, title, ...content) =>
  el("section", { "data-key": id, id, class: "panel", "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title), content);

const table = (caption, heads, rows, key) =>
  el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption, "data-key": key },
    el("table", null, el("caption", { class: "unseen" }, caption),
      el("thead", null, el("tr", null, heads.map((head) => el("th", { scope: "col", class: head.startsWith("#") ? "n" : null }, head.replace("#", ""))))),
      el("tbody", null, rows.slice(0, ROWS))),
    rows.length > ROWS && el("p", { class: "more" }, `and ${count(rows.length - ROWS)} more`));

const row = (heads, ...cells) => el("tr", null, cells.map((cell, at) =>
  at === 0 ? el("th", { scope: "row" }, cell) : el("td", { class: heads[at].startsWith("#") ? "n" : null }, cell)));

const counted = (value, one, several) => `${count(value)} ${value === 1 ? one : several}`;
const family = (name) => ({ ipv4: "IPv4", ipv6: "IPv6" })[name] ?? name;

/** A state in words and colour. */
function badge(state) {
  const [word] = String(state).split(":");
  const kind = { active: "good", registered: "good", home: "good", up: "good", "in force": "good", fix: "good", standby: "calm", registering: "warn", untested: "warn",
    silent: "warn", disconnected: "bad", refused: "bad", down: "bad", missing: "bad" }[word] ?? "calm";
  return el("span", { class: `badge ${kind}` }, state);
}

/** Faults of the station: `{kind, text}`. */
export function alerts(now, { status, uplinks, lan }) {
  const found = [];
  const add = (kind, text) => found.push({ kind, text });
  const router = status.mobile_router;
  if (router) {
    if (!["registered", "home"].includes(router.state)) add("bad", `The mobile network cannot be reached: ${router.state}.`);
    else if (router.reachable === false) add("bad", "No uplink leads to the home agent. The registration outlives the uplinks, but nothing goes through.");
    if (router.breaks_out) add("warn", "The home agent is away: packets of hosts on board leave by the uplinks, past the tunnel.");
    for (const lan of list(router.lan)) {
      if (lan.state !== "up") add("warn", `${lan.interface}, an interface of the mobile network: ${lan.state}.`);
      if (lan.closed) add("bad", `${lan.interface} gets no packets from others: ${lan.closed}.`);
    }
    for (const ipv4 of list(router.ipv4_prefixes)) {
      if (!ipv4.accepted) add("warn", `The tunnel carries no packets of ${ipv4.prefix}: ${ipv4.reason}.`);
    }
    if (router.wanted_uplink) add("calm", `An operator asked for ${router.wanted_uplink}: carnet does not choose now.`);
  }
  for (const uplink of list(uplinks)) {
    if (uplink.state.startsWith("down")) add("warn", `${uplink.interface} is ${uplink.state}.`);
    if (uplink.state === "silent") add("warn", `The home agent does not answer over ${uplink.interface}.`);
    if (uplink.loss > 0.1) add("warn", `${uplink.interface} loses ${Math.round(uplink.loss * 100)} % of the heartbeats.`);
    if (uplink.volume && uplink.volume_used > 0.9 * uplink.volume) {
      add("warn", `${uplink.interface} has used ${Math.round((uplink.volume_used / uplink.volume) * 100)} % of its volume for this ${uplink.volume_period}.`);
    }
  }
  for (const { interface: name, dhcp, dns } of list(lan)) {
    if (dhcp?.failure) add("warn", `The DHCP server on ${name} does not run: ${dhcp.failure}.`);
    if (dhcp?.other_server) add("warn", `Another DHCP server answers hosts on ${name}: ${dhcp.other_server}.`);
    if (dhcp && dhcp.free === 0) add("warn", `${name} has no free address for another host.`);
    for (const { address, failure } of list(dns)) if (failure) add("warn", `Hosts on ${name} get no answers from the DNS forwarder at ${address}: ${failure}.`);
  }
  for (const nat of list(status.home_agent?.nat)) {
    if (!nat.in_force) add("bad", `NAT for ${family(nat.family)} on ${nat.interface} is not in force: ${nat.failure}.`);
  }
  const proxy = status.home_agent?.ndp_proxy;
  if (proxy && proxy.state !== "up") add("bad", `The home agent does not answer for the mobile networks on ${proxy.interface}: the interface is ${proxy.state}.`);
  const geonet = status.geonet;
  if (geonet) {
    if (geonet.waits_for) add("bad", `GeoNetworking waits for ${geonet.waits_for}.`);
    if (geonet.link && geonet.link !== "up") add("bad", `The link of GeoNetworking is ${geonet.link}.`);
    if (geonet.latitude === null) add("warn", "This station does not know where it is.");
  }
  const recent = history.events.filter((event) => event.event === "warning" && event.time * 1000 > now - 60000);
  for (const event of recent.slice(0, 3)) add("warn", plain(event.message));
  return found;
}

function alertPanel(found) {
  const signs = { bad: "✕", warn: "!", calm: "i" };
  return panel("alerts", "Alerts", found.length === 0
      ? el("p", { class: "notice good" }, el("span", { class: "sign", "aria-hidden": "true" }, "✓"), "Nothing is wrong that this station knows of.")
      : el("ul", { class: "plain" }, found.map(({ kind, text }) =>
          el("li", { class: `notice ${kind}` }, el("span", { class: "sign", "aria-hidden": "true" }, signs[kind]), text))));
}

function facts(pairs) {
  return el("dl", null, pairs.filter(Boolean).map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))));
}

const addresses = (values) => list(values).map((value, at) => [at > 0 && el("br"), el("code", null, value)]);

function statusPanels({ status }) {
  const { mobile_router: router, home_agent: agent, geonet } = status;
  return [
    router && panel("router", "Mobile router", facts([
      ["State", badge(router.state)],
      ["Traffic goes by", known(router.uplink)],
      ["Home agent", router.home_agent === "::" ? "not known yet" : el("code", null, router.home_agent)],
      ["Home address", el("code", null, router.home_address)],
      ["Care-of addresses", list(router.care_of_addresses).length ? addresses(router.care_of_addresses) : "none"],
      ["Mobile network", [addresses([...list(router.prefixes), ...list(router.ipv4_prefixes).map((ipv4) => ipv4.prefix)]), list(router.lan).map((lan) => el("span", null, ` ${lan.interface} ${lan.state}`))]],
    ])),
    agent && panel("agent", "Home agent", facts([
      ["Bindings", el("strong", { class: "figure" }, count(agent.bindings))],
      ["Address", el("code", null, agent.address)],
      ...list(agent.nat).map((nat) => [`NAT for ${family(nat.family)}`, [badge(nat.in_force ? "in force" : "down"), ` ${nat.interface}`, el("br"),
        `${count(nat.translated?.packets_out)} packets out, ${count(nat.translated?.packets_in)} in`, el("br"),
        `${octets(nat.translated?.octets_out)} out, ${octets(nat.translated?.octets_in)} in`]]),
      agent.ndp_proxy && ["Proxy Neighbor Discovery", [badge(agent.ndp_proxy.state), ` ${agent.ndp_proxy.interface}`, el("br"),
        `for ${counted(agent.ndp_proxy.addresses, "address", "addresses")} and ${counted(agent.ndp_proxy.prefixes, "network", "networks")}`, el("br"),
        `${count(agent.ndp_proxy.answered)} answers, ${count(agent.ndp_proxy.refused)} refused`]],
    ])),
    geonet && panel("geonet", "GeoNetworking", facts([
      ["Stations in range", el("strong", { class: "figure" }, count(geonet.neighbours))],
      ["Known by position", count(geonet.locations)],
      ["Own address", known(geonet.gn_address, (address) => el("code", null, address))],
      ["Position", [geonet.position, Number.isFinite(geonet.latitude) && ` ${geonet.latitude.toFixed(5)}, ${geonet.longitude.toFixed(5)}`]],
      ["Link", [badge(geonet.link || "unknown"), ` ${geonet.path}`]],
    ])),
  ];
}

function signal(dbm) {
  if (!Number.isFinite(dbm)) return "–";
  // From a hardly usable signal to the best one, in dBm.
  return [el("meter", { min: -110, max: -40, low: -85, high: -70, optimum: -50, value: dbm, "aria-label": "signal" }), ` ${dbm} dBm`];
}

function uplinkPanel({ status, uplinks }, from, now, width) {
  const heads = ["Uplink", "State", "Traffic", "Signal", "#Round trip", "#Loss", "Used", "Care-of address"];
  const wanted = status.mobile_router?.wanted_uplink;
  const rows = list(uplinks).map((uplink) => row(heads, uplink.interface,
    [badge(uplink.state), uplink.retry_s !== null && uplink.retry_s !== undefined && ` again in ${duration(uplink.retry_s)}`],
    el("button", { type: "button", "data-handover": uplink.interface, "aria-pressed": wanted === uplink.interface ? "true" : "false",
      // Begin with the visible text: users of voice control say the text that they see.
      "aria-label": `${wanted === uplink.interface ? "Asked for" : "Use"} ${uplink.interface} for the traffic` }, wanted === uplink.interface ? "Asked for" : "Use"),
    signal(uplink.signal_dbm), fixed(uplink.rtt_ms, "ms", 1), Number.isFinite(uplink.loss) ? fixed(uplink.loss * 100, "%", 1) : "–",
    [octets(uplink.volume_used), uplink.volume && ` of ${octets(uplink.volume)}`, uplink.volume_period && ` this ${uplink.volume_period}`],
    known(uplink.care_of_address, (address) => el("code", null, address))));
  const portals = list(uplinks).filter((uplink) => uplink.captive_portal || uplink.portal_access || uplink.portal_outside);
  const lines = [...history.trips].map(([name, values], at) => ({ name, kind: `k${at % 6}`, values }));
  return panel("uplinks", "Uplinks", table("Uplinks", heads, rows, "uplinks-table"),
    el("p", { class: "actions" }, el("button", { type: "button", "data-handover": "", disabled: !wanted }, "Let carnet choose")),
    portals.length > 0 && portalTable(portals),
    el("h3", null, "Round trip to the home agent, ms"), legend(lines), chart(lines, from, now, width, 150, "ms"));
}

/** Captive portals, and the host on board that may reach one. */
function portalTable(uplinks) {
  const heads = ["Uplink", "Captive portal", "Host with access", "#Time left", "Servers", "#Octets out", "#Octets in"];
  const rows = uplinks.map(({ interface: name, captive_portal: portal, portal_access: access, portal_outside: traffic }) => row(heads, name, known(portal),
    access ? [el("code", null, access.host), ` on ${access.interface}`] : "none", known(access?.remaining_s, duration),
    list(access?.dns).length ? addresses(access.dns) : "–", octets(traffic?.octets_out), octets(traffic?.octets_in)));
  return [el("h3", null, "Captive portals"), table("Captive portals", heads, rows, "portals-table")];
}

/** The mobile network: its interfaces, and the hosts with a lease. */
function lanPanel({ lan }) {
  const links = list(lan);
  if (links.length === 0) return null;
  const doors = { established: "only what hosts began", any: "everything" };
  const heads = ["Interface", "State", "From outside", "IPv4 prefix", "DNS forwarder", "#Free addresses"];
  const rows = links.map((link) => row(heads, link.interface, badge(link.closed ? "closed" : link.state),
    [doors[link.inbound] ?? known(link.inbound || null), list(link.allow).length > 0 && `, ${counted(link.allow.length, "exception", "exceptions")}`, link.isolated && ", isolated"],
    known(link.ipv4_prefix, (prefix) => el("code", null, prefix)), list(link.dns).length ? addresses(link.dns.map((dns) => dns.address)) : "–",
    link.dhcp ? `${count(link.dhcp.free)} of ${count(link.dhcp.addresses)}` : "–"));
  const hosts = links.flatMap((link) => list(link.hosts).map((host) => ({ ...host, link: link.interface })));
  const columns = ["Host", "Address", "Link-layer address", "Interface", "#Lease left", "Reserved"];
  const lines = hosts.map((host) => row(columns, known(host.name), el("code", null, host.address), el("code", null, host.mac), host.link,
    duration(host.remaining_s), host.reserved ? "yes" : "no"));
  return panel("lan", "On board", table("Interfaces on board", heads, rows, "lan-table"), el("h3", null, `Hosts on board with a lease: ${count(hosts.length)}`),
    hosts.length > 0 ? table("Hosts on board", columns, lines, "hosts-table") : el("p", { class: "none" }, "No host has an address from DHCP."));
}

const legend = (lines) => el("p", { class: "legend" }, lines.map(({ name, kind }) =>
  el("span", null, el("span", { class: `key ${kind}`, "aria-hidden": "true" }), name)));

function handoverPanel(from, now, width) {
  const handovers = history.events.filter((event) => event.event === "handover").map((event) => ({
    time: Number(event.time) * 1000,
    text: `${event.from ?? "nothing"} → ${event.to ?? "nothing"}: ${event.reason ?? ""}`,
  }));
  const states = ["active", "standby", "registering", "silent", "down"];
  return panel("handovers", "Handovers", el("p", { class: "legend" }, states.map((state) => el("span", null, el("span", { class: `key run ${state}`, "aria-hidden": "true" }), state))),
    timeline(history.lanes, handovers, from, now, width),
    handovers.length === 0
      ? el("p", { class: "none" }, "None since this page was opened.")
      : el("ol", { class: "plain log", id: "handover-list" }, handovers.slice(0, 8).map(({ time, text }) =>
          el("li", null, el("time", { datetime: new Date(time).toISOString() }, clock(time)), text))));
}

function packetPanel({ status, tunnels }, from, now, width) {
  const series = [["into", "into tunnels", "k0"], ["out", "out of tunnels", "k1"], ["geonet", "GeoNetworking frames", "k2"], ["dropped", "dropped", "k3"]];
  const lines = series.filter(([key]) => key !== "geonet" || status.geonet).map(([key, name, kind]) =>
    ({ name, kind, values: history.rates.map((sample) => ({ time: sample.time, value: sample[key] })) }));
  const heads = ["Other end", "By", "Path", "#MTU", "#Packets out", "#Octets out", "#Packets in", "#Octets in"];
  const rows = list(tunnels).map((tunnel) => row(heads, el("code", null, tunnel.remote, tunnel.remote_port && ` port ${tunnel.remote_port}`),
    `${tunnel.encapsulation}${tunnel.bid === null ? "" : `, binding ${tunnel.bid}`}`, tunnel.path, count(tunnel.mtu), count(tunnel.packets_out),
    octets(tunnel.octets_out), count(tunnel.packets_in), octets(tunnel.octets_in)));
  return panel("packets", "Packets", el("h3", null, "A second"), legend(lines), chart(lines, from, now, width, 160, "packets/s"),
    rows.length > 0 && [el("h3", null, "By tunnel"), table("Packets by tunnel", heads, rows, "tunnels-table")]);
}

function dropPanel() {
  const { drops } = history;
  const heads = ["Reason", "#A second", "#Since opened", "#In all"];
  const rows = drops.map((drop) => row(heads, drop.name.replace(".dropped.", ": ").replaceAll("_", " "), count(Math.round(drop.rate * 10) / 10), count(drop.here), count(drop.total)));
  return panel("drops", "Dropped, and why", rows.length === 0 ? el("p", { class: "none" }, "No packet was dropped since the station started.") : table("Packets dropped, by reason", heads, rows, "drops-table"));
}

function bindingPanel({ bindings }, filter) {
  const heads = ["Home address", "State", "Care-of address", "#There for", "#Identifier", "Mobile network", "#Left"];
  const all = list(bindings);
  const wanted = filter ? all.filter((binding) => JSON.stringify(binding).toLowerCase().includes(filter.toLowerCase())) : all;
  const rows = wanted.map((binding) => row(heads, el("code", null, binding.home_address), badge(binding.state),
    known(binding.care_of_address, (address) => el("code", null, address)), known(binding.stay_s, duration), known(binding.bid), addresses([...list(binding.prefixes), ...list(binding.ipv4_prefixes)]),
    `${duration(binding.remaining_s)} of ${duration(binding.lifetime_s)}`));
  return panel("bindings", all.some((binding) => binding.role === "home_agent") ? "Bindings: who is where" : "Bindings", all.length > 10 && el("p", null, el("label", { for: "filter" }, "Those with "), el("input", { id: "filter", type: "search", autocomplete: "off" }), ` ${wanted.length} of ${all.length}`),
    rows.length === 0 ? el("p", { class: "none" }, all.length ? "None has that." : "None.") : table("Bindings", heads, rows, "bindings-table"));
}

function mapPanel({ status, locations, areas }, zoom, width) {
  const { geonet } = status;
  if (!geonet || !Number.isFinite(geonet.latitude) || !Number.isFinite(geonet.longitude)) return null;
  const others = list(locations).filter((station) => Number.isFinite(station.latitude) && Number.isFinite(station.longitude)).slice(0, ROWS);
  const metres = (station) => {
    const east = (station.longitude - geonet.longitude) * Math.cos((geonet.latitude * Math.PI) / 180);
    return Math.hypot(station.latitude - geonet.latitude, east) * 111320;
  };
  const farthest = Math.max(100, ...others.map(metres).filter((distance) => distance < 100000));
  const range = Math.min(200000, farthest * 1.25 * zoom);
  const drawn = others.map((station) => ({ ...station, kind: station.neighbour ? "near" : "far", moving: Math.abs(station.speed_mps) > 0.5,
    label: others.length > 30 ? "" : plain(station.gn_address).slice(-4),
    title: `${station.gn_address}, ${fixed(metres(station), "m")} away, ${fixed(station.speed_mps, "m/s", 1)}, ${station.neighbour ? "in range" : "over others"}` }));
  drawn.push({ latitude: geonet.latitude, longitude: geonet.longitude, kind: "own", label: status.name, title: "this station" });
  const heads = ["Station", "#Distance", "#Speed", "#Heading", "In range", "#Heard before"];
  const rows = others.slice().sort((a, b) => metres(a) - metres(b)).map((station) => row(heads, el("code", null, station.gn_address),
    fixed(metres(station), "m"), fixed(station.speed_mps, "m/s", 1), fixed(station.heading_deg, "°"), station.neighbour ? "yes" : "no", duration(station.age_ms / 1000)));
  return panel("map", "Stations around", el("p", { class: "actions" }, el("button", { type: "button", "data-zoom": "0.5" }, "Closer"), " ", el("button", { type: "button", "data-zoom": "2" }, "Farther"), " ",
      el("button", { type: "button", "data-zoom": "0" }, "All")),
    el("div", { class: "beside" }, map(geonet, drawn, list(areas).slice(0, 100), range, Math.min(width, 480)),
      rows.length ? table("Stations around", heads, rows, "stations-table") : el("p", { class: "none" }, "Nobody is heard.")));
}

function eventPanel() {
  const text = (event) => Object.entries(event).filter(([name, value]) => !["time", "event", "number"].includes(name) && value !== null && value !== undefined)
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  return panel("events", "Events", history.events.length === 0 ? el("p", { class: "none" }, "None since this page was opened.")
      : el("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Events", "data-key": "events-list" },
          el("ol", { class: "plain log" }, history.events.map((event) => el("li", { "data-key": event.number },
            el("time", null, clock(Number(event.time) * 1000 || 0)), el("strong", null, event.event), " ", text(event))))));
}

/** Everything, for a page whose content is `width` wide. */
export function page(seen, { now, zoom, filter, width }) {
  const from = Math.max(now - history.SPAN_MS, Math.min(history.begun, now - 60000));
  const inner = Math.max(260, width - 34);
  const { mobile_router: router, home_agent: agent } = seen.status;
  return [
    alertPanel(alerts(now, seen)),
    el("div", { class: "row", "data-key": "row-status" }, statusPanels(seen)),
    router && uplinkPanel(seen, from, now, inner),
    router && handoverPanel(from, now, inner),
    router && lanPanel(seen),
    // Show the bindings first: operators of a home agent look for them first.
    agent && bindingPanel(seen, filter),
    packetPanel(seen, from, now, inner),
    mapPanel(seen, zoom, inner),
    router && !agent && bindingPanel(seen, filter),
    el("div", { class: "row", "data-key": "row-log" }, dropPanel(), eventPanel()),
  ].filter(Boolean);
}
