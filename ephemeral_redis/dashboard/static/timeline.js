// When each rung was in which state, as bands over time, and the changes as a list.

import { $, field, list, setData, setShapes, setText } from "./dom.js";
import { intervals, ticks } from "./intervals.js";
import { setMoment } from "./ladders.js";
import { clock, kind, visible } from "./words.js";

const BANDS = 24;
const LISTED = 60;
// Where a band begins and how high it is, of 20: how things stand shows without colour too.
const SHAPES = { up: [9, 2], down: [2, 16], isolated: [5, 10], unknown: [9, 2] };

const bands = list($("bands"), "band", ({ rung }) => rung.processor, (row, { rung, changes, from, now }) => {
  setText(field(row, "processor"), visible(rung.processor));
  const percent = (at) => `${(((at - from) / (now - from)) * 100).toFixed(2)}%`;
  const spans = intervals(rung, changes, from, now).map((span) => ({
    class: span.state, x: percent(span.from), y: String(SHAPES[span.state][0]),
    height: String(SHAPES[span.state][1]), width: `${(((span.to - span.from) / (now - from)) * 100).toFixed(2)}%`,
  }));
  const probes = changes.filter((change) => change.processor === rung.processor && change.at > from && !change.is_edge && change.kind.startsWith("probe "));
  const marks = probes.map((change) => ({ class: "probe", x: percent(change.at), y: "0", height: "20", width: "1" }));
  setShapes(row.querySelector("svg"), "rect", [...spans, ...marks]);
});

const listed = list($("changes").tBodies[0], "change", ({ change }) => `${change.at} ${change.processor} ${change.kind} ${change.epoch}`, (row, { change, names, now }) => {
  setMoment(field(row, "at"), change.at, now);
  setText(field(row, "processor"), visible(change.processor));
  setText(field(row, "kind"), kind(change));
  setText(field(row, "by"), names(change.by));
  setData(row, "edge", String(change.is_edge));
});

export function timeline(picture, names, now, seconds) {
  const from = now - seconds;
  const changes = picture.changes.filter((change) => change.is_edge || $("probes").checked);
  const rungs = picture.groups.flatMap((group) => group.rungs).slice(0, BANDS);
  bands(rungs.map((rung) => ({ rung, changes, from, now })));
  setAxis(from, now);
  listed(changes.slice(0, LISTED).map((change) => ({ change, names, now })));
  $("changes").tHead.hidden = changes.length === 0;
  $("changes-none").hidden = changes.length > 0;
}

function setAxis(from, to) {
  const axis = $("axis");
  // A label that would be cut off at either end says nothing.
  const instants = ticks(from, to, axis.clientWidth / 64).filter((at) => Math.abs((at - from) / (to - from) - 0.5) < 0.47);
  while (axis.childElementCount > instants.length) axis.lastElementChild.remove();
  instants.forEach((at, index) => {
    const label = axis.children[index] ?? axis.appendChild(document.createElement("span"));
    setText(label, clock(at, to).slice(-8, -3));
    label.style.left = `${((at - from) / (to - from)) * 100}%`;
  });
}
