// Tables: all of them; and one: its columns, a sample, its indexes, the history of a row.

import * as api from "./api.js";
import { coming, count as counted, grid, h, hint, notice } from "./dom.js";
import { bytes, number } from "./values.js";

const COLUMNS = 40; // of a sample at a time
const ROWS = 25;
const LOOKS = 30; // commits that a history looks at
const to = (name) => `#/table/${encodeURIComponent(name)}`;

function kindOf(type) {
  if (["list", "large_list", "fixed_size_list"].includes(type.type)) return `${kindOf(type.fields[0].type)}[${type.length ?? ""}]`;
  if (type.type === "struct") return `{${type.fields.map((each) => `${each.name}: ${kindOf(each.type)}`).join(", ")}}`;
  return type.type;
}

// Long values are cut by the server, so that a sample of large cells stays small.
function shortened({ name, type }) {
  const column = api.quoted(name);
  if (/^(large_)?utf8$|^string/.test(type.type)) return `CASE WHEN length(${column}) > 300 THEN left(${column}, 250) || ' … (' || length(${column}) || ' characters)' ELSE ${column} END AS ${column}`;
  if (/binary/.test(type.type)) return `octet_length(${column}) || ' bytes' AS ${column}`;
  if (/list$/.test(type.type)) return `${column}[1:8] AS ${column}`;
  return column;
}

async function described(name) {
  const found = await api.post(`v1/table/${encodeURIComponent(name)}/describe?delimiter=%00`, { load_detailed_metadata: true });
  const key = (found.properties?.primary_key ?? "").split(",").filter(Boolean);
  return { fields: found.schema.fields, key };
}

export function tables(main, shared) {
  main.append(coming("the tables", async () => {
    const status = await api.get("v1/status", { signal: shared.signal });
    if (!status.tables.length) return notice("This store has no tables yet. `siltstone create NAME --from file.csv` makes one; so does CREATE TABLE in the SQL view.");
    const counts = status.tables.map((each) => h("span", { "data-table": each.name }, "…"));
    const rows = status.tables.map((each) => [each.name, each.is_keyed ? "keyed" : "plain", each.rows, each.nbytes, each.unmerged_rows, `${each.base_parts} + ${each.history_parts}`, each.indexes.map((index) => index.name).join(", ")]);
    const columns = [["table"], ["kind"], ["rows", "int"], ["bytes", "int"], ["not merged", "int"], ["parts", "int"], ["indexes"]].map(([name, type]) => ({ name, type }));
    const shown = grid(columns, rows, {
      label: "Tables",
      cell: (value, at, line) => (at === 0 ? h("a", { href: to(value) }, value) : at === 2 ? counts[line] : at === 3 ? bytes(value) : at === 4 ? number(value) : null),
    });
    for (const small of shown.querySelectorAll("th small")) small.remove();
    count(status.tables, counts, shared);
    const refused = status.tables.filter((each) => each.refused).map((each) => notice(`${each.name}: Lance refuses rows, ${bytes(each.refused_bytes)} of them wait. ${each.refused}`, "warn"));
    return [...refused, shown];
  }));
}

async function count(all, counts, shared) {
  for (const [at, each] of all.entries()) {
    if (shared.signal.aborted) return undefined;
    try {
      const found = await api.sql(`SELECT count(*) FROM ${api.quoted(each.name)}`, { at: shared.at, signal: shared.signal });
      counts[at].textContent = number(found.rows[0][0]);
    } catch (error) {
      counts[at].textContent = "–";
      if (error.status === 0) return counts.slice(at).forEach((left) => { left.textContent = "–"; }); // it stopped: no count comes
    }
  }
  return undefined;
}

export function table(main, shared, [name]) {
  main.append(coming("the table", async () => {
    const [{ fields, key }, status] = await Promise.all([described(name), api.get("v1/status")]);
    const found = status.tables.find((each) => each.name === name);
    const indexes = found?.indexes ?? [];
    return [
      h("p", { class: "soft" }, key.length ? `Its key is ${key.join(", ")}. ` : "It has no key. ", `${counted(fields.length, "column")}.`,
        found && ` ${bytes(found.nbytes)} in ${counted(found.base_parts, "part")} of base and ${found.history_parts} of history; ${counted(found.unmerged_rows, "row version")} not merged.`),
      h("h2", null, "Rows"), sample(name, fields, key, shared),
      key.length ? h("h2", null, "History of a row") : null, key.length ? history(name, fields, key, shared) : null,
      h("h2", null, "Columns"),
      grid(["column", "type", "role", "comment"].map((each) => ({ name: each })), fields.map((each) => [each.name, kindOf(each.type), key.includes(each.name) ? "key" : each.nullable ? "" : "not null", each.metadata?.comment ?? ""]), { label: "Columns" }),
      h("h2", null, "Indexes"), indexes.length ? listed(indexes) : hint("None. Merges keep an index up to date; see `siltstone index`."),
    ].filter(Boolean);
  }));
}

