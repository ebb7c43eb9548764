// Pictures: the time line of the uplinks, curves over time, and the map of the stations in range.

import { el } from "./dom.js";
import { clock } from "./format.js";

/** Ticks of a time axis from `from` to `to`. */
function timeAxis(from, to, x, bottom) {
  const span = to - from;
  const step = [15000, 30000, 60000, 120000, 300000].find((step) => span / step <= 6) ?? 600000;
  const marks = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    marks.push(el("line", { class: "grid", x1: x(time), x2: x(time), y1: 0, y2: bottom }));
    if (x(time) > 24) marks.push(el("text", { class: "tick", x: x(time), y: bottom + 14, "text-anchor": "middle" }, clock(time).slice(0, step < 60000 ? 8 : 5)));
  }
  return marks;
}

/** A lane for each uplink, coloured by its state, with a mark for each handover. */
export function timeline(lanes, handovers, from, now, width) {
  const names = [...lanes.keys()];
  const [left, lane, gap] = [Math.min(110, width * 0.24), 22, 8];
  const height = names.length * (lane + gap);
  const x = (time) => left + ((Math.max(time, from) - from) / (now - from)) * (width - left - 6);
  const parts = timeAxis(from, now, x, height);
  names.forEach((name, at) => {
    const y = at * (lane + gap) + gap / 2;
    parts.push(el("text", { class: "label", x: left - 8, y: y + lane / 2 + 4, "text-anchor": "end" }, name));
    for (const run of lanes.get(name)) {
      if (run.to <= from) continue;
      const title = el("title", null, `${name}: ${run.state}, ${clock(run.from)} to ${clock(run.to)}`);
      const size = { x: x(run.from), y, width: Math.max(1, x(run.to) - x(run.from)), height: lane, rx: 2 };
      parts.push(el("rect", { class: `run ${run.state.replace(/[^a-z]/g, "")}`, ...size }, title));
    }
  });
  for (const { time, text } of handovers) {
    if (time < from) continue;
    parts.push(el("g", { class: "handover" }, el("title", null, text),
      el("line", { x1: x(time), x2: x(time), y1: 0, y2: height }),
      el("path", { d: `M${x(time) - 5} 0h10l-5 7z` })));
  }
  const label = `Time line of ${names.length} uplinks, ${handovers.length} handovers`;
  return el("svg", { role: "img", "aria-label": label, width, height: height + 20, viewBox: `0 0 ${width} ${height + 20}` }, parts);
}

/** A round number not below `value`. */
function roundUp(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return [1, 2, 5, 10].map((factor) => factor * unit).find((round) => round >= value);
}

/** Lines over time. `lines` are `{name, kind, values: [{time, value}]}`. */
export function chart(lines, from, now, width, height, unit) {
  const [left, bottom] = [54, height - 20];
  const values = lines.flatMap((line) => line.values).map(({ value }) => value).filter(Number.isFinite);
  const top = roundUp(Math.max(...values, 1));
  const x = (time) => left + ((time - from) / (now - from)) * (width - left - 6);
  const y = (value) => bottom - (value / top) * (bottom - 10);
  const parts = timeAxis(from, now, x, bottom);
  for (const value of [0, top / 2, top]) {
    parts.push(el("line", { class: "grid", x1: left, x2: width, y1: y(value), y2: y(value) }));
    parts.push(el("text", { class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toLocaleString()));
  }
  for (const line of lines) {
    let path = "";
    let pen = "M";
    for (const { time, value } of line.values) {
      if (!Number.isFinite(value)) {
        pen = "M";
      } else if (time >= from) {
        path += `${pen}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = "L";
      }
    }
    if (path) {
      const drawn = el("path", { class: `line ${line.kind}` }, el("title", null, line.name));
      // Set the path directly: it has only numbers, and may be longer than the limit for texts.
      drawn.setAttribute("d", path);
      parts.push(drawn);
    }
  }
  const said = lines.map((line) => {
    const latest = line.values.at(-1)?.value;
    return `${line.name} ${Number.isFinite(latest) ? `${latest.toFixed(1)} ${unit}` : "unknown"}`;
  });
  return el("svg", { role: "img", "aria-label": said.join(", "), width, height, viewBox: `0 0 ${width} ${height}` }, parts);
}

const DEGREE_M = 111_320;

/** Stations and areas around a place, in metres; no picture of the ground, which would come from elsewhere. */
export function map(own, stations, areas, range, size) {
  const shrink = Math.cos((own.latitude * Math.PI) / 180);
  const scale = size / 2 / range;
  const place = ({ latitude, longitude }) => {
    const east = ((((longitude - own.longitude + 540) % 360) + 360) % 360) - 180;
    return [size / 2 + east * DEGREE_M * shrink * scale, size / 2 - (latitude - own.latitude) * DEGREE_M * scale];
  };
  const parts = [];
  const step = roundUp(range / 3);
  for (let distance = step; distance < range; distance += step) {
    parts.push(el("circle", { class: "grid", cx: size / 2, cy: size / 2, r: distance * scale }));
    const text = distance >= 1000 ? `${distance / 1000} km` : `${distance} m`;
    parts.push(el("text", { class: "tick", x: size / 2 + 3, y: size / 2 - distance * scale - 3 }, text));
  }
  parts.push(el("text", { class: "tick", x: size / 2, y: 12, "text-anchor": "middle" }, "N"));
  for (const area of areas) {
    if (!Number.isFinite(area.latitude) || !Number.isFinite(area.longitude)) continue;
    const [x, y] = place(area);
    const [a, b] = [area.distance_a_m, area.distance_b_m ?? area.distance_a_m].map((metres) => Number(metres) * scale);
    if (![x, y, a, b].every((value) => Number.isFinite(value) && Math.abs(value) < 1e6)) continue;
    // Degrees clockwise from North, along a; the picture's x axis points East.
    const turn = { transform: `rotate(${(Number(area.angle_deg) || 0) - 90} ${x} ${y})` };
    const shape = area.shape === "rectangle"
      ? el("rect", { x: x - a, y: y - b, width: 2 * a, height: 2 * b, ...turn })
      : el("ellipse", { cx: x, cy: y, rx: a, ry: b, ...turn });
    parts.push(el("g", { class: "area" }, shape, el("text", { x, y: y + b + 13, "text-anchor": "middle" }, area.name)));
  }
  for (const station of stations) {
    const [x, y] = place(station);
    if (![x, y].every((value) => Number.isFinite(value) && Math.abs(value) < 1e6)) continue;
    const drawn = station.moving
      ? el("path", { d: "M0 -8L5.5 6L0 3L-5.5 6z", transform: `translate(${x} ${y}) rotate(${Number(station.heading_deg) || 0})` })
      : el("circle", { cx: x, cy: y, r: 5 });
    parts.push(el("g", { class: `station ${station.kind}` }, el("title", null, station.title), drawn,
      el("text", { x: x + 9, y: y + 4 }, station.label)));
  }
  const label = `Map, ${Math.round(range)} m around this station: ${stations.length - 1} other stations`;
  return el("svg", { role: "img", "aria-label": label, width: size, height: size, viewBox: `0 0 ${size} ${size}` }, parts);
}
