// Trying an operation: a form that makes the request, sends it and shows what came back.

import { answerView, pretty } from "./answers.js";
import { element, newId } from "./elements.js";
import { resolve } from "./schemas.js";

/** The form of one operation. `base`: URL of the service, with a slash at its end. */
export function tryView(api, base, method, path, operation) {
  const fields = fieldsOf(api, operation.parameters ?? []);
  const body = operation.requestBody ? bodyFields(api, resolve(api, operation.requestBody)) : null;
  const send = element("button", { type: "submit", className: "send" }, "Send");
  const result = element("div", { className: "result", role: "status" });
  const form = element("form", { className: "try" }, element("h4", {}, "Try it"), ...fields.map((field) => field.view), body?.view, send, result);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    const request = requestOf(base, method, path, fields, body);
    result.replaceChildren(await outcome(request), curlView(request));
    send.disabled = false;
  });
  return form;
}

function requestOf(base, method, path, fields, body) {
  const query = new URLSearchParams();
  let filled = path;
  for (const field of fields) {
    const value = field.value();
    if (field.place === "path") filled = filled.replace(`{${field.name}}`, encodeURIComponent(value));
    else if (value !== "") query.append(field.name, value);
  }
  const url = new URL(filled.slice(1) + (query.size ? `?${query}` : ""), base);
  const { type, content, shown, headers = {} } = body?.read() ?? {};
  if (type) headers["Content-Type"] = type;
  const key = document.getElementById("key").value;
  if (key) headers["X-API-Key"] = key;
  return { url, method: method.toUpperCase(), headers, content, shown };
}

async function outcome({ url, method, headers, content: body }) {
  const startedAt = performance.now();
  try {
    const response = await fetch(url, { method, headers, body, cache: "no-store", credentials: "same-origin" });
    const content = await response.arrayBuffer();
    return answerView(response, content, performance.now() - startedAt);
  } catch (error) {
    return element("p", { className: "notice" }, `No answer: ${error.message}. Is the service running?`);
  }
}

/** One field for each parameter in the path or the query. */
function fieldsOf(api, parameters) {
  const known = parameters.map((node) => resolve(api, node));
  return known.filter((parameter) => parameter.in !== "header").map((parameter) => (isSwitch(parameter) ? switchField(parameter) : textField(parameter)));
}

/** An optional parameter with one example is on, with that value, or off. */
function isSwitch(parameter) {
  return !parameter.required && parameter.example !== undefined;
}

function switchField({ name, in: place, example, description }) {
  const box = element("input", { type: "checkbox", id: newId("switch") });
  const label = element("label", { for: box.id }, element("code", {}, `${name}=${example}`));
  const view = element("div", { className: "switch", title: description }, box, label);
  return { name, place, view, value: () => (box.checked ? String(example) : "") };
}

function textField({ name, in: place, example, required }) {
  const input = element("input", { type: "text", id: newId("field"), value: example ?? "", required: Boolean(required), spellcheck: false });
  const view = element("div", { className: "field" }, element("label", { for: input.id }, name), input);
  return { name, place, view, value: () => input.value };
}

/** A choice of the forms that the body may take; the one that fits the model best comes first. */
function bodyFields(api, body) {
  const json = body.content["application/json"];
  const properties = json ? resolve(api, json.schema).properties : {};
  const examples = Object.values(json?.examples ?? {}).map((example) => example.value);
  const takesText = "text" in properties;
  const takesPictures = "multipart/form-data" in body.content;
  const kinds = json ? [jsonBody(examples.find((one) => !("text" in one)) ?? json.example ?? ("instances" in properties ? { instances: [] } : {}))] : [];
  // Where both are taken, it is not known yet which of them the model takes.
  if (takesText) kinds.splice(takesPictures ? 1 : 0, 0, textBody(examples));
  if (takesPictures) kinds.splice(takesText ? 2 : 0, 0, pictureBody());
  if ("application/octet-stream" in body.content) kinds.push(rawBody());
  const chosen = choice(kinds);
  return { view: chosen.view, read: () => chosen.kind().read() };
}

