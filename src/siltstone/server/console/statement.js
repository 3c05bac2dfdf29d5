// SQL: one statement, now or as of a moment; its plan; its rows as a file.

import * as api from "./api.js";
import { grid, h, hint, notice, refused, save, seconds } from "./dom.js";
import { number } from "./values.js";

const MOST = 1000;
const KEPT = "siltstone.statement";

export function statement(main, shared) {
  const field = h("textarea", { spellcheck: "false", id: "statement", "aria-describedby": "keys" });
  field.value = sessionStorage.getItem(KEPT) ?? "SELECT 42 AS answer";
  const place = h("div", { "aria-live": "polite" });
  const moments = h("select", { id: "moment" });
  const typed = h("input", { id: "typed", placeholder: "seq, or a time with its zone", size: 24 });
  let running = null;
  fill(moments, shared);
  moments.addEventListener("change", () => { typed.hidden = moments.value !== "other"; });
  typed.hidden = true;

  const at = () => (moments.value === "other" ? (/^\d+$/.test(typed.value.trim()) ? `seq:${typed.value.trim()}` : `at:${typed.value.trim()}`) : moments.value || null);
  const stop = h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Stop");

  async function run(before = "") {
    running?.abort();
    const mine = running = new AbortController();
    sessionStorage.setItem(KEPT, field.value);
    shared.signal.addEventListener("abort", () => mine.abort());
    stop.hidden = false;
    place.replaceChildren(hint("It runs …"));
    const begun = performance.now();
    try {
      const found = await api.sql(before + field.value, { at: at(), most: MOST, signal: mine.signal, areCut: before === "" });
      place.replaceChildren(...answer(found, (performance.now() - begun) / 1000, before !== ""));
    } catch (error) {
      if (running !== mine) return;
      place.replaceChildren(error.name === "AbortError" ? hint("It was stopped.") : spelled(error));
    } finally {
      if (running === mine) stop.hidden = true;
    }
  }

  async function download(format) {
    try {
      save(await api.file(field.value, format, at()), `rows.${format}`);
    } catch (error) { place.replaceChildren(spelled(error)); }
  }

  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
  });
  main.append(
    h("label", null, "Statement", field),
    h("p", { class: "soft", id: "keys" }, "Ctrl+Enter runs it. INSERT, UPDATE and the like commit at once, if your token may write."),
    h("div", { class: "row" },
      h("button", { type: "button", class: "main", onclick: () => run() }, "Run"), stop,
      h("button", { type: "button", onclick: () => run("EXPLAIN ") }, "Plan"),
      h("button", { type: "button", onclick: () => download("csv") }, "CSV"),
      h("button", { type: "button", onclick: () => download("parquet") }, "Parquet"),
      h("label", null, "As of", moments), h("label", null, "Moment", typed)),
    place);
  typed.parentElement.hidden = true;
  moments.addEventListener("change", () => { typed.parentElement.hidden = typed.hidden; });
}

async function fill(moments, shared) {
  moments.append(h("option", { value: "" }, "now"));
  if (shared.at) moments.append(h("option", { value: shared.at, selected: true }, shared.at.replace(":", " ")));
  moments.append(h("option", { value: "other" }, "another moment …"));
  try {
    const status = await api.get("v1/status", { signal: shared.signal });
    const tags = Object.keys(status.tags ?? {}).map((tag) => h("option", { value: `tag:${tag}` }, `tag ${tag}`));
    moments.lastElementChild.before(...tags);
  } catch { /* the statement will say it */ }
}

function answer(found, took, isPlan) {
  const seq = found.seq === null ? "" : `, seq ${number(found.seq)}`;
  if (isPlan) return found.rows.map((row) => h("pre", { tabindex: "0" }, row.at(-1)));
  if (found.written !== null) return [notice(`${number(found.written)} rows written${seq}, ${seconds(took)}`), ...(found.rows.length ? [grid(found.columns, found.rows)] : [])];
  const count = found.isWhole ? `${number(found.rows.length)} rows` : `the first ${number(found.rows.length)} rows; CSV and Parquet have all`;
  return [h("p", { class: "soft" }, `${count}${seq}, ${seconds(took)}`), ...(found.columns.length ? [grid(found.columns, found.rows, { label: "Result" })] : [])];
}

function spelled(error) {
  const shown = refused(error);
  shown.classList.add("mono");
  if (error.status === 0) shown.append(" If the statement was to write, look whether it did before you run it again.");
  return shown;
}
