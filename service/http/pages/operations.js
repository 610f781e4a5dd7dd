// The operations, by their tags, and the list of contents.

import { element, folded } from "./elements.js";
import { referenceView } from "./reference.js";
import { tryView } from "./try.js";

const METHODS = ["get", "head", "post", "put", "patch", "delete"];

/** Every operation of the document, in its order. */
export function operationsOf(api) {
  return Object.entries(api.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => method in item).map((method) => ({ path, method, operation: item[method] })),
  );
}

/** One section for each tag, with its operations; the first operation is open. */
export function sectionsOf(api, base) {
  const all = operationsOf(api);
  return api.tags.map(({ name }) => {
    const own = all.filter(({ operation }) => operation.tags?.includes(name));
    const cards = own.map((one) => card(api, base, one, one === all[0]));
    return element("section", { "aria-label": name }, element("h2", {}, name), ...cards);
  });
}

/** Links to the operations. */
export function contentsOf(api) {
  const links = operationsOf(api).map(({ path, method, operation }) => {
    const link = element("a", { href: `#${operation.operationId}` }, methodBadge(method), element("span", { className: "path" }, ...breakable(path)));
    link.addEventListener("click", () => (document.getElementById(operation.operationId).open = true));
    return element("li", {}, link);
  });
  return element("ul", {}, ...links);
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
