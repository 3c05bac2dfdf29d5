// Connect: how programs reach this server, with a table of its own. Each snippet is a whole program.

import * as api from "./api.js";
import { coming, h } from "./dom.js";

export function connect(main, shared) {
  main.append(coming("the store", async () => {
    const status = await api.get("v1/status", { signal: shared.signal });
    const snippets = snippetsOf(api.address("").replace(/\/$/, ""), status, Boolean(api.token.get()));
    return [
      api.token.get() && h("p", { class: "soft" }, "The token is read from the variable SILTSTONE_TOKEN."),
      Object.entries(snippets).map(([name, text]) => [h("h2", null, name, " ", copying(text)), h("pre", { tabindex: "0", "data-snippet": name }, text)]),
    ].flat(3).filter(Boolean);
  }));
}

function copying(text) {
  const copy = h("button", { type: "button", class: "quiet", onclick: async () => {
    await navigator.clipboard?.writeText(text);
    copy.textContent = "Copied";
  } }, "Copy");
  return copy;
}

const python = JSON.stringify; // a text of JSON is one of Python

function snippetsOf(root, status, hasToken) {
  const table = status.tables[0]?.name;
  const query = table === undefined ? "SELECT 42 AS answer" : `SELECT * FROM ${api.quoted(table)} LIMIT 5`;
  const key = hasToken ? 'os.environ["SILTSTONE_TOKEN"]' : '"none"';
  const os = hasToken ? "import os\n\n" : "";
  const bearer = hasToken ? ' \\\n  -H "authorization: Bearer $SILTSTONE_TOKEN"' : "";
  const body = JSON.stringify({ sql: query }).replaceAll("'", "'\\''");
  const rows = table === undefined ? 'db.sql("SELECT 42 AS n").arrow()' : `db[${python(table)}].to_arrow(limit=1000)`;
  const spark = table === undefined ? "SHOW TABLES IN shop" : `SELECT * FROM shop.${table.split(".").map((each) => `\`${each.replaceAll("`", "``")}\``).join(".")} LIMIT 5`;
  return {
    Python: `import siltstone as st\n\nwith st.connect(${python(root)}) as db:\n    print(db.sql('${query}').fetchall())`,
    curl: `curl --fail --silent ${root}/v1/sql${bearer} \\\n  -H "content-type: application/json" -d '${body}'`,
    DuckDB: `import duckdb\nimport siltstone as st\n\nwith st.connect(${python(root)}) as db:\n    rows = ${rows}  # DuckDB reads Arrow tables by their name\nprint(duckdb.sql("SELECT count(*) FROM rows").fetchall())`,
    Spark: `from siltstone.spark import session\n\n# on the machine of the store; Spark reads its files\nspark = session(stores={"shop": ${python(status.path)}})\nspark.sql(${python(spark)}).show()`,
    "LanceDB, and other clients of the Lance Namespace": `${os}import lancedb\n\ndb = lancedb.connect("db://siltstone", api_key=${key},\n                     host_override=${python(root)})\nprint(db.table_names())`,
  };
}