const listed = (indexes) => grid(["index", "kind", "column", "rows behind", "size", "recall"].map((each) => ({ name: each })),
  indexes.map((each) => [each.name, each.kind, each.column, number(each.lagging_rows), bytes(each.nbytes), each.recall === null ? "–" : each.recall.toFixed(3)]), { label: "Indexes" });

function sample(name, fields, key, shared) {
  let first = 0;
  const place = h("div");
  const pages = h("div", { class: "row" });
  const draw = () => {
    const chosen = fields.slice(first, first + COLUMNS);
    const columns = chosen.map(shortened).join(", ");
    const order = key.length === 1 ? ` ORDER BY ${api.quoted(key[0])}` : "";
    place.replaceChildren(coming("rows", async () => {
      const found = await api.sql(`SELECT ${columns} FROM ${api.quoted(name)}${order} LIMIT ${ROWS}`, { at: shared.at, signal: shared.signal });
      return found.rows.length ? grid(found.columns, found.rows, { label: `Rows of ${name}` }) : hint("No rows.");
    }));
    pages.replaceChildren(...(fields.length <= COLUMNS ? [] : [
      h("button", { type: "button", disabled: first === 0, onclick: () => { first -= COLUMNS; draw(); } }, "Columns before"),
      h("span", { class: "soft" }, `columns ${first + 1} to ${Math.min(first + COLUMNS, fields.length)} of ${number(fields.length)}`),
      h("button", { type: "button", disabled: first + COLUMNS >= fields.length, onclick: () => { first += COLUMNS; draw(); } }, "Columns after")]));
  };
  draw();
  return h("div", null, pages, place);
}

// Reads the row at each commit that changed its table, newest first, and shows where it differs.
function history(name, fields, key, shared) {
  const inputs = key.map((each) => h("input", { name: each, required: true, size: 14 }));
  const place = h("div");
  const form = h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    place.replaceChildren(coming("its history", async () => {
      const { commits } = await api.get("v1/log?limit=2000", { signal: shared.signal });
      const touched = commits.filter((each) => each.tables.includes(name)).slice(0, LOOKS);
      const types = key.map((each) => kindOf(fields.find((field) => field.name === each).type));
      const values = inputs.map((each, at) => (/^u?int/.test(types[at]) ? Number(each.value) : each.value));
      const where = key.map((each) => `${api.quoted(each)} = ?`).join(" AND ");
      const columns = fields.slice(0, COLUMNS).map(shortened).join(", ");
      const seen = [];
      for (const commit of touched) {
        const found = await api.sql(`SELECT ${columns} FROM ${api.quoted(name)} WHERE ${where}`, { parameters: values, at: `seq:${commit.seq}`, signal: shared.signal });
        seen.push([commit, found.rows[0] ?? null]);
      }
      const differ = seen.filter(([, row], at) => at === seen.length - 1 || JSON.stringify(row) !== JSON.stringify(seen[at + 1][1]));
      if (!differ.some(([, row]) => row)) return hint(`No row has this key, in the last ${touched.length} commits of the table.`);
      const rows = differ.map(([commit, row]) => [commit.seq, commit.time, ...(row ?? fields.slice(0, COLUMNS).map(() => null))]);
      return [hint(`Looked at the last ${touched.length} commits of the table.`),
        grid([{ name: "seq", type: "int" }, { name: "time" }, ...fields.slice(0, COLUMNS).map((each) => ({ name: each.name }))], rows,
          { label: "History", rowClass: (line) => (differ[line][1] ? null : "removed") })];
    }));
  } }, key.map((each, at) => h("label", null, each, inputs[at])), h("button", null, "Show"));
  return h("div", null, form, place);
}

