// What the console asks the server: the routes of REST, with the token of this session.
// Addresses are below the folder of this file, so that a proxy may put the server anywhere.

import { cut } from "./values.js";

const ROOT = new URL("..", import.meta.url);
const TOKEN = "siltstone.token";
const SILENT_MS = 8_000; // after that without an end of an answer, the server is asked whether it lives
const ALIVE_MS = 8_000; // so long it may take to say so
const STOPPED = "The server does not answer. It may have stopped.";

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

// A statement may take long, a server that stopped takes for ever: each request ends by itself if
// the server does not say meanwhile that it lives, which it does whatever else it has to do.
class Watch {
  #own = new AbortController();
  #timer = setTimeout(() => this.#look(), SILENT_MS);
  #isOver = false;
  isStopped = false;

  constructor(signal) {
    this.signal = signal ? AbortSignal.any([signal, this.#own.signal]) : this.#own.signal;
  }

  async #look() {
    const ended = new AbortController();
    const timer = setTimeout(() => ended.abort(), ALIVE_MS);
    try {
      const { status } = await fetch(address("healthz"), { signal: ended.signal, cache: "no-store" });
      if (status >= 500) throw new Refusal(STOPPED, status); // a proxy says it
      if (!this.#isOver) this.#timer = setTimeout(() => this.#look(), SILENT_MS);
    } catch {
      this.isStopped = !this.#isOver;
      this.#own.abort();
    } finally { clearTimeout(timer); }
  }

  end() {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }
}

// Asks, and returns what `read` makes of the answer; the watch is on until that is done.
async function ask(path, { signal, ...more } = {}, read = (answer) => answer.json()) {
  const watch = new Watch(signal);
  try {
    return await read(await answered(path, { ...more, signal: watch.signal }));
  } catch (error) {
    throw spelled(error, watch);
  } finally { watch.end(); }
}

// What went wrong, as the pages say it: TypeError is how a browser names a connection that failed.
const spelled = (error, watch) => (watch.isStopped || error instanceof TypeError ? new Refusal(STOPPED, 0) : error);

async function answered(path, { method = "GET", body, headers = {}, signal }) {
  const sent = { ...headers };
  if (token.get()) sent.authorization = `Bearer ${token.get()}`;
  if (body !== undefined) sent["content-type"] = "application/json";
  const answer = await fetch(address(path), {
    method, signal, headers: sent, cache: "no-store",
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.ok) return answer;
  const text = await answer.text();
  let said = text;
  try { said = JSON.parse(text).error ?? text; } catch { /* not ours: a proxy's page */ }
  throw new Refusal(said.slice(0, 2000) || `The server answers ${answer.status}.`, answer.status);
}

export const get = (path, more) => ask(path, more);
export const post = (path, body = {}, more = {}) => ask(path, { method: "POST", body, ...more });
export const text = (path, more) => ask(path, more, (answer) => answer.text());
export const blob = (path, more) => ask(path, more, (answer) => answer.blob());

// Yields the objects of an answer of lines. Ends early if the caller does; then no more is sent.
export async function* lines(path, { signal, ...more } = {}) {
  const watch = new Watch(signal);
  try {
    yield* parsed(await answered(path, { ...more, signal: watch.signal }));
  } catch (error) {
    throw spelled(error, watch);
  } finally { watch.end(); }
}

async function* parsed(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = []; // pieces of a line that has no end yet: a cell may have many megabytes
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = value.split("\n");
      held.push(parts.shift());
      for (const part of parts) {
        const line = held.join("");
        held = [part];
        if (line) yield JSON.parse(line);
      }
    }
    const line = held.join("");
    if (line) yield JSON.parse(line);
  } finally {
    reader.cancel().catch(() => {});
  }
}

const moment = (at) => (at ? { "x-siltstone-snapshot": at } : {});

// Runs one statement; keeps at most `most` rows. `isWhole` says that these are all. Of large values
// it keeps the beginning and the size, unless they are wanted whole.
export async function sql(statement, { parameters, at, most = 1000, signal, areCut = true } = {}) {
  const found = { columns: [], rows: [], seq: null, written: null, isWhole: false };
  const body = parameters ? { sql: statement, parameters } : { sql: statement };
  for await (const line of lines("v1/sql", { method: "POST", body, headers: moment(at), signal })) {
    if (line.columns) found.columns = line.columns;
    else if (line.row === undefined) Object.assign(found, { seq: line.seq, written: line.written, isWhole: true });
    else if (found.rows.length === most) break;
    else {
      const row = Array.isArray(line.row) ? line.row : found.columns.map((each) => line.row[each.name]);
      found.rows.push(areCut ? row.map((value, at) => cut(value, found.columns[at]?.type)) : row);
    }
  }
  return found;
}

export const file = (statement, format, at) =>
  blob(`v1/sql?format=${format}`, { method: "POST", body: { sql: statement }, headers: moment(at) });

export const quoted = (name) => `"${name.replaceAll('"', '""')}"`;
export const literal = (value) => (typeof value === "number" || typeof value === "bigint" ? String(value) : `'${String(value).replaceAll("'", "''")}'`);
