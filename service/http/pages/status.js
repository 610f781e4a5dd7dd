// The page: asks for the numbers and shows them.

import { BatchTimeline, reasonsLegend } from "./batch_timeline.js";
import { lineChart } from "./charts.js";
import { failuresView, flushesView, sizesView, timeView } from "./distributions.js";
import { element } from "./elements.js";
import { amount, duration, span } from "./figures.js";
import { History } from "./history.js";
import { modelsTable } from "./models_table.js";
import { Poll } from "./poll.js";
import { tilesOf } from "./tiles.js";
import { Trial } from "./trial.js";

const BASE = new URL("./", document.baseURI);
const CHART_S = 120;
const MINUTE_S = 60;

const at = (id) => document.getElementById(id);
const history = new History();
const timeline = new BatchTimeline(at("timeline"));
const trial = new Trial(at("trial"), BASE);
const poll = new Poll(new URL("status.json", BASE), { onTold: show, onLost: showLost });
let told = null;

function show(document) {
  told = document;
  history.add(told);
  at("board").classList.remove("stale");
  at("unlock").hidden = true;
  showState(told.health);
  showModel(told);
  at("uptime").textContent = `up ${span(told.uptime_s)}`;
  at("tiles").replaceChildren(...tilesOf(told, history));
  timeline.update(told);
  showCharts();
  showDistributions();
  replace(at("models"), modelsTable(told));
  trial.update(told);
}

function showState(health) {
  const isReady = health.status === "ready";
  setState(isReady ? "good" : "ours", health.status);
  notify(isReady ? "" : `Not ready: ${health.reasons.join("; ")}.`);
}

/** Readers of the page aloud hear of changes only: words that stay the same are not set again. */
function setState(className, words) {
  const state = at("state");
  if (state.textContent === words) return;
  state.className = `state ${className}`;
  state.replaceChildren(element("span", { className: "dot" }), words);
  document.title = words === "ready" ? "Jitney status" : `${words} – Jitney status`;
}

function notify(words) {
  const notice = at("notice");
  if (notice.textContent !== words) notice.textContent = words;
  notice.hidden = !words;
}

function showModel({ health: { model }, models }) {
  const line = at("model");
  if (model) line.textContent = `${model.name}, version ${model.version} · ${model.format} on ${model.device}`;
  else line.textContent = models.length ? `${models.length} models, none of them the default` : "no model yet";
}

function showCharts() {
  const nowS = history.newest.atS;
  const rate = (value) => history.points((totals, seconds) => value(totals) / seconds);
  const throughput = [
    { name: "requests / s", points: rate(({ requests }) => requests.succeeded + requests.failed) },
    { name: "rows / s", points: rate(({ rows }) => rows) },
  ];
  for (const series of throughput) series.shown = amount(series.points.at(-1)?.value);
  at("throughput").replaceChildren(lineChart(throughput, { nowS, spanS: CHART_S, unit: "/ s", label: wordsFor(throughput) }));
  const latency = ["p50", "p95", "p99"].map((name) => {
    const points = history.samples.map(({ atS, latency: known }) => ({ atS, value: known[`${name}_ms`] ?? NaN }));
    return { name, points, shown: duration(told.latency[`${name}_ms`]) };
  });
  at("latency").replaceChildren(lineChart(latency, { nowS, spanS: CHART_S, unit: "ms", label: wordsFor(latency) }));
}

function wordsFor(series) {
  return series.map(({ name, shown }) => `${name}: ${shown}`).join(", ");
}

function showDistributions() {
  const isMinute = at("span-minute").checked;
  const totals = isMinute ? history.during(MINUTE_S)?.totals : history.newest.totals;
  if (!totals) return;
  at("sizes").replaceChildren(sizesView(totals, told.settings.max_batch_size));
  at("flushes").replaceChildren(flushesView(totals));
  at("time").replaceChildren(timeView(totals));
  at("failures").replaceChildren(failuresView(totals));
}

/** A part that can have the focus, or be scrolled, is touched only when it says something new. */
function replace(place, view) {
  if (!place.firstElementChild?.isEqualNode(view)) place.replaceChildren(view);
}

function showLost(error, nextMs) {
  if (error.status === 401) {
    setState("theirs", "key needed");
    at("unlock").hidden = false;
    notify("The numbers are shown to those who have their key.");
    return;
  }
  setState("ours", "connection lost");
  at("board").classList.toggle("stale", told !== null);
  const since = told ? "; the numbers below are the last that came" : "";
  notify(`The service does not answer${since}. Next try in ${span(nextMs / 1000)}.`);
}

at("legend").append(...reasonsLegend());
at("span").addEventListener("change", () => told && showDistributions());
at("pause").addEventListener("click", () => {
  const isPaused = !poll.isPaused;
  at("pause").setAttribute("aria-pressed", isPaused);
  at("pause").textContent = isPaused ? "Go on" : "Pause";
  if (isPaused) poll.pause();
  else poll.resume();
});
at("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  poll.key = at("metrics-key").value;
  poll.resume();
});
poll.resume();
