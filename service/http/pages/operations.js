// The operations, by their tags, and the list of contents.

import { element, folded, prose } from "./elements.js";
import { referenceView } from "./reference.js";
import { tryView } from "./try.js";

const METHODS = ["get", "head", "post", "put", "patch", "delete"];

/** Every operation of the document, in its order. */
export function operationsOf(api) {
  return Object.entries(api.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => method in item).map((method) => ({ path, method, operation: item[method] })),
  );
}

/** One group for each tag, with its operations; the first group is open, and in it the first operation. */
export function sectionsOf(api, base) {
  const all = operationsOf(api);
  return api.tags.map(({ name, description }, position) => {
    const own = all.filter(({ operation }) => operation.tags?.includes(name));
    const cards = own.map((one) => card(api, base, one, one === all[0]));
    const summary = element(
      "summary",
      {},
      element("h2", {}, name),
      element("span", { className: "count" }, String(own.length)),
      element("span", { className: "summary" }, ...prose(description ?? "")),
    );
    return element("details", { className: "group", open: position === 0, "aria-label": name }, summary, ...cards);
  });
}

/** Links to the operations, under their tags. */
export function contentsOf(api) {
  const all = operationsOf(api);
  return element(
    "ul",
    {},
    ...api.tags.map(({ name }, position) => {
      const links = all.filter(({ operation }) => operation.tags?.includes(name)).map(linkTo);
      const group = element("details", { open: position === 0 }, element("summary", {}, name), element("ul", {}, ...links));
      return element("li", {}, group);
    }),
  );
}

/** Opens an operation and the group it stands in; says whether there is one of this id. */
export function openOperation(id) {
  const operation = document.getElementById(id);
  if (!operation?.matches("details.operation")) return false;
  operation.closest("details.group").open = true;
  operation.open = true;
  return true;
}

function linkTo({ path, method, operation }) {
  const link = element("a", { href: `#${operation.operationId}` }, methodBadge(method), element("span", { className: "path" }, ...breakable(path)));
  link.addEventListener("click", () => openOperation(operation.operationId));
  return element("li", {}, link);
}

function card(api, base, { path, method, operation }, isOpen) {
  const summary = [
    methodBadge(method),
    element("code", { className: "path" }, ...breakable(path)),
    element("span", { className: "summary" }, operation.summary ?? ""),
  ];
  const makeContent = () =>
    element("div", { className: "columns" }, referenceView(api, operation), tryView(api, base, method, path, operation));
  return folded(summary, makeContent, { className: "operation", id: operation.operationId }, isOpen);
}

function methodBadge(method) {
  return element("span", { className: `method ${method}` }, method.toUpperCase());
}

/** The path, with places where a narrow screen may break it. */
function breakable(path) {
  return path.split(/(?=\/)/).flatMap((part) => [part, element("wbr")]);
}