function choice(kinds) {
  if (kinds.length === 1) return { view: kinds[0].view, kind: () => kinds[0] };
  let current = kinds[0];
  const group = newId("body");
  const panels = kinds.map((kind) => element("div", { className: "panel", hidden: kind !== current }, kind.view));
  const radios = kinds.map((kind, i) => {
    const radio = element("input", { type: "radio", name: group, id: newId("kind"), checked: kind === current });
    radio.addEventListener("change", () => {
      current = kind;
      panels.forEach((panel, j) => (panel.hidden = i !== j));
    });
    return [radio, element("label", { for: radio.id }, kind.title)];
  });
  const tabs = element("div", { className: "kinds" }, ...radios.flat());
  const view = element("fieldset", {}, element("legend", {}, "Body"), tabs, ...panels);
  return { view, kind: () => current };
}

function jsonBody(example) {
  const text = pretty(example);
  const rows = Math.min(16, Math.max(5, text.split("\n").length + 1));
  const input = element("textarea", { id: newId("json"), value: text, rows, spellcheck: false, className: "code" });
  const hint = element("p", { className: "hint fault", id: newId("hint"), role: "status" });
  input.setAttribute("aria-describedby", hint.id);
  input.addEventListener("input", () => (hint.textContent = faultIn(input.value)));
  const view = element("div", { className: "field" }, element("label", { for: input.id }, "JSON"), input, hint);
  return { title: "JSON", view, read: () => jsonRequest(input.value) };
}

function faultIn(text) {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return `Not valid JSON yet: ${error.message}`;
  }
}

function textBody(examples) {
  const example = examples.find((one) => "text" in one)?.text ?? "";
  const input = element("textarea", { id: newId("text"), value: example, rows: 4 });
  const view = element("div", { className: "field" }, element("label", { for: input.id }, "Text"), input);
  return { title: "Text", view, read: () => jsonRequest(JSON.stringify({ text: input.value })) };
}

function jsonRequest(content) {
  return { type: "application/json", content, shown: ["-d", quoted(content)] };
}

/** One row of the only input as the bytes of a file. */
function rawBody() {
  const input = element("input", { type: "file", id: newId("row") });
  const drop = element("label", { className: "drop", for: input.id }, element("span", {}, "Choose a file: all of it is one row of the only input"), input);
  const read = () => {
    const [file] = input.files;
    return {
      type: "application/octet-stream",
      headers: { "Inference-Header-Content-Length": "0" },
      content: file,
      shown: ["--data-binary", quoted(`@${file?.name ?? ""}`)],
    };
  };
  return { title: "Raw row", view: element("div", { className: "field" }, drop), read };
}

function pictureBody() {
  const input = element("input", { type: "file", id: newId("picture"), accept: "image/*", multiple: true });
  const previews = element("ul", { className: "previews" });
  input.addEventListener("change", () => showPreviews(previews, [...input.files]));
  const drop = element("label", { className: "drop", for: input.id }, element("span", {}, "Choose pictures, or drop them here"), input);
  drop.addEventListener("dragover", (event) => event.preventDefault());
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    input.files = event.dataTransfer.files;
    showPreviews(previews, [...input.files]);
  });
  const read = () => {
    const content = new FormData();
    for (const file of input.files) content.append("file", file);
    // No type: the browser names it, together with the boundary.
    return { content, shown: [...input.files].flatMap((file) => ["-F", quoted(`file=@${file.name}`)]) };
  };
  return { title: "Picture", view: element("div", { className: "field" }, drop, previews), read };
}

function showPreviews(list, files) {
  for (const picture of list.querySelectorAll("img")) URL.revokeObjectURL(picture.src);
  list.replaceChildren(
    ...files.map((file) =>
      element(
        "li",
        {},
        element("img", { src: URL.createObjectURL(file), alt: `Preview of ${file.name}` }),
        element("span", {}, file.name),
        element("span", { className: "hint" }, `${(file.size / 1000).toFixed(1)} kB`),
      ),
    ),
  );
}

function curlView({ url, method, headers, shown }) {
  const isPlain = method === "GET" || shown;
  const parts = ["curl", "-s", ...(isPlain ? [] : method === "HEAD" ? ["-I"] : ["-X", method])];
  // The key stays in its field: commands are copied into places where others read them.
  for (const [name, value] of Object.entries(headers)) parts.push("-H", name === "X-API-Key" ? '"X-API-Key: $API_KEY"' : quoted(`${name}: ${value}`));
  parts.push(...(shown ?? []), quoted(url.href));
  return element(
    "details",
    { className: "media" },
    element("summary", {}, "As a command"),
    element("pre", { className: "body", tabIndex: 0, role: "region", "aria-label": "Command" }, parts.join(" ")),
  );
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
