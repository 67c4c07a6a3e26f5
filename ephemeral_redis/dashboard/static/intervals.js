// What state a rung was in, when: pure.

// Which state each kind of change leads to; those not named here are steps on the way.
const LEADS_TO = { down: "down", restored: "up", reset: "up", isolated: "isolated", forgotten: "up" };

// And which one they can only have come from, so that the time before the first that is remembered is known too.
const COMES_FROM = { down: "up", restored: "down" };

// Return [{state, from, to}] of a rung between two instants, from *changes*, the latest first. "unknown": nobody told.
export function intervals(rung, changes, from, to) {
  const edges = changes
    .filter((change) => change.processor === rung.processor && change.is_edge && change.kind in LEADS_TO)
    .map((change) => ({ at: change.at, state: LEADS_TO[change.kind], before: COMES_FROM[change.kind] }))
    .reverse();
  const state = rung.state === "probing" ? "down" : rung.state;
  const last = edges.at(-1);
  // The rung's own row is what counts: changes may have been trimmed, or come a moment later.
  if (rung.since !== null && (last === undefined || last.state !== state)) edges.push({ at: rung.since, state });
  const spans = [];
  let current = { state: edges.length ? edges[0].before ?? "unknown" : state, from };
  for (const edge of edges) {
    if (edge.at > from && edge.at <= to) {
      if (edge.at > current.from) spans.push({ ...current, to: edge.at });
      current = { state: edge.state, from: edge.at };
    } else if (edge.at <= from) {
      current = { state: edge.state, from };
    }
  }
  if (to > current.from) spans.push({ ...current, to });
  return spans;
}

// Instants for an axis: at most six and at most *most*, at round times of the viewer's clock.
export function ticks(from, to, most, offset = new Date(to * 1000).getTimezoneOffset() * 60) {
  const fit = Math.max(1, Math.min(6, most));
  const step = [60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200].find((seconds) => (to - from) / seconds <= fit) ?? 86400;
  const first = Math.ceil((from - offset) / step) * step + offset;
  const all = [];
  for (let at = first; at <= to; at += step) all.push(at);
  return all;
}
