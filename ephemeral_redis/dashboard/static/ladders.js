// The headline, and each ladder with its rungs.

import { $, field, list, setData, setShape, setText } from "./dom.js";
import { STATES, clock, count, due, duration, fullTime, isolated, plain, visible } from "./words.js";

const SHORT = 24;
const SHAPES = { down: "down", warning: "warning", good: "up" };

// Set an instant as its time of day and how long ago that was.
export function setMoment(node, at, now, { before = "" } = {}) {
  const text = at === null || at === undefined ? "" : `${before}${clock(at, now)} (${duration(now - at)})`;
  setText(node, text);
  if (text && node.title !== fullTime(at)) node.title = fullTime(at);
}

export const headline = list($("sentences"), "sentence", ({ index }) => index, (row, { sentence, now }) => {
  setData(row, "level", sentence.level);
  setShape(row, SHAPES[sentence.level]);
  const paragraph = row.querySelector("p");
  if (paragraph.textContent !== plain(sentence.parts, now, visible)) {
    paragraph.replaceChildren(...sentence.parts.map((part) => node(part, now)));
  }
});

function node(part, now) {
  if (!("name" in part)) return document.createTextNode(plain([part], now, visible));
  const name = document.createElement("bdi");
  name.textContent = visible(part.name);
  name.className = name.textContent.length <= SHORT ? "name short-name" : "name";
  return name;
}

const rungsOf = new WeakMap();

export const ladders = list($("ladders"), "ladder", ({ group }) => group.group, (card, { group, names, now }) => {
  setText(field(card, "group"), visible(group.group));
  setText(field(card, "caption"), visible(group.group));
  setData(card, "state", group.route === null ? "down" : "up");
  setText(field(card, "work"), work(group));
  if (!rungsOf.has(card)) rungsOf.set(card, list(card.querySelector("tbody"), "rung", ({ rung }) => rung.processor, setRung));
  rungsOf.get(card)(group.rungs.map((rung) => ({ rung, isRoute: rung.processor === group.route, names, now })));
});

function work(group) {
  const parts = [
    `${count(group.workers)} ${group.workers === 1 ? "worker" : "workers"}`,
    `${count(group.active)} running`,
    `${count(group.pending)} waiting`,
    `${count(group.completed)} done`,
    `${count(group.failed)} failed`,
  ];
  for (const name of ["cancelled", "abandoned", "undelivered"]) {
    if (group[name]) parts.push(`${count(group[name])} ${name}`);
  }
  return parts.join(" · ");
}

function setRung(row, { rung, isRoute, names, now }) {
  setData(row, "state", rung.state);
  setData(row, "route", String(isRoute));
  setShape(row, rung.state);
  setText(field(row, "processor"), visible(rung.processor));
  setText(field(row, "state"), STATES[rung.state] + alone(rung, names));
  field(row, "route").hidden = !isRoute;
  setMoment(field(row, "since"), rung.since, now);
  setText(field(row, "by"), rung.by === null ? "" : names(rung.by));
  setText(field(row, "probe"), probe(rung, names, now));
  setText(field(row, "failures"), rung.failures || rung.state !== "up" ? count(rung.failures) : "");
  setText(field(row, "epoch"), rung.epoch ? String(rung.epoch) : "");
}

function alone(rung, names) {
  if (rung.down_alone.length === 0) return "";
  const few = rung.down_alone.length <= 2 ? rung.down_alone.map((origin) => isolated(names(origin))).join(", ") : `${rung.down_alone.length} workers`;
  return `, but down for ${few} alone`;
}

function probe(rung, names, now) {
  if (rung.state === "up") return "";
  if (rung.state === "isolated") return "none before it is reset";
  const failed = rung.failed_probes ? `, ${count(rung.failed_probes)} failed` : "";
  if (rung.prober !== null) {
    const left = rung.probe_until === null ? "" : ` for ${duration(rung.probe_until - now)} at most`;
    return `${isolated(names(rung.prober))} probes${left}${failed}`;
  }
  return rung.next_probe === null ? `none${failed}` : `next ${due(rung.next_probe - now)}${failed}`;
}
