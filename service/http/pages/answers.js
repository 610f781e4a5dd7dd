// The answer to a request that was tried: status, time, the headers that matter, and the body laid out.

import { element } from "./elements.js";
import { statusClass } from "./reference.js";

const HEADER_LENGTH = "Inference-Header-Content-Length";
const HEADERS = ["Content-Type", HEADER_LENGTH, "X-Request-ID", "X-Model-Version", "Server-Timing", "Retry-After", "Allow"];

// Beyond it a line is broken, and a body is shown without colours.
const LINE_CHARS = 48;
const COLOURED_CHARS = 100_000;

const TOKENS = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*|true|false|null)/g;

/** `response` with its body read into `content`. `elapsedMs`: from sending to the last byte. */
export function answerView(response, content, elapsedMs) {
  const view = element("div", { className: "answer" });
  view.append(
    element(
      "p",
      { className: "outcome" },
      element("span", { className: `status ${statusClass(response.status)}` }, `${response.status} ${response.statusText}`.trim()),
      element("span", { className: "elapsed" }, `${elapsedMs.toFixed(1)} ms`),
    ),
  );
  const { text, document, binaryBytes } = readable(response.headers, content);
  const scores = document === undefined ? null : scoresView(document);
  if (scores) view.append(scores);
  if (text) view.append(bodyView(document === undefined ? text : pretty(document), document !== undefined));
  if (binaryBytes) view.append(element("p", { className: "hint" }, `Behind it ${binaryBytes} bytes of tensors.`));
  view.append(headersView(response.headers));
  return view;
}

/** What of a body can be shown: all of it, or the JSON in front of binary tensors. */
function readable(headers, content) {
  const type = headers.get("Content-Type") ?? "";
  const isBinary = type.startsWith("application/octet-stream");
  const jsonBytes = isBinary ? Number(headers.get(HEADER_LENGTH) ?? 0) : content.byteLength;
  const text = new TextDecoder().decode(content.slice(0, jsonBytes));
  const document = isBinary || /[/+]json/.test(type) ? parsed(text) : undefined;
  return { text, document, binaryBytes: content.byteLength - jsonBytes };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A bar for each class of the first prediction, where predictions are classes with scores. */
function scoresView(document) {
  const best = [document?.predictions?.[0] ?? []].flat();
  if (!best.length || !best.every((one) => typeof one?.score === "number" && "label" in one)) return null;
  const list = element("ul", { className: "scores", "aria-label": "Scores of the first prediction" });
  for (const { label, score } of best) {
    const meter = element("meter", { min: 0, max: 1, value: score, "aria-label": String(label) });
    list.append(element("li", {}, element("span", {}, String(label)), meter, element("span", { className: "elapsed" }, score.toFixed(3))));
  }
  return list;
}

function headersView(headers) {
  const list = element("dl", { className: "headers" });
  for (const name of HEADERS) {
    if (headers.has(name)) list.append(element("div", {}, element("dt", {}, name), element("dd", {}, headers.get(name))));
  }
  return list;
}

function bodyView(text, isJson) {
  // It may scroll, and what scrolls must be reachable by keyboard.
  const view = element("pre", { className: "body", tabIndex: 0, role: "region", "aria-label": "Body of the answer" });
  if (isJson && text.length <= COLOURED_CHARS) view.append(...coloured(text));
  else view.append(text);
  return view;
}

/** JSON with short lists on one line: a row of numbers is read as a row. */
export function pretty(value, indent = "") {
  const flat = compact(value);
  if (value === null || typeof value !== "object" || flat.length + indent.length <= LINE_CHARS) return flat;
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    const isRow = value.every((one) => typeof one === "number" || typeof one === "boolean");
    return isRow ? wrapped(value, inner, indent) : `[\n${value.map((one) => inner + pretty(one, inner)).join(",\n")}\n${indent}]`;
  }
  const entries = Object.entries(value).map(([key, one]) => `${inner}${JSON.stringify(key)}: ${pretty(one, inner)}`);
  return `{\n${entries.join(",\n")}\n${indent}}`;
}

/** JSON on one line, with a blank after each comma and colon. */
function compact(value) {
  if (Array.isArray(value)) return `[${value.map(compact).join(", ")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const entries = Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${compact(one)}`);
  return `{${entries.join(", ")}}`;
}

function wrapped(values, inner, indent) {
  const lines = [];
  let line = "";
  for (const value of values.map(String)) {
    if (line && inner.length + line.length + value.length + 2 > LINE_CHARS) {
      lines.push(line);
      line = "";
    }
    line += line ? `, ${value}` : value;
  }
  return `[\n${[...lines, line].map((one) => inner + one).join(",\n")}\n${indent}]`;
}

function coloured(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(TOKENS)) {
    const [token, string, colon] = found;
    parts.push(text.slice(end, found.index));
    const kind = string ? (colon ? "key-name" : "string") : "literal";
    parts.push(element("span", { className: kind }, string ?? token), colon ?? "");
    end = found.index + token.length;
  }
  return [...parts, text.slice(end)];
}
