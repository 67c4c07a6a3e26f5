// The signals as they come, filtered by the dashboard, held here when asked to.

import { $, field, setText } from "./dom.js";
import { Stream } from "./stream.js";
import { clock, count, fullTime, visible } from "./words.js";

const ROWS = 100;

const body = $("signals").tBodies[0];
let stream = null;
let pattern = "*";
let withItems = true;
let isPaused = false;
let names = (origin) => origin;
let [came, unseen, held] = [0, 0, 0];
let made = 0;

export function useNames(given) {
  names = given;
}

function take({ rows, count: all, lost }) {
  came += all;
  if (isPaused) {
    held += all;
  } else {
    unseen += lost;
    body.prepend(...rows.map(rowOf).reverse());
  }
  tell();
}

// The oldest row is taken out and written anew once there are enough: the table never grows beyond its bound.
function takeRow() {
  if (made < ROWS) {
    made += 1;
    return $("signal").content.firstElementChild.cloneNode(true);
  }
  const oldest = body.lastElementChild;
  oldest.remove();
  return oldest;
}

function rowOf([at, signal, key, origin, operation, payload]) {
  const row = takeRow();
  setText(field(row, "at"), clock(at, Date.now() / 1000));
  field(row, "at").title = fullTime(at);
  setText(field(row, "signal"), visible(signal));
  setText(field(row, "key"), visible(key));
  setText(field(row, "origin"), names(origin));
  row.title = operation ? `operation ${visible(operation)}` : "";
  setText(field(row, "payload"), visible(payload));
  return row;
}

function tell() {
  const parts = [`${count(came)} came`];
  if (unseen) parts.push(`${count(unseen)} too many to show`);
  if (isPaused) parts.push(`paused: ${count(held)} not shown`);
  setText($("signals-count"), parts.join(" · "));
}

function open() {
  stream?.close();
  stream = null;
  if (document.hidden) return;
  stream = new Stream(`signals?pattern=${encodeURIComponent(pattern)}&items=${withItems ? 1 : 0}`, {
    signals: take,
    refused: (problem) => {
      setText($("signals-problem"), visible(problem));
      $("pattern").setAttribute("aria-invalid", "true");
      stream.close();
    },
  }, () => {});
  stream.open();
}

function begin() {
  setText($("signals-problem"), "");
  $("pattern").removeAttribute("aria-invalid");
  body.replaceChildren();
  made = 0;
  [came, unseen, held] = [0, 0, 0];
  tell();
  open();
}

export function start() {
  $("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    pattern = $("pattern").value;
    begin();
  });
  $("items").addEventListener("change", () => {
    withItems = $("items").checked;
    begin();
  });
  $("pause").addEventListener("click", () => {
    isPaused = !isPaused;
    held = 0;
    $("pause").setAttribute("aria-pressed", String(isPaused));
    tell();
  });
  // Nobody reads signals on a page that is not seen.
  document.addEventListener("visibilitychange", open);
  open();
}
