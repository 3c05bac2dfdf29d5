// The console: which view the address names, who is signed in, and the moment that is read.

import * as api from "./api.js";
import { h, notice } from "./dom.js";
import { connect } from "./connect.js";
import { jobs } from "./jobs.js";
import { overview } from "./overview.js";
import { search } from "./search.js";
import { statement } from "./statement.js";
import { table, tables } from "./tables.js";
import { difference, timeline } from "./timeline.js";

const VIEWS = {
  overview: ["Overview", overview], tables: ["Tables", tables], timeline: ["Timeline", timeline],
  sql: ["SQL", statement], search: ["Search", search], jobs: ["Jobs", jobs], connect: ["Connect", connect],
};
const HIDDEN = { table: [null, table, "tables"], diff: [null, difference, "timeline"] };
const main = document.querySelector("main");
let ended = new AbortController();

// What views share. `at` is as the header of REST says it: seq:42, tag:noon, at:<time>; null is now.
export const shared = {
  at: null,
  set(at) { this.at = at; head(); show(); },
  get signal() { return ended.signal; },
};

function head() {
  const now = h("button", { type: "button", onclick: () => shared.set(null) }, "Back to now");
  document.querySelector("#asof").replaceChildren(...(shared.at ? [h("strong", null, `as of ${shared.at.replace(/^(seq|tag|at):/, "$1 ")}`), now] : []));
  document.querySelector("#signout").hidden = !api.token.get();
}

function show() {
  ended.abort();
  ended = new AbortController();
  const [name, ...rest] = location.hash.slice(2).split("/").map(decodeURIComponent);
  const [title, view, below] = VIEWS[name] ?? HIDDEN[name] ?? VIEWS.overview;
  for (const each of document.querySelectorAll(".views a")) {
    const isHere = each.dataset.view === (below ?? (title ? name : null)) || (!name && each.dataset.view === "overview");
    isHere ? each.setAttribute("aria-current", "page") : each.removeAttribute("aria-current");
    if (isHere) each.scrollIntoView({ block: "nearest", inline: "center" }); // where the views do not all fit
  }
  document.title = `${title ?? rest[0] ?? "Diff"} · Siltstone`;
  main.replaceChildren(h("h1", null, title ?? rest[0] ?? "Diff"));
  view(main, shared, rest);
}

async function begin() {
  head();
  try {
    const status = await api.get("v1/status");
    document.querySelector("#store").replaceChildren(status.path);
  } catch (error) {
    if (error.status === 401 || (error.status === 403 && !api.token.get())) return signIn(error);
    if (error.status !== 403) {
      main.replaceChildren(notice(error.message, "bad"), h("button", { type: "button", onclick: begin }, "Try again"));
      return undefined;
    }
  }
  document.querySelector("#views").replaceChildren(...Object.entries(VIEWS).map(([name, [title]]) => h("a", { href: `#/${name}`, "data-view": name }, title)));
  return show();
}

function signIn(error) {
  ended.abort();
  const given = api.token.get();
  api.token.clear();
  const field = h("input", { type: "password", autocomplete: "off", required: true, id: "token", size: 32 });
  const form = h("form", { class: "center", onsubmit: (event) => { event.preventDefault(); api.token.set(field.value.trim()); begin(); } },
    h("h1", null, "This server asks for a token"),
    h("p", { class: "soft" }, "`siltstone token` makes one. It stays in this tab until the tab is closed."),
    given && notice(error.message, "bad"),
    h("div", { class: "row" }, h("label", null, "Token", field), h("button", { class: "main" }, "Sign in")));
  document.querySelector("#views").replaceChildren();
  main.replaceChildren(form);
  head();
  field.focus();
}

addEventListener("hashchange", () => { show(); main.focus(); });
document.addEventListener("unknown-token", () => signIn(new Error("The token is not known to this server.")));
document.querySelector("#signout").addEventListener("click", () => { api.token.clear(); location.hash = "#/overview"; begin(); });
begin();
