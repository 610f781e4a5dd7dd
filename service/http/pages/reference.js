// What an operation takes and gives, to be read: parameters, bodies, answers.

import { element, folded, prose } from "./elements.js";
import { resolve, schemaView, typeOf } from "./schemas.js";

/** All sections of the reference that the operation has. */
export function referenceView(api, operation) {
  const view = element("div", { className: "reference" });
  if (operation.description) view.append(element("p", {}, ...prose(operation.description)));
  if (operation.security) view.append(element("p", { className: "hint" }, keyNeeded(api, operation.security)));
  if (operation.parameters?.length) view.append(...parametersView(api, operation.parameters));
  if (operation.requestBody) view.append(...bodiesView(api, resolve(api, operation.requestBody)));
  view.append(...answersView(api, operation.responses));
  return view;
}

function keyNeeded(api, security) {
  const [scheme] = Object.keys(security[0]);
  return `Needs a key, as X-API-Key or as Bearer token. ${api.components.securitySchemes[scheme].description ?? ""}`;
}

function parametersView(api, parameters) {
  const list = element("ul", { className: "properties" });
  for (const parameter of parameters.map((node) => resolve(api, node))) {
    const place = parameter.in === "path" ? "in the path" : parameter.in;
    list.append(
      element(
        "li",
        {},
        element("code", { className: "name" }, parameter.name),
        element("span", { className: "type" }, `${place}, ${typeOf(parameter.schema)}`),
        parameter.required ? element("span", { className: "required" }, "required") : null,
        element("p", { className: "hint" }, ...prose(parameter.description ?? "")),
      ),
    );
  }
  return [element("h4", {}, "Parameters"), list];
}

function bodiesView(api, body) {
  const views = Object.entries(body.content).map(([type, media], position) =>
    folded([element("code", {}, type)], () => schemaView(api, media.schema), { className: "media" }, position === 0),
  );
  return [element("h4", {}, "Body"), ...views];
}

function answersView(api, responses) {
  const views = Object.entries(responses).map(([status, response]) => answerView(api, status, resolve(api, response)));
  return [element("h4", {}, "Answers"), ...views];
}

function answerView(api, status, response) {
  const summary = [
    element("span", { className: `status ${statusClass(status)}` }, status),
    element("span", { className: "meaning" }, firstSentence(response.description)),
  ];
  return folded(summary, () => answerDetail(api, response), { className: "media" });
}

function answerDetail(api, response) {
  const detail = element("div", { className: "detail" });
  if (response.description !== firstSentence(response.description)) {
    detail.append(element("p", { className: "hint" }, response.description));
  }
  for (const [type, media] of Object.entries(response.content ?? {})) {
    detail.append(element("p", { className: "type" }, type), schemaView(api, media.schema));
  }
  const headers = Object.entries(response.headers ?? {});
  if (headers.length) {
    const list = element("ul", { className: "properties" });
    for (const [name, node] of headers) {
      const header = resolve(api, node);
      list.append(
        element("li", {}, element("code", { className: "name" }, name), element("p", { className: "hint" }, ...prose(header.description ?? ""))),
      );
    }
    detail.append(element("h5", {}, "Headers"), list);
  }
  return detail;
}

/** The class under which a status has its colour. */
export function statusClass(status) {
  return Number(status) < 400 ? "good" : Number(status) < 500 ? "theirs" : "ours";
}

function firstSentence(text) {
  return text.split(/(?<=\.) /, 1)[0];
}
