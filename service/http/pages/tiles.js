// The numbers of this moment, large.

import { element } from "./elements.js";
import { amount, count, duration, percent } from "./figures.js";

// Long enough for a calm number, short enough to follow a change.
const RATE_S = 10;

/** The tiles for a document of /status.json and the history that ends with it. */
export function tilesOf(told, history) {
  const { health, latency, settings } = told;
  const lately = history.during(RATE_S);
  const rate = (value) => (lately ? value(lately.totals) / lately.seconds : null);
  const sizes = lately?.totals.batches ? lately.totals : history.newest.totals;
  const mean = sizes.batches ? sizes.rows / sizes.batches : null;
  const failed = rate(({ requests }) => requests.failed);
  return [
    tile("Requests", amount(rate(({ requests }) => requests.succeeded + requests.failed)), "/ s", `${count(history.newest.totals.requests.succeeded)} answered`),
    tile("Rows", amount(rate(({ rows }) => rows)), "/ s", `${count(history.newest.totals.rows)} in all`),
    tile("Latency", amount(latency.p50_ms), "ms p50", `p95 ${amount(latency.p95_ms)} · p99 ${amount(latency.p99_ms)}`),
    tile("Batch", amount(mean), "rows", mean === null ? "none yet" : `${percent(mean / settings.max_batch_size)} of ${count(settings.max_batch_size)}`),
    tile("Queue", count(health.queue_depth), "rows", `of ${count(settings.max_queue_size)} · oldest ${duration(health.oldest_wait_ms)}`),
    tile("Failed", amount(failed), "/ s", `${count(history.newest.totals.requests.failed)} in all`, failed > 0 ? "bad" : ""),
  ];
}

function tile(name, value, unit, more, className = "") {
  return element(
    "li",
    { className: `tile ${className}` },
    element("span", { className: "tile-name" }, name),
    element("span", { className: "tile-value" }, value, element("span", { className: "tile-unit" }, ` ${unit}`)),
    element("span", { className: "tile-more" }, more),
  );
}
