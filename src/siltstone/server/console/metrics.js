// Metrics: the text of /metrics, and what is read out of it.

import { ago, seconds } from "./dom.js";

// Returns the samples of a text of Prometheus as {name: [[labels, value], ...]}.
export function samples(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const [, name, labels, value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
    if (name) (found[name] ??= []).push([labels ?? "", Number(value)]);
  }
  return found;
}

// The bound below which a share of a histogram lies: buckets are counts up to each bound.
export function quantile(found, name, share) {
  const buckets = (found[`${name}_bucket`] ?? []).map(([labels, count]) => [Number(/le="([^"]+)"/.exec(labels)[1].replace("+Inf", "Infinity")), count]);
  const all = buckets.at(-1)?.[1];
  return all ? buckets.find(([, count]) => count >= share * all)[0] : null;
}

// When the last work of a kind ended, in words; null: never in this process.
export function last(metrics, kind) {
  const found = (metrics.siltstone_last_timestamp_seconds ?? []).find(([labels]) => labels === `work="${kind}"`);
  return found ? ago(found[1] * 1000) : null;
}

// What this process did of one kind, as [kind, how often, the last time, how long on average].
export function work(metrics, kind) {
  const [[, runs] = [null, 0]] = metrics[`siltstone_${kind}_seconds_count`] ?? [];
  const [[, took] = [null, 0]] = metrics[`siltstone_${kind}_seconds_sum`] ?? [];
  return [kind, runs, last(metrics, kind) ?? "–", runs ? seconds(took / runs) : "–"];
}
