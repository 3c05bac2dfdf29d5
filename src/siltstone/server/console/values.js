// Values: how they are written, and what is kept of large ones: the beginning, and the size.

const SHOWN = 300; // characters of a cell

export const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en"));

export function bytes(value) {
  if (!value) return "0 B";
  const step = Math.min(4, Math.floor(Math.log2(value) / 10));
  const size = value / 2 ** (10 * step);
  return `${size >= 100 || step === 0 ? Math.round(size) : size.toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB"][step]}`;
}

// A large value, of which no more is kept than what is shown.
export class Cut {
  constructor(begin, size) {
    this.begin = begin;
    this.size = size;
  }

  toString() { return `${this.begin} … (${this.size})`; }
}

// Returns a value as it is, or cut. Bytes come in base64, of which four characters are three bytes.
export function cut(value, type = "") {
  if (value === null || value === undefined || value instanceof Cut) return value;
  const isText = typeof value === "string";
  const text = isText ? value : typeof value === "object" ? JSON.stringify(value) : String(value);
  if (text.length <= SHOWN) return value;
  const size = isText && /binary|blob/i.test(type) ? bytes(Math.floor(text.length * 0.75)) : `${number(text.length)} characters`;
  return new Cut(copied(text.slice(0, SHOWN)), size);
}

// A part of a string keeps all of it in memory; one that was made anew does not.
const copied = (text) => JSON.parse(JSON.stringify(text));

export function shown(value, type) {
  if (value === null || value === undefined) return "null";
  const kept = cut(value, type);
  return typeof kept === "object" && !(kept instanceof Cut) ? JSON.stringify(kept) : String(kept);
}
