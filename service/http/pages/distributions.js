// How the totals are made up: sizes of batches, why they left, where time goes, what went wrong.

import { barList, stackedBar } from "./charts.js";
import { element } from "./elements.js";
import { count, duration, percent } from "./figures.js";

/** What each reason of a flush means. */
export const REASONS = {
  size: "full",
  tokens: "token budget used up",
  latency: "oldest row had waited its time",
  idle: "worker was free",
  enough: "more rows would make none cheaper",
  drain: "service is stopping",
};

const FAILURES = {
  model: "the model failed",
  output_count: "wrong number of results",
  non_finite: "number that is not finite",
  oom: "out of memory",
  scheduler: "the scheduler failed",
  queue_full: "queue full",
  deadline: "deadline passed",
  draining: "stopping",
  worker_dead: "worker dead",
};

/** Batches by their rows, in ranges that double. */
export function sizesView({ batch_sizes: sizes = {}, batches, rows, tokens, padding_tokens: padding }, maxBatchSize) {
  if (!batches) return nothing("No batch has run.");
  const ranges = doublingRanges(maxBatchSize).map(([least, most]) => {
    const within = Object.entries(sizes).filter(([size]) => size >= least && size <= most);
    const value = within.reduce((sum, [, number]) => sum + number, 0);
    return { name: least === most ? `${least}` : `${least}–${most}`, value, shown: count(value) };
  });
  const facts = [`${count(batches)} batches`, `mean ${(rows / batches).toFixed(1)} rows`];
  // Rows without a length count as one token each, and are never padded.
  if (tokens > rows || padding) facts.push(`padding ${percent(padding / (tokens + padding))} of tokens`);
  return element("div", {}, barList(ranges, "Batches by rows"), element("p", { className: "hint" }, facts.join(" · ")));
}

/** [1, 1], [2, 2], [3, 4], [5, 8] and so on up to the most rows of a batch. */
function doublingRanges(most) {
  const ranges = [[1, 1]];
  while (ranges.at(-1)[1] < most) {
    const [, last] = ranges.at(-1);
    ranges.push([last + 1, Math.min(last * 2, most)]);
  }
  return ranges;
}

/** Batches by why they left. */
export function flushesView({ flushes = {} }) {
  const all = Object.values(flushes).reduce((sum, number) => sum + number, 0);
  if (!all) return nothing("No batch has left.");
  const known = Object.entries(flushes).filter(([, number]) => number);
  const entries = known.map(([reason, number]) => ({
    name: element("span", {}, reason, element("span", { className: "hint" }, REASONS[reason] ?? "")),
    value: number,
    shown: `${count(number)} · ${percent(number / all)}`,
    className: `reason-${reason}`,
  }));
  return barList(entries.sort((a, b) => b.value - a.value), "Batches by why they left");
}

/** The mean request in parts. */
export function timeView({ seconds, requests: { succeeded } }) {
  if (!succeeded) return nothing("No request has been answered.");
  const { prepare, queue, model, present, total } = seconds;
  const other = Math.max(0, total - prepare - queue - model - present);
  const part = (name, inAll) => ({ name, value: inAll, shown: `${duration((inAll / succeeded) * 1000)} · ${percent(inAll / total)}` });
  const parts = [part("prepare rows", prepare), part("wait for a batch", queue), part("in the model", model), part("write the answer", present), part("reading, and handing over", other)];
  return element("div", {}, stackedBar(parts, "Mean request in parts"), element("p", { className: "hint" }, `${duration((total / succeeded) * 1000)} in the mean of ${count(succeeded)} requests`));
}

/** Everything that did not end well, by reason. */
export function failuresView({ errors = {}, rejected = {}, retries = {}, abandoned_rows: abandoned, requests }) {
  const entries = [
    ...entriesOf(rejected, "requests rejected"),
    ...entriesOf(errors, "rows failed"),
    ...entriesOf(retries, "batches split and retried"),
    ["rows abandoned", "client left", abandoned],
  ].filter(([, , number]) => number);
  const summary = element("p", { className: "hint" }, `${count(requests.failed)} requests ended with an error, those with wrong input included`);
  if (!entries.length) return element("div", {}, nothing("None by the service, the model or the queue."), summary);
  const rows = entries.map(([what, why, number]) =>
    element("tr", {}, element("td", {}, what), element("td", {}, why), element("td", { className: "number" }, count(number))),
  );
  const head = element("tr", {}, ...["what", "why", "how many"].map((title) => element("th", { scope: "col" }, title)));
  return element("div", {}, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)), summary);
}

function entriesOf(byReason, what) {
  return Object.entries(byReason).map(([reason, number]) => [what, FAILURES[reason] ?? reason, number]);
}

function nothing(text) {
  return element("p", { className: "hint nothing" }, text);
}
