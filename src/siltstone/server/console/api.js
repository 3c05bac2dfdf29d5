// What the console asks the server: the routes of REST, with the token of this session.
// Addresses are below the folder of this file, so that a proxy may put the server anywhere.

const ROOT = new URL("..", import.meta.url);
const TOKEN = "siltstone.token";

export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  clear: () => sessionStorage.removeItem(TOKEN),
};

export const address = (path) => new URL(path, ROOT).href;

async function ask(path, { method = "GET", body, headers = {}, signal } = {}) {
  const sent = { ...headers };
  if (token.get()) sent.authorization = `Bearer ${token.get()}`;
  if (body !== undefined) sent["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(address(path), {
      method, signal, headers: sent, cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer. It may have stopped; this page goes on when it is there again.", 0);
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let said = text;
  try { said = JSON.parse(text).error ?? text; } catch { /* not ours: a proxy's page */ }
  throw new Refusal(said.slice(0, 2000) || `The server answers ${answer.status}.`, answer.status);
}

export const get = async (path, more) => (await ask(path, more)).json();
export const post = async (path, body = {}, more = {}) => (await ask(path, { method: "POST", body, ...more })).json();
export const text = async (path, more) => (await ask(path, more)).text();
export const blob = async (path, more) => (await ask(path, more)).blob();

// Yields the objects of an answer of lines. Ends early if the caller does; then no more is sent.
export async function* lines(path, more) {
  const answer = await ask(path, more);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts) if (part) yield JSON.parse(part);
    }
    if (rest) yield JSON.parse(rest);
  } finally {
    reader.cancel().catch(() => {});
  }
}

const moment = (at) => (at ? { "x-siltstone-snapshot": at } : {});

// Runs one statement; keeps at most `most` rows. `isWhole` says that these are all.
export async function sql(statement, { parameters, at, most = 1000, signal } = {}) {
  const found = { columns: [], rows: [], seq: null, written: null, isWhole: false };
  const body = parameters ? { sql: statement, parameters } : { sql: statement };
  for await (const line of lines("v1/sql", { method: "POST", body, headers: moment(at), signal })) {
    if (line.columns) found.columns = line.columns;
    else if (line.row === undefined) Object.assign(found, { seq: line.seq, written: line.written, isWhole: true });
    else if (found.rows.length === most) break;
    else found.rows.push(Array.isArray(line.row) ? line.row : found.columns.map((each) => line.row[each.name]));
  }
  return found;
}

export const file = (statement, format, at) =>
  blob(`v1/sql?format=${format}`, { method: "POST", body: { sql: statement }, headers: moment(at) });

export const quoted = (name) => `"${name.replaceAll('"', '""')}"`;
export const literal = (value) => (typeof value === "number" || typeof value === "bigint" ? String(value) : `'${String(value).replaceAll("'", "''")}'`);
