// Charts as inline SVG. Shapes stretch with the page; words stand beside them as HTML, which does not stretch.

import { element } from "./elements.js";
import { amount } from "./figures.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1000;
const HEIGHT = 200;

/** An SVG element; `attributes` as they are written. */
export function shape(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/**
 * Lines over the last `spanS` seconds before `nowS`. `series`: [{ name, points: [{ atS, value }], shown }], where `shown`
 * is the present value in words. Points without a value make a gap.
 */
export function lineChart(series, { nowS, spanS, unit, label }) {
  const known = series.flatMap(({ points }) => points.map(({ value }) => value)).filter(Number.isFinite);
  const top = roundUp(Math.max(0, ...known));
  const x = (atS) => WIDTH - ((nowS - atS) / spanS) * WIDTH;
  const y = (value) => HEIGHT - (value / top) * HEIGHT;
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "lines", role: "img", "aria-label": label });
  for (const part of [0.5, 1]) picture.append(shape("line", { x1: 0, x2: WIDTH, y1: y(top * part), y2: y(top * part), class: "grid" }));
  series.forEach(({ points }, i) => picture.append(shape("path", { d: pathOf(points, x, y), class: `line line-${i}` })));
  return element(
    "figure",
    { className: "chart" },
    element("ul", { className: "legend" }, ...series.map(({ name, shown }, i) => legendEntry(`line-${i}`, name, shown))),
    element("div", { className: "plot" }, picture, element("span", { className: "tick" }, `${amount(top)} ${unit}`)),
    element("div", { className: "axis" }, element("span", {}, `${spanS / 60} min ago`), element("span", {}, "now")),
    known.length ? null : element("p", { className: "hint nothing" }, "No numbers yet"),
  );
}

export function legendEntry(className, name, shown) {
  return element("li", {}, element("span", { className: `swatch ${className}` }), name, shown ? element("strong", {}, shown) : null);
}

function pathOf(points, x, y) {
  let isDrawing = false;
  const steps = points.map(({ atS, value }) => {
    if (!Number.isFinite(value)) {
      isDrawing = false;
      return "";
    }
    const step = `${isDrawing ? "L" : "M"}${x(atS).toFixed(1)} ${y(value).toFixed(1)}`;
    isDrawing = true;
    return step;
  });
  return steps.join("");
}

/** The next of 1, 2, 5, 10, 20, …; a chart whose top is such a number is read at a glance. */
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

/** Rows of a name, a bar and what it stands for. `entries`: [{ name, value, shown, className }]. */
export function barList(entries, label) {
  const most = Math.max(...entries.map(({ value }) => value), 0);
  const rows = entries.map(({ name, value, shown, className = "" }) => {
    const bar = element("span", { className: `bar ${className}` });
    bar.style.width = most ? `${(value / most) * 100}%` : "0";
    return element("li", {}, element("span", { className: "bar-name" }, name), element("span", { className: "bar-room" }, bar), element("span", { className: "bar-value" }, shown));
  });
  return element("ul", { className: "bars", "aria-label": label }, ...rows);
}

/** One bar in parts. `parts`: [{ name, value, shown }]. */
export function stackedBar(parts, label) {
  const whole = parts.reduce((sum, { value }) => sum + value, 0);
  const pieces = parts.map(({ name, value, shown }, i) => {
    const piece = element("span", { className: `piece piece-${i}`, title: `${name}: ${shown}` });
    piece.style.width = `${(value / whole) * 100}%`;
    return piece;
  });
  return element(
    "figure",
    { className: "chart", "aria-label": label },
    element("div", { className: "stack", "aria-hidden": "true" }, ...pieces),
    element("ul", { className: "legend column" }, ...parts.map(({ name, shown }, i) => legendEntry(`piece-${i}`, name, shown))),
  );
}
