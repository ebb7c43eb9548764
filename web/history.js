// History of the page: states and round-trip times of uplinks, packet rates, events. All lists are bounded.

/** How far back pictures go. */
export const SPAN_MS = 10 * 60 * 1000;
const EVENTS = 200;
const UPLINKS = 32;
const SAMPLES = 400;

export const begun = Date.now();

/** Runs of the same state by uplink: `{from, to, state}`. */
export const lanes = new Map();
/** Round trips by uplink: `{time, value}`. */
export const trips = new Map();
/** Packets a second: `{time, into, out, geonet, dropped}`. */
export const rates = [];
export const events = [];

let last = null;
/** Counters that have risen since the page was opened, and by how much a second they do. */
export let drops = [];
let first = null;

const number = (value) => (Number.isFinite(value) ? value : 0);

function forget(list, now) {
  while (list.length > SAMPLES || (list.length && (list[0].to ?? list[0].time) < now - SPAN_MS)) list.shift();
}

export function sawUplinks(uplinks, now) {
  for (const uplink of uplinks.slice(0, UPLINKS)) {
    const name = String(uplink.interface);
    if (!lanes.has(name)) {
      if (lanes.size >= UPLINKS) continue;
      lanes.set(name, []);
      trips.set(name, []);
    }
    const state = String(uplink.state).split(":")[0];
    const runs = lanes.get(name);
    const run = runs.at(-1);
    // The state is unknown for a time in which the station did not answer.
    const connected = run && now - run.to < 10000;
    if (connected) run.to = now;
    if (!connected || run.state !== state) runs.push({ from: now, to: now, state });
    forget(runs, now);
    const samples = trips.get(name);
    samples.push({ time: now, value: Number.isFinite(uplink.rtt_ms) ? uplink.rtt_ms : null });
    forget(samples, now);
  }
}

const sum = (counters, wanted) =>
  Object.entries(counters).reduce((all, [name, value]) => (wanted(name) ? all + number(value) : all), 0);

const isDrop = (name) => name.includes(".dropped.") || name.endsWith(".left.failed");

export function sawCounters(counters, tunnels, now) {
  const total = {
    time: now,
    counters,
    into: tunnels.reduce((all, tunnel) => all + number(tunnel.packets_out), 0),
    out: tunnels.reduce((all, tunnel) => all + number(tunnel.packets_in), 0),
    geonet: number(counters["geonet.received"]) + number(counters["geonet.sent"]),
    dropped: sum(counters, isDrop),
  };
  first ??= total;
  const seconds = last ? (now - last.time) / 1000 : 0;
  const rate = (after, before) => Math.max(0, (number(after) - number(before)) / seconds);
  if (seconds > 0.2) {
    const [into, out, geonet, dropped] = ["into", "out", "geonet", "dropped"].map((key) => rate(total[key], last[key]));
    rates.push({ time: now, into, out, geonet, dropped });
    forget(rates, now);
  }
  const before = last?.counters ?? counters;
  drops = Object.entries(counters)
    .filter(([name, value]) => isDrop(name) && number(value) > 0)
    .map(([name, value]) => ({
      name,
      total: value,
      here: number(value) - number(first.counters[name]),
      rate: seconds > 0.2 ? rate(value, before[name]) : 0,
    }))
    .sort((a, b) => b.rate - a.rate || b.here - a.here || b.total - a.total);
  last = total;
}

export function sawEvent(event) {
  events.unshift({ ...event, number: (events[0]?.number ?? 0) + 1 });
  if (events.length > EVENTS) events.pop();
}

/** The station has started again, or another one answers: what was counted before says nothing. */
export function forgetCounters() {
  last = first = null;
  rates.length = 0;
}
