// Timeline: the newest commits, a lane for each table, and what differs between two of them.

import * as api from "./api.js";
import { coming, grid, h, hint, notice, number, s } from "./dom.js";

const COMMITS = 240;
const LANE = 26;
const STEP = 9;
const LEFT = 170;
const ROWS = 500;

export function timeline(main, shared) {
  const chosen = h("div", { "aria-live": "polite" }, hint("Choose a commit: with the mouse, or with Tab and Enter."));
  main.append(coming("the newest commits", async () => {
    const [{ commits }, status] = await Promise.all([api.get(`v1/log?limit=${COMMITS}`, { signal: shared.signal }), api.get("v1/status", { signal: shared.signal })]);
    if (!commits.length) return notice("Nothing was committed yet.");
    commits.reverse();
    const pick = (commit) => chosen.replaceChildren(card(commit, commits, shared));
    const lanes = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Timeline" }, drawing(commits, status, pick));
    requestAnimationFrame(() => { lanes.scrollLeft = lanes.scrollWidth; }); // the newest is what one looks for
    return [h("p", { class: "soft" }, `The last ${number(commits.length)} commits, the newest at the right. A circle's size says how many rows. What lies right of the line is not yet in Lance's files.`),
      lanes, chosen];
  }));
}

function drawing(commits, status, pick) {
  const names = [...new Set(commits.flatMap((each) => each.tables))].sort();
  const tags = Object.entries(status.tags ?? {});
  const top = tags.length ? 26 : 10;
  const width = LEFT + commits.length * STEP + 20;
  const x = (at) => LEFT + at * STEP + STEP / 2;
  const most = Math.max(...commits.map((each) => each.rows), 1);
  const y = (name) => top + names.indexOf(name) * LANE + LANE / 2;
  const picture = s("svg", { class: "timeline", width, height: top + names.length * LANE + 8 });
  for (const name of names) {
    picture.append(s("line", { class: "lane", x1: LEFT, x2: width, y1: y(name), y2: y(name) }),
      s("text", { x: 10, y: y(name) + 4 }, s("title", null, name), name.length > 22 ? `${name.slice(0, 21)}…` : name));
  }
  const edge = commits.findIndex((each) => each.seq > status.flushed_seq);
  if (edge > 0) picture.append(s("line", { class: "edge", x1: x(edge) - STEP / 2, x2: x(edge) - STEP / 2, y1: top, y2: top + names.length * LANE }));
  for (const [name, seq] of tags) {
    const at = commits.findIndex((each) => each.seq === seq);
    if (at >= 0) picture.append(s("text", { class: "named", x: x(at), y: 16, "text-anchor": "middle" }, `▾ ${name}`));
  }
  for (const [at, commit] of commits.entries()) {
    const size = 2 + 3 * Math.sqrt(Math.log1p(commit.rows) / Math.log1p(most));
    const group = s("a", { href: location.hash, "aria-label": `seq ${commit.seq}: ${commit.rows} rows in ${commit.tables.join(", ")}` },
      commit.tables.map((name) => s("circle", { cx: x(at), cy: y(name), r: size })),
      s("rect", { class: "hit", x: x(at) - STEP / 2, y: top, width: STEP, height: names.length * LANE }));
    group.append(s("title", null, `seq ${commit.seq}, ${commit.time}: ${number(commit.rows)} rows in ${commit.tables.join(", ")}`));
    group.addEventListener("click", (event) => {
      event.preventDefault();
      picture.querySelector(".chosen")?.classList.remove("chosen");
      group.classList.add("chosen");
      pick(commit);
    });
    picture.append(group);
  }
  return picture;
}

function card(commit, commits, shared) {
  const newest = commits.at(-1).seq;
  const from = h("input", { type: "number", min: 0, value: String(Math.max(0, commit.seq - 1)), size: 10 });
  return h("section", null,
    h("h2", null, `seq ${number(commit.seq)}`),
    h("p", null, `${commit.time}: ${number(commit.rows)} rows in ${commit.tables.join(", ")}`, commit.token && `, as ${commit.token}`, commit.changes.length > 0 && `, ${commit.changes.join(", ")}`),
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
        changes.push(line);
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

function rows(name, changes) {
  if (!changes.length) return [];
  const keys = Object.keys(changes[0].key ?? {});
  const columns = [...new Set(changes.flatMap((each) => Object.keys(each.new ?? each.old ?? {})))];
  const isNew = (at, line) => changes[line].change === "changed" && JSON.stringify(changes[line].old[columns[at]]) !== JSON.stringify(changes[line].new[columns[at]]);
  const values = changes.map((each) => [each.change, ...keys.map((key) => each.key[key]), ...columns.map((column) => (each.new ?? each.old)[column])]);
  const shown = grid([{ name: "change" }, ...[...keys, ...columns].map((each) => ({ name: each }))], values, {
    label: `Changes of ${name}`, rowClass: (line) => changes[line].change,
    cell: (value, at, line) => {
      const column = at - 1 - keys.length;
      return column >= 0 && isNew(column, line) ? h("span", null, h("del", { class: "soft" }, String(changes[line].old[columns[column]])), " → ", h("strong", null, String(value))) : null;
    },
  });
  return [h("h2", null, name), shown];
}
