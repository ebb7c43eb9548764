// The dashboard of a station: requests its state every two seconds, follows its events, and draws both.

import { Refused, follow, get, post, token } from "./api.js";
import { el, morph, morphChildren, plain } from "./dom.js";
import { duration } from "./format.js";
import * as history from "./history.js";
import { page } from "./views.js";

const EVERY_MS = 2000;
const content = document.getElementById("content");
const at = (id) => document.getElementById(id);

let seen = null;
let zoom = 1;
let filter = "";
/** Ends the stream of events, so that the next one brings another token. */
let stream = new AbortController();

function draw() {
  if (!seen) return;
  const { status } = seen;
  document.title = `${plain(status.name)} · carnet`;
  at("name").textContent = plain(status.name);
  const roles = (Array.isArray(status.roles) ? status.roles : []).map((role) => String(role).replaceAll("_", " "));
  const facts = [roles.join(", "), `carnet ${plain(status.version)}`, `up ${duration(status.uptime_s)}`, status.dataplane && `data path ${plain(status.dataplane)}`];
  at("roles").textContent = plain(facts.filter(Boolean).join(" · "));
  morphChildren(content, page(seen, { now: Date.now(), zoom, filter, width: content.clientWidth }));
}

function live(kind, text) {
  const [dot, words] = at("live").children;
  dot.className = `dot ${kind}`;
  // Write the text only if it changes, because a screen reader reads each change aloud.
  if (words.textContent !== text) words.textContent = text;
}

function say(text) {
  at("said").textContent = plain(text);
  at("said").hidden = !text;
}

/** Reason of a refused request: usually a missing token. */
function refused(error) {
  if (error instanceof Refused && error.status === 401) {
    live("bad", "needs a token");
    openTokens(token.get() ? "This station does not know that token." : "This station wants a token before it says anything.");
  } else {
    live("bad", error instanceof Refused ? plain(error.message) : "no answer from the station");
  }
}

async function ask() {
  const status = await get("/v1/status");
  if (status === null || typeof status !== "object") throw new Error("no status");
  const geonet = Boolean(status.geonet);
  const none = Promise.resolve([]);
  const onBoard = Boolean(status.mobile_router);
  const [uplinks, tunnels, bindings, counters, locations, areas, lan] = await Promise.all([
    get("/v1/uplinks"), get("/v1/tunnels"), get("/v1/bindings"), get("/v1/counters"),
    geonet ? get("/v1/locations").catch(() => []) : none, geonet ? get("/v1/areas").catch(() => []) : none,
    onBoard ? get("/v1/lan").catch(() => []) : none,
  ]);
  if (![uplinks, tunnels, bindings].every(Array.isArray) || counters === null || typeof counters !== "object") throw new Error("no lists");
  if (seen && (seen.status.name !== status.name || seen.status.uptime_s > status.uptime_s)) history.forgetCounters();
  const now = Date.now();
  history.sawUplinks(uplinks, now);
  history.sawCounters(counters, tunnels, now);
  seen = { status, uplinks, tunnels, bindings, counters, locations, areas, lan };
  live("good", "live");
  draw();
}

async function poll() {
  for (;;) {
    if (!document.hidden) await ask().catch(refused);
    await new Promise((done) => setTimeout(done, EVERY_MS));
  }
}

async function listen() {
  for (;;) {
    stream = new AbortController();
    const { signal } = stream;
    const heard = (event) => {
      history.sawEvent(event);
      if (event.event === "handover") ask().catch(refused);
    };
    // Tests wait for this number.
    const opened = () => (at("live").dataset.streams = Number(at("live").dataset.streams ?? 0) + 1);
    await follow("/v1/events", heard, opened, signal).catch(() => {}); // The next question says what is wrong.
    // After the user has entered another token, connect again at once, without this pause.
    if (!signal.aborted) await new Promise((done) => setTimeout(done, EVERY_MS));
  }
}

function openTokens(note) {
  const form = at("token-form");
  at("token-note").textContent = note ?? "";
  if (!form.hidden) return;
  form.hidden = false;
  at("token").focus();
}

at("token-open").setAttribute("aria-controls", "token-form");
at("token-open").addEventListener("click", () => {
  if (at("token-form").hidden) openTokens();
  else at("token-form").hidden = true;
});
at("token-form").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  token.set(at("token").value.trim());
  at("token").value = "";
  at("token-form").hidden = true;
  stream.abort();
  ask().catch(refused);
});
at("token-forget").addEventListener("click", () => {
  token.forget();
  at("token-form").hidden = true;
  stream.abort();
});

content.addEventListener("click", async ({ target }) => {
  const button = target.closest("button");
  if (button?.dataset.zoom !== undefined) {
    zoom = Number(button.dataset.zoom) ? Math.min(64, Math.max(1 / 64, zoom * Number(button.dataset.zoom))) : 1;
    draw();
  } else if (button?.dataset.handover !== undefined) {
    const uplink = button.dataset.handover || null;
    try {
      await post("/v1/handover", { uplink });
      say(uplink ? `Asked for ${uplink}.` : "carnet chooses again.");
      await ask();
    } catch (error) {
      say(`Not done: ${error.message}`);
    }
  }
});
content.addEventListener("input", ({ target }) => {
  if (target.id !== "filter") return;
  filter = target.value;
  draw();
});
addEventListener("resize", draw);
document.addEventListener("visibilitychange", () => document.hidden || ask().catch(refused));

morph(content.appendChild(el("p")), el("p", { class: "none" }, "Asking the station …"));
poll();
listen();
