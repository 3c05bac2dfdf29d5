// Elements, and how values are written. Nothing is made of text that could be markup.

import { number, shown } from "./values.js";

const SVG = "http://www.w3.org/2000/svg";

function filled(element, given, children) {
  for (const [name, value] of Object.entries(given ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !(element instanceof SVGElement) && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

export const h = (tag, given, ...children) => filled(document.createElement(tag), given, children);
export const s = (tag, given, ...children) => filled(document.createElementNS(SVG, tag), given, children);

export function seconds(value) {
  if (value === null) return "–";
  if (value < 1e-3) return `${Math.round(value * 1e6)} µs`;
  return value < 1 ? `${(value * 1e3).toFixed(value < 0.01 ? 1 : 0)} ms` : `${value.toFixed(1)} s`;
}

export function ago(time) {
  const past = Math.max(0, (Date.now() - new Date(time).getTime()) / 1000);
  if (past < 90) return `${Math.round(past)} s ago`;
  if (past < 5400) return `${Math.round(past / 60)} min ago`;
  return past < 129600 ? `${Math.round(past / 3600)} h ago` : `${Math.round(past / 86400)} days ago`;
}

const NUMBERS = /^(u?int|float|double|half|decimal)/;

// A table of rows. `columns` are {name, type}; `cell` may give another element for a value.
export function grid(columns, rows, { label, cell, rowClass } = {}) {
  const kinds = columns.map((each) => (NUMBERS.test(each.type ?? "") ? "number" : null));
  const head = columns.map((each, at) => h("th", { scope: "col", class: kinds[at], title: each.name }, each.name, each.type && h("small", null, each.type)));
  const body = rows.map((row, line) => h("tr", { class: rowClass?.(line) }, row.map((value, at) => {
    const own = cell?.(value, at, line);
    if (own) return h("td", { class: kinds[at] }, own);
    const text = shown(value, columns[at].type);
    return h("td", { class: value === null || value === undefined ? "null" : kinds[at], title: text.length > 40 ? text : null }, text);
  })));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label ?? "Rows" },
    h("table", null, h("thead", null, h("tr", null, head)), h("tbody", null, body)));
}

export const notice = (text, kind = "") => h("p", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : "status" }, text);
export const count = (value, one, more = `${one}s`) => `${number(value)} ${Number(value) === 1 ? one : more}`;
export const hint = (text) => h("p", { class: "hint" }, text);

// Shows what `make` gives when it came, and until then that it is on its way; or why it did not come.
export function coming(what, make) {
  const place = h("div");
  const begin = () => {
    place.setAttribute("aria-busy", "true");
    place.replaceChildren(hint(`Reading ${what} …`));
    Promise.resolve().then(make).then(
      (found) => place.replaceChildren(...[found].flat()),
      (error) => { if (error.name !== "AbortError") place.replaceChildren(refused(error), ...again(error, begin)); },
    ).finally(() => place.removeAttribute("aria-busy"));
  };
  begin();
  return place;
}

// A button that asks once more, where there was no answer.
export const again = (error, ask) => (error.status === 0 ? [h("button", { type: "button", onclick: ask }, "Try again")] : []);

export function refused(error) {
  if (error.status === 403) return notice(`Your token may not do this. ${error.message}`, "warn");
  if (error.status === 401) document.dispatchEvent(new CustomEvent("unknown-token"));
  return notice(error.message, "bad");
}

export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
