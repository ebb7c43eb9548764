// Client of the station's API (docs/api.md): requests, commands and the stream of events.

/** Octets of an event; a longer one is left out. */
const LONGEST_EVENT = 65536;
const ANSWER_WITHIN_MS = 8000;

/** The station said no: `status` of HTTP, and why. */
export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem("token") ?? "",
  /** Until the tab is closed. */
  set: (value) => sessionStorage.setItem("token", value),
  forget: () => sessionStorage.removeItem("token"),
};

function headers(more) {
  const known = token.get();
  return known ? { Authorization: `Bearer ${known}`, ...more } : { ...more };
}

async function refusal(response) {
  let why = response.statusText;
  try {
    why = (await response.json()).error ?? why;
  } catch {
    // Ignore the error: the page shows the failure by the status.
  }
  return new Refused(response.status, String(why));
}

export async function get(path) {
  const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
  const response = await fetch(path, { headers: headers(), signal, cache: "no-store" });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

export async function post(path, body) {
  const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
  const sent = { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body) };
  const response = await fetch(path, { ...sent, signal });
  if (!response.ok) throw await refusal(response);
}

/** Hands every event to `heard` until the stream or `signal` ends; `opened` is told when it begins. (EventSource cannot
 * bring a token.) */
export async function follow(path, heard, opened, signal) {
  const response = await fetch(path, { headers: headers(), signal, cache: "no-store" });
  if (!response.ok) throw await refusal(response);
  opened();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    if (rest.length > LONGEST_EVENT) throw new Error("an event without an end");
    for (const message of messages) {
      const data = message.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
      if (data.length === 0) continue;
      let event = null;
      try {
        event = JSON.parse(data.join("\n"));
      } catch {
        continue;
      }
      if (event !== null && typeof event === "object" && !Array.isArray(event)) heard(event);
    }
  }
}
