// Search: by words, or by the vector of a row that is there.

import * as api from "./api.js";
import { coming, grid, h, hint, notice } from "./dom.js";

export function search(main, shared) {
  main.append(coming("the indexes", async () => {
    const status = await api.get("v1/status", { signal: shared.signal });
    const found = status.tables.flatMap((each) => each.indexes.filter((index) => ["fts", "vector"].includes(index.kind)).map((index) => ({ table: each.name, ...index })));
    if (!found.length) return notice("No table has an index of words or of vectors. `siltstone index create TABLE COLUMN --kind fts` makes one of words.");
    const place = h("div", { "aria-live": "polite" });
    const chosen = h("select", null, found.map((each, at) => h("option", { value: String(at) }, `${each.table}.${each.column}, ${each.kind === "fts" ? "words" : "vectors"}`)));
    const asked = h("input", { required: true, size: 28 });
    const what = h("span");
    const most = h("input", { type: "number", min: 1, max: 1000, value: "10", required: true });
    const named = () => { what.textContent = found[chosen.value].kind === "fts" ? "Words" : "Key of a row whose neighbours are wanted"; };
    chosen.addEventListener("change", named);
    named();
    return [h("form", { class: "row", onsubmit: (event) => {
      event.preventDefault();
      place.replaceChildren(coming("what is near", () => near(found[chosen.value], asked.value, Number(most.value), shared)));
    } }, h("label", null, "Index", chosen), h("label", null, what, asked), h("label", null, "Rows", most), h("button", { class: "main" }, "Search")), place];
  }));
}

async function near(index, asked, k, shared) {
  const described = await api.post(`v1/table/${encodeURIComponent(index.table)}/describe?delimiter=%00`, { load_detailed_metadata: true });
  const key = described.properties?.primary_key;
  const shown = described.schema.fields.filter((each) => !/list$|binary/.test(each.type.type)).map((each) => api.quoted(each.name)).join(", ");
  const more = { at: shared.at, signal: shared.signal };
  let parameter = asked;
  if (index.kind === "vector") {
    if (!key || key.includes(",")) return notice("Neighbours of a row are for tables whose key is one column; elsewhere the SQL view takes a vector: search('t', [..], k => 10).", "warn");
    const type = described.schema.fields.find((each) => each.name === key).type.type;
    const row = await api.sql(`SELECT ${api.quoted(index.column)} FROM ${api.quoted(index.table)} WHERE ${api.quoted(key)} = ?`, { ...more, areCut: false, parameters: [/^u?int/.test(type) ? Number(asked) : asked] });
    if (!row.rows.length) return notice(`No row has the key ${asked}.`, "warn");
    [[parameter]] = row.rows;
    if (!parameter) return notice("This row has no vector.", "warn");
  }
  const found = await api.sql(`SELECT ${shown} FROM search(${api.literal(index.table)}, ?, column => ${api.literal(index.column)}, k => ${k})`, { ...more, parameters: [parameter] });
  return found.rows.length ? grid(found.columns, found.rows, { label: "Found" }) : hint("Nothing was found.");
}
