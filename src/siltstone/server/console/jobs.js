// Jobs: what maintains the store, what holds its past, and what is open.

import * as api from "./api.js";
import { coming, count, grid, h, hint, notice, number, refused } from "./dom.js";

const KINDS = ["checkpoint", "merge", "optimize"];

export function jobs(main, shared) {
  const said = h("div", { "aria-live": "polite" });
  const place = h("div");
  const draw = () => place.replaceChildren(coming("the jobs", () => all(shared)));
  const begin = async (kind) => {
    try {
      const job = await api.post(`v1/${kind}`);
      said.replaceChildren(notice(`${kind}: ${job.status}`));
    } catch (error) { said.replaceChildren(refused(error)); }
    draw();
  };
  main.append(h("div", { class: "row" }, KINDS.map((kind) => h("button", { type: "button", onclick: () => begin(kind) }, kind[0].toUpperCase() + kind.slice(1))),
    h("button", { type: "button", class: "quiet", onclick: draw }, "Look again")), said, place);
  draw();
}

async function all(shared) {
  const [{ jobs: found }, status] = await Promise.all([api.get("v1/jobs", { signal: shared.signal }), api.get("v1/status", { signal: shared.signal })]);
  const columns = ["job", "kind", "state", "result"].map((name) => ({ name }));
  const others = status.jobs.map((each) => [each.id ?? "", each.kind ?? "", each.state ?? each.phase ?? "", JSON.stringify(each)]);
  return [
    h("h2", null, "Asked of this server"),
    found.length ? grid(columns, found.toReversed().map((each) => [each.id, each.kind, each.status, each.error ?? (each.result ? resulted(each.result) : "")])) : hint("None yet."),
    h("h2", null, "Running in this store, from any process"),
    others.length ? grid(columns, others) : hint("None."),
    h("h2", null, "What holds the past"),
    h("p", null, `${count(status.leases, "lease")} of readers, ${count(status.open_transactions, "open transaction")}, ${count(Object.keys(status.tags ?? {}).length, "tag")}. The store keeps seq ${number(status.oldest_seq)} to ${number(status.visible_seq)}.`),
    status.owed?.length ? notice(`Left to \`siltstone maintain\`: ${JSON.stringify(status.owed)}`, "warn") : null,
  ].filter(Boolean);
}

// Replans and their reasons stand in the result where a job had to begin again.
const resulted = (result) => Object.entries(result).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
