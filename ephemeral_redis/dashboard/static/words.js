// How values are written. Pure: the same in, the same out.

// Controls, directions, unassigned characters, halves of surrogate pairs, and every space but the ordinary one: what
// Python's str.isprintable() denies. Each is shown by its number, so that it cannot act on what stands beside it.
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const LONGEST = 600;

export function visible(value) {
  const text = String(value ?? "");
  const cut = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
  return cut.replace(UNPRINTABLE, (character) => {
    const code = character.codePointAt(0).toString(16);
    return code.length <= 2 ? `\\x${code.padStart(2, "0")}` : code.length <= 4 ? `\\u${code.padStart(4, "0")}` : `\\U${code.padStart(8, "0")}`;
  });
}

// Seconds as the one or two units that matter. No number is parted from its unit at the end of a line.
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [minutes, hours, days] = [Math.floor(whole / 60), Math.floor(whole / 3600), Math.floor(whole / 86400)];
  if (whole < 60) return `${whole}\u00a0s`;
  if (whole < 600) return `${minutes}\u00a0min ${whole % 60}\u00a0s`;
  if (whole < 3600) return `${minutes}\u00a0min`;
  return days === 0 ? `${hours}\u00a0h ${minutes % 60}\u00a0min` : `${days}\u00a0d ${hours % 24}\u00a0h`;
}

export function due(seconds) {
  return seconds <= 0 ? "is due" : `in ${duration(Math.ceil(seconds))}`;
}

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long" });

// The time of day, and the day where it is not today's.
export function clock(at, now) {
  const [then, today] = [new Date(at * 1000), new Date(now * 1000)];
  if (Number.isNaN(then.getTime())) return "?";
  return then.toDateString() === today.toDateString() ? TIME.format(then) : `${DAY.format(then)} ${TIME.format(then)}`;
}

export function fullTime(at) {
  const then = new Date(at * 1000);
  return Number.isNaN(then.getTime()) ? "" : FULL.format(then);
}

const COUNT = new Intl.NumberFormat("en-US");

export function count(number) {
  return COUNT.format(number ?? 0);
}

export function rate(number) {
  return number >= 100 || number === 0 ? COUNT.format(Math.round(number)) : number.toFixed(number >= 10 ? 1 : 2);
}

export function milliseconds(seconds) {
  const value = (seconds ?? 0) * 1000;
  return value < 10 ? `${value.toFixed(1)}\u00a0ms` : value < 10_000 ? `${COUNT.format(Math.round(value))}\u00a0ms` : duration(seconds);
}

export function bytes(number) {
  if (number < 1024) return `${number}\u00a0B`;
  const power = Math.min(4, Math.floor(Math.log2(number) / 10));
  return `${(number / 1024 ** power).toFixed(1)}\u00a0${["", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

export const STATES = { up: "up", down: "down", probing: "probing", isolated: "isolated by hand" };

const KINDS = {
  down: "went down",
  restored: "is up again",
  isolated: "isolated by hand",
  reset: "reset by hand",
  probing: "probe began",
  "probe failed": "probe failed",
  "probe good": "probe good, more wanted",
  "lease given back": "probe given up",
  healed: "put back after a loss",
  forgotten: "failures forgotten",
};

export function kind(change) {
  return KINDS[change.kind] ?? visible(change.kind);
}

// A name within other text: whichever way it is written, what stands around it stays where it is.
export function isolated(name) {
  return `\u2068${visible(name)}\u2069`;
}

// A headline's parts as one plain line; *name* writes the names in it.
export function plain(parts, now, name = isolated) {
  return parts.map((part) => {
    if ("text" in part) return part.text;
    if ("name" in part) return name(part.name);
    if ("clock" in part) return clock(part.clock, now);
    return "span" in part ? duration(now - part.span) : due(part.due - now);
  }).join("");
}
