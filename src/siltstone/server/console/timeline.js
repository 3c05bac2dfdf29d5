// Timeline: the newest commits, a lane for each table, what was published between them, and what
// differs between two of them.

import * as api from "./api.js";
import { coming, count, grid, h, hint, notice, refused, s } from "./dom.js";
import { cut, number, shown } from "./values.js";

const COMMITS = 240;
const PUBLISHES = 240;
const TOP = 26; // the tags, above the lanes
const LANE = 26; // as in style.css
const STEP = 9;
const ROWS = 500;
const NAMES = 20; // of the tables of a commit, in its words
const WORKS = ["open", "checkpoint", "merge", "optimize", "index", "vacuum", "repair"];

export function timeline(main, shared) {
  main.append(coming("the newest commits", async () => {
    const { signal } = shared;
    const [{ commits }, status, published] = await Promise.all([api.get(`v1/log?limit=${COMMITS}`, { signal }), api.get("v1/status", { signal }), publishes(signal)]);
    if (!commits.length) return notice("Nothing was committed yet.");
    commits.reverse();
    const events = inOrder(commits, published.records);
    const chosen = h("div", { "aria-live": "polite" }, hint("Choose a commit or a publish: with the mouse, or with Tab and Enter."));
    const pick = ({ commit, record }) => chosen.replaceChildren(commit ? card(commit, commits, shared) : publishCard(record, shared));
    const names = [...new Set(commits.flatMap((each) => each.tables))].sort();
    const lanes = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Timeline" },
      h("div", { class: "lanes" },
        h("div", { class: "names" }, [...names, "published"].map((name, at) => h("div", { title: name, class: at === names.length ? "soft" : null }, name))),
        drawing(events, names, status, pick)));
    requestAnimationFrame(() => { lanes.scrollLeft = lanes.scrollWidth; }); // the newest is what one looks for
    return [h("p", { class: "soft" }, `The last ${count(commits.length, "commit")}, the newest at the right. A circle's size says how many rows. What lies right of the line is not yet in Lance's files.`),
      lanes, legend(events), published.error && refused(published.error), chosen].filter(Boolean);
  }));
}

// The newest publishes. Without them the commits are still to be seen.
async function publishes(signal) {
  try {
    return await api.get(`v1/records?limit=${PUBLISHES}`, { signal });
  } catch (error) {
    if (error.name === "AbortError" || error.status === 0) throw error;
    return { records: [], error };
  }
}

// Commits and publishes as they followed each other, the oldest first; none before the first commit.
function inOrder(commits, records) {
  const begin = Date.parse(commits[0].time);
  const publishes = records.map((record) => ({ record, at: Date.parse(record.time) })).filter(({ at }) => at >= begin);
  return [...commits.map((commit) => ({ commit, at: Date.parse(commit.time) })), ...publishes.reverse()].sort((a, b) => a.at - b.at);
}

const worked = (record) => record.works.join(" and ") || "published";
const swatch = (record) => `swatch${Math.max(0, WORKS.indexOf(record.works[0])) + 1}`;

function told({ commit, record }) {
  if (commit) return `seq ${commit.seq}, ${commit.time}: ${done(commit)}`;
  return `record ${record.number}, ${record.time}: ${worked(record)}${record.tables.length ? ` of ${tablesOf(record)}` : ""}`;
}

const done = (commit) => [...(commit.tables.length ? [`${count(commit.rows, "row")} in ${tablesOf(commit)}`] : []), ...some(commit.changes)].join(", ");
const some = (all) => (all.length > NAMES ? [...all.slice(0, NAMES), `and ${number(all.length - NAMES)} more`] : all);
const tablesOf = ({ tables, changed = tables.length }) => (changed > NAMES ? `${tables.slice(0, NAMES).join(", ")} and ${number(changed - Math.min(NAMES, tables.length))} more` : tables.join(", "));

