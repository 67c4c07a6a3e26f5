// How many signals a second each of the busiest scopes has: a chart of the first few, and a table.

import { $, field, list, setText } from "./dom.js";
import { count, rate, visible } from "./words.js";

const SECONDS = 300;
const LINES = 6;
// A line stays while its scope is still among so many, so that lines do not come and go with every picture.
const KEPT = 12;
// Told apart by their dashes too.
const DASHES = [[], [8, 4], [2, 3], [12, 3, 2, 3], [5, 2], [6, 3, 2, 3, 2, 3]];

let at = [];
let rates = new Map();
let charted = [];
let chart = null;

const rows = list($("scopes").tBodies[0], "scope", ({ scope }) => scope, (row, { scope, value }) => {
  setText(field(row, "scope"), visible(scope));
  setText(field(row, "rate"), rate(value));
  const line = charted.indexOf(scope);
  row.querySelector(".sample").dataset.line = String(line);
  row.querySelector("line").setAttribute("stroke-dasharray", line < 0 ? "" : DASHES[line].join(" "));
});

// Begin with what the dashboard remembers.
export function begin(history) {
  at = history.at;
  rates = new Map(Object.entries(history.rates));
  chart?.destroy();
  chart = null;
}

export function add(picture) {
  if (picture.problem !== null || (at.length && picture.at - at.at(-1) < 0.9)) return;
  const now = new Map(picture.scopes.map((scope) => [scope.scope, scope.count / scope.within]));
  for (const scope of now.keys()) if (!rates.has(scope)) rates.set(scope, new Array(at.length).fill(null));
  at.push(picture.at);
  for (const [scope, values] of rates) values.push(now.get(scope) ?? null);
  const old = at.findIndex((instant) => instant >= picture.at - SECONDS);
  if (old > 0) {
    at.splice(0, old);
    for (const [scope, values] of rates) {
      values.splice(0, old);
      if (values.every((value) => value === null)) rates.delete(scope);
    }
  }
}

export function draw(picture) {
  const busy = picture.scopes.map((scope) => scope.scope);
  const kept = charted.filter((scope) => busy.slice(0, KEPT).includes(scope));
  const wanted = [...kept, ...busy.filter((scope) => !kept.includes(scope))].slice(0, LINES);
  if (chart === null || wanted.join("\n") !== charted.join("\n")) {
    charted = wanted;
    build();
  }
  chart.setData([at, ...charted.map((scope) => rates.get(scope) ?? new Array(at.length).fill(null))]);
  rows(picture.scopes.map((scope) => ({ scope: scope.scope, value: scope.count / scope.within })));
  const more = picture.scopes_known - picture.scopes.length;
  setText($("scopes-more"), more > 0 ? `and ${count(more)} quieter ones` : picture.scopes.length ? "" : "None so far.");
}

export function build() {
  chart?.destroy();
  const place = $("rates");
  const colour = (name) => {
    const probe = place.appendChild(document.createElement("i"));
    probe.className = name;
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };
  const axis = { stroke: colour("ink"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  chart = new uPlot({
    ...size(),
    cursor: { show: false },
    legend: { show: false },
    scales: { x: { range: (_, __, to) => [to - SECONDS, to] }, y: { range: (_, __, most) => [0, Math.max(1, (most ?? 0) * 1.1)] } },
    axes: [{ ...axis, size: 26, space: 70, incrs: [60, 120, 300], values: [[60, "{HH}:{mm}", null, null, null, null, null, null, 1]] }, { ...axis, size: 52 }],
    series: [{}, ...charted.map((scope, line) => ({
      label: visible(scope), stroke: colour(`line-${line}`), width: 2, dash: DASHES[line], points: { show: false },
    }))],
  }, [at, ...charted.map((scope) => rates.get(scope) ?? new Array(at.length).fill(null))], place);
}

function size() {
  return { width: Math.max(200, $("rates").clientWidth - 16), height: 200 };
}

new ResizeObserver(() => chart?.setSize(size())).observe($("rates"));
