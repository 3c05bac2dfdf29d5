// Overview: what the store holds and owes now, and how fast it commits.

import * as api from "./api.js";
import { count, h, hint, notice, refused, s, seconds } from "./dom.js";
import { last, quantile, samples } from "./metrics.js";
import { bytes, number } from "./values.js";

const EVERY_MS = 2000;
const KEPT = 90;
const NAMES = {
  active: "new rows", sealed: "rows on their way to disk", resident: "rows held for reads", history_indexes: "indexes of history",
  base_indexes: "indexes of base", overlays: "changed rows over base", images: "images", vectors: "vectors",
  recent_writes: "recent writes", lance_caches: "Lance's caches",
};

const tile = (name, value, note, kind = "") => h("div", { class: `tile ${kind}` }, h("dt", null, name), h("dd", null, value), note && h("dd", { class: "note" }, note));
const below = (value) => (value === null ? "–" : value === Infinity ? "above 10 s" : `≤ ${seconds(value)}`);

function tiles(status, metrics, rate) {
  const slowed = status.backpressure.slowed_commits + status.backpressure.stopped_commits;
  const lag = status.visible_seq - status.flushed_seq;
  const [flushed, backup] = [last(metrics, "checkpoint"), last(metrics, "backup")];
  return h("dl", { class: "tiles" },
    tile("Sequence number", number(status.visible_seq), `durable ${number(status.durable_seq)}, past from ${number(status.oldest_seq)}`),
    tile("Commits a second", rate === null ? "–" : number(Math.round(rate * 10) / 10), `${number(status.commits_since_open)} since it was opened`),
    tile("Commit latency", below(quantile(metrics, "siltstone_commit_seconds", 0.5)), `half of them; 99 of 100 ${below(quantile(metrics, "siltstone_commit_seconds", 0.99))}`),
    tile("Not yet in files", number(lag), `${bytes(status.wal_bytes)} of log in ${count(status.wal_segments, "segment")}${flushed ? `, checkpoint ${flushed}` : ""}`),
    tile("Memory", bytes(status.memory.total), `of ${bytes(status.memory.bytes_max)}`),
    tile("Slowed commits", number(slowed), slowed ? `${seconds(status.backpressure.slowed_s + status.backpressure.stopped_s)} in all` : "no writer had to wait", slowed ? "warn" : ""),
    tile("Open transactions", number(status.open_transactions), `${count(status.leases, "lease")} of readers`),
    tile("Last backup", backup ?? "none seen", backup ? "by this server" : "by this server, since it began"),
    status.unshipped === null ? null : tile("Not in the mirror's log", number(status.unshipped), status.shipping ?? "shipped as they are committed", status.shipping ? "warn" : ""),
    status.mirrors.map(mirror));
}

function mirror(each) {
  const state = each.failure ?? (each.behind ? `the oldest of them ${seconds(each.age_s)} old` : `${bytes(each.nbytes)} of files`);
  return tile("Mirror", each.behind ? `${number(each.behind)} behind` : "up to date", `${each.url}, seq ${number(each.seq)}: ${state}`, each.failure ? "warn" : "");
}

function memory(status) {
  const parts = Object.entries(NAMES).map(([name, what]) => [what, status.memory[name] ?? 0]).filter(([, size]) => size > 0).sort((a, b) => b[1] - a[1]);
  if (!parts.length) return hint("Nothing is held in memory.");
  const whole = Math.max(status.memory.bytes_max, status.memory.total);
  let from = 0;
  const bars = parts.map(([, size], at) => {
    const bar = s("rect", { x: from, y: 0, width: (1000 * size) / whole, height: 14, class: `swatch${Math.min(at, 6) + 1}` });
    from += (1000 * size) / whole;
    return bar;
  });
  return [
    s("svg", { class: "share", viewBox: "0 0 1000 14", preserveAspectRatio: "none", role: "img", "aria-label": `${bytes(status.memory.total)} of ${bytes(status.memory.bytes_max)} are used` }, bars),
    h("ul", { class: "legend" }, parts.map(([what, size], at) => h("li", null, s("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, s("rect", { width: 10, height: 10, rx: 2, class: `swatch${Math.min(at, 6) + 1}` })), `${what} ${bytes(size)}`))),
  ];
}

function curve(rates) {
  const most = Math.max(1, ...rates);
  const points = rates.map((rate, at) => `${(1000 * at) / (KEPT - 1)},${70 - (64 * rate) / most}`);
  if (points.length < 2) return hint("The curve begins in a moment.");
  const last = (1000 * (points.length - 1)) / (KEPT - 1);
  return s("svg", { class: "spark", viewBox: "0 0 1000 72", preserveAspectRatio: "none", role: "img", "aria-label": `Commits a second, at most ${number(Math.round(most))}` },
    s("path", { class: "area", d: `M0,70 L${points.join(" L")} L${last},70 Z` }), s("path", { d: `M${points.join(" L")}` }));
}

function owed(status) {
  const found = [];
  if (status.failure) found.push(notice(`Maintenance failed: ${typeof status.failure === "string" ? status.failure : JSON.stringify(status.failure)}`, "bad"));
  if (status.owed?.length) found.push(notice(`Left to \`siltstone maintain\`: ${status.owed.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join(", ")}`, "warn"));
  if (status.is_read_only) found.push(notice("This store is open for reading only."));
  return found;
}

export function overview(main, shared) {
  const place = h("div", { "aria-busy": "true" }, hint("Reading the status …"));
  const { signal } = shared;
  const rates = [];
  let before = null;
  main.append(place);

  async function look() {
    if (signal.aborted) return;
    if (document.visibilityState === "visible") {
      try {
        const [status, text] = await Promise.all([api.get("v1/status", { signal }), api.text("metrics", { signal })]);
        const now = performance.now();
        const rate = before ? (1000 * (status.commits_since_open - before.commits)) / (now - before.at) : null;
        before = { commits: status.commits_since_open, at: now };
        if (rate !== null && rate >= 0) rates.push(rate);
        if (rates.length > KEPT) rates.shift();
        place.replaceChildren(...owed(status), tiles(status, samples(text), rate), h("h2", null, "Commits a second, the last three minutes"), curve(rates),
          h("h2", null, "Memory by share"), ...[memory(status)].flat());
      } catch (error) {
        if (error.name === "AbortError") return;
        before = null;
        place.replaceChildren(refused(error), ...(error.status === 0 ? [hint("This page goes on when it is there again.")] : []));
      }
      place.removeAttribute("aria-busy");
    }
    setTimeout(look, EVERY_MS);
  }
  look();
}
