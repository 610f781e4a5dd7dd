// The models and versions that are served here.

import { element } from "./elements.js";
import { count } from "./figures.js";

const TITLES = ["model", "version", "state", "format", "device", "input", "requests", "rows"];

/** A table of all versions; their warnings, and why a load failed, stand below them. */
export function modelsTable({ models, totals }) {
  if (!models.length) return element("p", { className: "hint nothing" }, "No model yet.");
  const rows = models.flatMap((model) => model.versions.flatMap((version) => rowsOf(model, version, totals)));
  const head = element("tr", {}, ...TITLES.map((title) => element("th", { scope: "col" }, title)));
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  // It may scroll sideways, and what scrolls must be reachable by keyboard.
  return element("div", { className: "scrolls", tabIndex: 0, role: "region", "aria-label": "Models" }, table);
}

function rowsOf(model, version, totals) {
  const counts = totals.find((one) => one.model === model.name && one.version === version.version);
  const isDefault = model.default_version === version.version;
  const cells = [
    model.name,
    element("span", {}, version.version, isDefault ? element("span", { className: "hint" }, " default") : null),
    element("span", {}, element("span", { className: `dot ${dotOf(version.state)}` }), version.state),
    version.format ?? "–",
    version.device ?? "–",
    version.input ?? "–",
    counts ? count(counts.requests.succeeded + counts.requests.failed) : "–",
    counts ? count(counts.rows) : "–",
  ];
  const row = element("tr", {}, ...cells.map((cell, i) => element("td", { className: i > 5 ? "number" : "" }, cell)));
  const remarks = [...(version.warnings ?? []), ...(version.reason ? [version.reason] : [])];
  return [row, ...remarks.map((text) => element("tr", {}, element("td", { colSpan: TITLES.length, className: "remark" }, text)))];
}

function dotOf(state) {
  return state === "loaded" ? "good" : state === "failed" ? "ours" : "soft";
}
