// Formats numbers, durations and times for readers.

// Create the formatters once: creating one takes longer than formatting a hundred numbers.
const numbers = [0, 1].map((digits) => new Intl.NumberFormat([], { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const plain = new Intl.NumberFormat();
const times = new Intl.DateTimeFormat([], { timeStyle: "medium", hour12: false });

export const count = (value) => (Number.isFinite(value) ? plain.format(value) : "–");
/** With no digit behind the point, or one. */
export const fixed = (value, unit, digits = 0) => (Number.isFinite(value) ? `${numbers[digits].format(value)} ${unit}` : "–");
/** The time of day of a time in milliseconds. */
export const clock = (time) => times.format(time);

export function octets(value) {
  if (!Number.isFinite(value)) return "–";
  const at = Math.min(4, Math.floor(Math.log10(Math.max(value, 1)) / 3));
  return fixed(value / 1000 ** at, ["B", "kB", "MB", "GB", "TB"][at], Math.min(at, 1));
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Math.floor(seconds)} s`;
}
