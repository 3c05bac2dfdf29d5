// Jobs: what maintains the store, what holds its past, and what is open.

import * as api from "./api.js";
import { ago, coming, count, grid, h, hint, notice, refused } from "./dom.js";
import { samples, work } from "./metrics.js";
import { number } from "./values.js";

const KINDS = ["checkpoint", "merge", "optimize"];
const WORKS = [...KINDS, "vacuum", "backup"];

export function jobs(main, shared) {
  const said = h("div", { "aria-live": "polite" });
  const place = h("div");
  const draw = () => place.replaceChildren(coming("the jobs", () => all(shared)));
  const begin = async (kind) => {
    try {
      const job = await api.post(`v1/${kind}`);
      said.replaceChildren(notice(`${kind}: ${job.status}`));
    } catch (error) { said.replaceChildren(refused(error), ...(error.status === 0 ? [hint("Whether it begins is not known.")] : [])); }
    draw();
  };
  main.append(h("div", { class: "row" }, KINDS.map((kind) => h("button", { type: "button", onclick: () => begin(kind) }, kind[0].toUpperCase() + kind.slice(1))),
    h("button", { type: "button", class: "quiet", onclick: draw }, "Look again")), said, place);
  draw();
}

async function all(shared) {
  const { signal } = shared;
  const [{ jobs: found }, status, text] = await Promise.all([api.get("v1/jobs", { signal }), api.get("v1/status", { signal }), api.text("metrics", { signal })]);
  const metrics = samples(text);
  const columns = ["job", "kind", "state", "result"].map((name) => ({ name }));
  const others = status.jobs.map((each) => [each.id, each.kind || "?", each.state, each.tables.join(", "), `${each.pid} on ${each.host}`, ago(each.started_us / 1000), each.tasks]);
  return [
    h("h2", null, "Asked of this server"),
    found.length ? grid(columns, found.toReversed().map((each) => [each.id, each.kind, each.status, each.error ?? (each.result ? resulted(each.result) : "")])) : hint("None yet."),
    h("h2", null, "Running in this store, from any process"),
    others.length ? grid(["job", "kind", "state", "tables", "process", "began", "tasks done"].map((name) => ({ name })), others, { label: "Running" }) : hint("None."),
    h("h2", null, "Done since the server began, also by itself"),
    grid(["work", "runs", "last", "on average"].map((name) => ({ name })), WORKS.map((kind) => work(metrics, kind)), { label: "Done" }),
    h("h2", null, "What holds the past"),
    h("p", null, `${count(status.leases, "lease")} of readers, ${count(status.open_transactions, "open transaction")}, ${count(Object.keys(status.tags ?? {}).length, "tag")}. The store keeps seq ${number(status.oldest_seq)} to ${number(status.visible_seq)}.`),
    status.owed?.length ? notice(`Left to \`siltstone maintain\`: ${JSON.stringify(status.owed)}`, "warn") : null,
  ].filter(Boolean);
}

// Work that lost to others is no failure: it says why, and how often it was planned.
function resulted({ outcome, replans = [], ...found }) {
  if (outcome === "Deferred") return `deferred after ${count(found.attempts, "plan")}: ${found.reason}`;
  const facts = Object.entries(found).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  return replans.length ? `${facts}; planned again ${count(replans.length, "time")}: ${[...new Set(replans)].join("; ")}` : facts;
}
