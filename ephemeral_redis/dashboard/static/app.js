// The page: what is sent to it, drawn; and how old that is.

import { $, setData, setText } from "./dom.js";
import { headline, ladders } from "./ladders.js";
import * as rates from "./rates.js";
import * as signals from "./signals.js";
import { Stream } from "./stream.js";
import { timeline } from "./timeline.js";
import { workers } from "./workers.js";
import { clock, count, duration, isolated, kind, visible } from "./words.js";

// Seconds after which what is shown is no longer called live: a picture comes each second.
const LATE = 2.5;

let picture = null;
let receivedAt = 0;
let drawnAt = 0;
let isConnected = false;
let newestEdge = null;

// The bus's clock, carried on by this machine's steady one: a browser whose clock is wrong shows right spans.
function now() {
  return picture.at + (performance.now() - receivedAt) / 1000;
}

function takePicture(taken) {
  picture = taken;
  receivedAt = performance.now();
  rates.add(picture);
  announce();
  draw();
}

function draw() {
  drawnAt = performance.now();
  setFreshness();
  if (picture === null) return;
  const workersByOrigin = new Map(picture.workers.map((worker) => [worker.origin, worker.name]));
  const names = (origin) => visible(workersByOrigin.get(origin) ?? origin);
  const at = now();
  setText($("namespace"), visible(picture.namespace || "this process"));
  headline(picture.headline.map((sentence, index) => ({ index, sentence, now: at })));
  ladders(picture.groups.map((group) => ({ group, names, now: at })));
  const more = picture.groups_known - picture.groups.length;
  $("ladders-more").hidden = more <= 0;
  setText($("ladders-more"), `and ${count(more)} more ladders`);
  timeline(picture, names, at, Number(document.querySelector("[name=range]:checked").value));
  if (!document.hidden) rates.draw(picture);
  workers(picture, at);
  signals.useNames(names);
  setTitle();
}

function setFreshness() {
  const place = $("freshness");
  if (picture === null) {
    setData(place, "state", isConnected ? "waiting" : "lost");
    setText($("freshness-text"), isConnected ? "Waiting for the first picture" : "The dashboard does not answer; asking again");
    return;
  }
  const age = picture.age + (performance.now() - receivedAt) / 1000;
  const seen = `${clock(picture.read_at, now())} (${duration(age)} ago)`;
  const state = !isConnected ? "lost" : picture.problem !== null ? "old" : age > LATE ? "late" : "live";
  setData(place, "state", state);
  document.documentElement.dataset.freshness = state;
  setText($("freshness-text"), {
    live: `Live, as of ${clock(picture.read_at, now())}`,
    late: `As of ${seen}`,
    old: `The bus does not answer; as of ${seen}`,
    lost: `The dashboard does not answer; as of ${seen}`,
  }[state]);
}

function setTitle() {
  const worst = picture.headline[0].level;
  const [icon, mark] = { down: ["down.svg", "✕ "], warning: ["warning.svg", "! "], good: ["good.svg", ""] }[worst];
  const name = picture.headline[0].parts.find((part) => "name" in part)?.name;
  const what = picture.problem !== null ? "bus not read" : worst === "good" ? "" : isolated(name);
  const title = [`${mark}${what}`, isolated(picture.namespace), "ephemeral"].filter((part) => part.trim() && part !== isolated("")).join(" · ");
  if (document.title !== title) document.title = title;
  const link = document.querySelector("link[rel=icon]");
  const wanted = isConnected ? icon : "unknown.svg";
  if (link.getAttribute("href") !== wanted) link.setAttribute("href", wanted);
}

// Tell those who listen to the page of each edge, and of nothing that comes with every tick.
function announce() {
  const edges = picture.changes.filter((change) => change.is_edge);
  const fresh = newestEdge === null ? [] : edges.filter((change) => change.at > newestEdge).slice(0, 3);
  newestEdge = edges[0]?.at ?? newestEdge ?? 0;
  if (fresh.length) {
    setText($("announcer"), fresh.reverse().map((change) => `${isolated(change.processor)} ${kind(change)} at ${clock(change.at, now())}.`).join(" "));
  }
}

function setConnected(is) {
  if (is === isConnected) return;
  isConnected = is;
  if (picture !== null) setText($("announcer"), is ? "The dashboard answers again." : "The dashboard does not answer.");
  draw();
}

function startTheme() {
  const chosen = document.documentElement.dataset.theme ?? "system";
  document.querySelector(`[name=theme][value=${chosen}]`).checked = true;
  $("theme").addEventListener("change", (event) => {
    const theme = event.target.value;
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("ephemeral-theme", theme); } catch { /* then it holds until the page is left */ }
    rates.build();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", rates.build);
}

startTheme();
for (const choice of ["range", "probes"]) $(choice).addEventListener("change", () => picture !== null && draw());
new Stream("pictures", { rates: rates.begin, picture: takePicture }, setConnected, { isChatty: true }).open();
signals.start();
// While nothing comes, ages grow all the same.
setInterval(() => { if (performance.now() - drawnAt > 900) draw(); }, 1000);
