// Connect: how programs reach this server.

import * as api from "./api.js";
import { h } from "./dom.js";

export function connect(main) {
  const root = api.address("").replace(/\/$/, "");
  const isOpen = !api.token.get();
  const bearer = isOpen ? "" : ' \\\n  -H "authorization: Bearer $SILTSTONE_TOKEN"';
  const snippets = {
    Python: `import siltstone as st\n\nwith st.connect("${root}"${isOpen ? "" : ', token=os.environ["SILTSTONE_TOKEN"]'}) as db:\n    print(db.sql("SELECT 42").to_pandas())`,
    curl: `curl ${root}/v1/sql${bearer} \\\n  -H "content-type: application/json" -d '{"sql": "SELECT 42"}'`,
    "LanceDB, and other clients of the Lance Namespace": `import lancedb\n\ndb = lancedb.connect("db://siltstone", api_key="${isOpen ? "none" : "$SILTSTONE_TOKEN"}",\n                     host_override="${root}")`,
    DuckDB: `import duckdb, siltstone as st\n\nwith st.connect("${root}") as db:\n    orders = db["orders"].to_arrow()   # DuckDB reads Arrow tables by their name\n    duckdb.sql("SELECT count(*) FROM orders")`,
    Spark: `from siltstone.spark import session\n\nspark = session({"shop": "/path/of/the/store"})   # on the store's machine\nspark.sql("SELECT * FROM shop.orders VERSION AS OF 42")`,
  };
  for (const [name, text] of Object.entries(snippets)) {
    const copy = h("button", { type: "button", class: "quiet", onclick: async () => {
      await navigator.clipboard?.writeText(text);
      copy.textContent = "Copied";
    } }, "Copy");
    main.append(h("h2", null, name, " ", copy), h("pre", { tabindex: "0" }, text));
  }
}