function legend(events) {
  const found = new Map(events.filter(({ record }) => record).map(({ record }) => [worked(record), swatch(record)]));
  if (!found.size) return null;
  return h("ul", { class: "legend", "aria-label": "Publishes" }, [...found].map(([name, color]) => h("li", null, s("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, diamond(5, 5, 5, color)), name)));
}

const diamond = (x, y, size, color) => s("path", { class: color, d: `M${x},${y - size} l${size},${size} l${-size},${size} l${-size},${-size} Z` });

function drawing(events, names, status, pick) {
  const bottom = TOP + names.length * LANE;
  const width = events.length * STEP + 20;
  const x = (at) => at * STEP + STEP / 2 + 4;
  const y = (name) => TOP + names.indexOf(name) * LANE + LANE / 2;
  const most = Math.max(...events.map(({ commit }) => commit?.rows ?? 0), 1);
  const picture = s("svg", { class: "timeline", width, height: bottom + LANE });
  for (let lane = 0; lane <= names.length; lane += 1) picture.append(s("line", { class: "lane", x1: 0, x2: width, y1: TOP + (lane + 0.5) * LANE, y2: TOP + (lane + 0.5) * LANE }));
  const edge = events.findIndex(({ commit }) => commit?.seq > status.flushed_seq);
  if (edge > 0) picture.append(s("line", { class: "edge", x1: x(edge) - STEP / 2, x2: x(edge) - STEP / 2, y1: TOP, y2: bottom }));
  for (const [name, seq] of Object.entries(status.tags ?? {})) {
    const at = events.findIndex(({ commit }) => commit?.seq === seq);
    if (at < 0) continue;
    const isLast = x(at) > width / 2; // the name lies on the side that has room for it
    picture.append(s("text", { class: "named", x: x(at) + (isLast ? 5 : -5), y: 16, "text-anchor": isLast ? "end" : "start" }, isLast ? `${name} ▾` : `▾ ${name}`));
  }
  for (const [at, event] of events.entries()) {
    const { commit, record } = event;
    const size = commit && 2 + 3 * Math.sqrt(Math.log1p(commit.rows) / Math.log1p(most));
    const marks = !commit ? diamond(x(at), bottom + LANE / 2, 5, swatch(record)) : commit.tables.length ? commit.tables.map((name) => s("circle", { cx: x(at), cy: y(name), r: size }))
      : s("line", { class: "defined", x1: x(at), x2: x(at), y1: TOP + 4, y2: bottom - 4 }); // it changed definitions alone
    const group = s("a", { href: location.hash, class: commit ? "commit" : "publish", "aria-label": told(event) }, marks,
      s("rect", { class: "hit", x: x(at) - STEP / 2, y: TOP, width: STEP, height: bottom + LANE - TOP }), s("title", null, told(event)));
    group.addEventListener("click", (pressed) => {
      pressed.preventDefault();
      picture.querySelector(".chosen")?.classList.remove("chosen");
      group.classList.add("chosen");
      pick(event);
    });
    picture.append(group);
  }
  return picture;
}

function publishCard(record, shared) {
  return h("section", null,
    h("h2", null, `Record ${number(record.number)}`),
    h("p", null, `${record.time}: ${worked(record)}${record.tables.length ? ` of ${tablesOf(record)}` : ""}. Commits up to seq ${number(record.flushed_seq)} are in files.`),
    record.since !== undefined && record.since < record.number - 1 && h("p", { class: "soft" }, `Vacuum deleted the records ${number(record.since + 1)} to ${number(record.number - 1)}; their works are shown here, too.`),
    h("div", { class: "row" }, h("button", { type: "button", class: "main", onclick: () => shared.set(`seq:${record.flushed_seq}`) }, `Open as of seq ${number(record.flushed_seq)}`)));
}

function card(commit, commits, shared) {
  const newest = commits.at(-1).seq;
  const from = h("input", { type: "number", min: 0, value: String(Math.max(0, commit.seq - 1)), size: 10 });
  return h("section", null,
    h("h2", null, `seq ${number(commit.seq)}`),
    h("p", null, `${commit.time}: ${done(commit)}`, commit.token && `, as ${commit.token}`),
    h("div", { class: "row" },
      h("button", { type: "button", class: "main", onclick: () => shared.set(`seq:${commit.seq}`) }, "Open as of here"),
      h("label", null, "Diff from seq", from),
      h("button", { type: "button", onclick: () => { location.hash = `#/diff/${from.value}/${commit.seq}`; } }, "Diff to here"),
      commit.seq < newest && h("button", { type: "button", onclick: () => { location.hash = `#/diff/${commit.seq}/${newest}`; } }, "Diff from here to now")));
}

export function difference(main, shared, [a, b]) {
  main.querySelector("h1").textContent = `What differs: ${a} to ${b}`;
  main.append(coming("what differs", async () => {
    const counts = [], changes = [];
    let isWhole = false;
    for await (const line of api.lines(`v1/diff?a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`, { signal: shared.signal })) {
      if (line.change) {
        if (changes.length === ROWS) break;
        changes.push(kept(line));
      } else if (line.table) counts.push(line);
      else isWhole = true;
    }
    const some = counts.filter((each) => each.added + each.removed + each.changed);
    if (!some.length) return notice("The tables are the same at both moments.");
    return [
      grid([{ name: "table" }, ...["added", "removed", "changed"].map((name) => ({ name, type: "int" }))].map(({ name }) => ({ name })), some.map((each) => [each.table, each.added, each.removed, each.changed])),
      !isWhole && h("p", { class: "soft" }, `The first ${number(ROWS)} rows. \`siltstone diff\` has all of them.`),
      ...some.map((each) => rows(each.table, changes.filter((change) => change.table === each.table))),
    ].flat().filter(Boolean);
  }));
}

// A change with the names of the columns that differ, and of large values only the beginnings.
function kept({ table, change, key, old, new: now }) {
  const columns = Object.keys(now ?? old ?? {});
  const differs = new Set(columns.filter((name) => change === "changed" && JSON.stringify(old[name]) !== JSON.stringify(now[name])));
  const short = (row) => row && Object.fromEntries(Object.entries(row).map(([name, value]) => [name, cut(value)]));
  return { table, change, differs, key: short(key), old: short(old), new: short(now) };
}

function rows(name, changes) {
  if (!changes.length) return [];
  const keys = Object.keys(changes[0].key ?? {});
  const columns = [...new Set(changes.flatMap((each) => Object.keys(each.new ?? each.old ?? {})))];
  const values = changes.map((each) => [each.change, ...keys.map((key) => each.key[key]), ...columns.map((column) => (each.new ?? each.old)[column])]);
  const found = grid([{ name: "change" }, ...[...keys, ...columns].map((each) => ({ name: each }))], values, {
    label: `Changes of ${name}`, rowClass: (line) => changes[line].change,
    cell: (value, at, line) => {
      const column = columns[at - 1 - keys.length];
      return at > keys.length && changes[line].differs.has(column) ? h("span", null, h("del", { class: "soft" }, shown(changes[line].old[column])), " → ", h("strong", null, shown(value))) : null;
    },
  });
  return [h("h2", null, name), found];
}
