// The workers, and the server between them.

import { $, field, list, setData, setText } from "./dom.js";
import { bytes, count, duration, fullTime, milliseconds, visible } from "./words.js";

const rows = list($("workers").tBodies[0], "worker", ({ worker }) => worker.origin, (row, { worker, hasBus, now }) => {
  setText(field(row, "name"), visible(worker.name));
  field(row, "name").title = `${visible(worker.name)}, ${visible(worker.origin)} on the bus`;
  setData(row, "state", worker.is_degraded ? "down" : "up");
  setText(field(row, "bus"), worker.is_degraded ? "alone" : hasBus ? "reached" : "none");
  const degraded = worker.degraded_seconds ? `${duration(worker.degraded_seconds)} without it in all; reached again ${count(worker.reconnects)} times` : "";
  if (field(row, "bus").title !== degraded) field(row, "bus").title = degraded;
  for (const name of ["active", "pending", "raised", "sent", "outbox", "dropped", "remote", "missed"]) setText(field(row, name), count(worker[name]));
  const errors = { undecodable: worker.undecodable, undelivered: worker.undelivered, "of listeners": worker.listener_errors };
  setText(field(row, "errors"), count(Object.values(errors).reduce((sum, number) => sum + number)));
  field(row, "errors").title = Object.entries(errors).map(([name, number]) => `${count(number)} ${name}`).join(", ");
  for (const name of ["dropped", "missed", "errors"]) setData(field(row, name), "some", String(field(row, name).textContent !== "0"));
  setText(field(row, "lag"), milliseconds(worker.lag));
  setText(field(row, "version"), visible(`${worker.version} · ${worker.python}`));
  setText(field(row, "started"), duration(now - worker.started));
  field(row, "started").title = fullTime(worker.started);
  setText(field(row, "told"), `${duration(now - worker.told)} ago`);
});

export function workers(picture, now) {
  // One process that watches itself without a bus has no namespace.
  const hasBus = picture.namespace !== "";
  rows(picture.workers.map((worker) => ({ worker, hasBus, now })));
  const more = picture.workers_known - picture.workers.length;
  $("workers").tHead.hidden = picture.workers.length === 0;
  setText($("workers-more"), more > 0 ? `and ${count(more)} more` : picture.workers.length ? "" : "None has told of itself lately.");
  setText($("server"), picture.server === null ? "" : server(picture.server));
}

function server({ kind, version, latency, used_memory: used, max_memory: most, policy }) {
  const parts = [`${visible(kind)} ${visible(version)}`, `answers in ${milliseconds(latency)}`];
  if (used !== null) parts.push(`${bytes(used)}${most ? ` of ${bytes(most)}` : " used, no limit"}`);
  if (policy !== null) parts.push(visible(policy));
  return parts.join(" · ");
}
