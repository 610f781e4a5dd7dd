// The last batches on an axis of time: where a bar begins the batch began, it is as wide as that took, and as high as the
// batch had rows. Its colour is why the batch left. Batches of several worker threads run at the same time: each thread
// has a lane of its own, the first one on top.

import { legendEntry, shape } from "./charts.js";
import { REASONS } from "./distributions.js";
import { element } from "./elements.js";
import { count, duration, percent, span } from "./figures.js";

const HEIGHT = 130;
const LEAST_LANE_HEIGHT = 32;
const LANE_GAP = 4;
const LEAST_WIDTH = 3;
const LEAST_HEIGHT = 4;

// The shortest of these spans that holds so many batches is shown, seconds.
const SPANS_S = [0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60];
const ENOUGH = 48;

/** What the colours of the bars mean. */
export function reasonsLegend() {
  return Object.keys(REASONS).map((reason) => legendEntry(`reason-${reason}`, reason));
}

export class BatchTimeline {
  constructor(place) {
    this.bars = shape("svg", { class: "timeline", height: HEIGHT, role: "group", "aria-label": "Batches, oldest first; arrow keys go from one to the next" });
    this.top = element("span", { className: "tick" });
    this.from = element("span");
    this.to = element("span");
    this.detail = element("p", { className: "detail" });
    this.drawn = new Map();
    this.looked = null;
    this.startedAt = null;
    place.append(
      element("div", { className: "plot" }, this.bars, this.top),
      element("div", { className: "axis" }, this.from, this.to),
      this.detail,
    );
    this.bars.addEventListener("keydown", (event) => this.step(event));
    this.bars.addEventListener("pointerleave", () => this.lookAt(null));
    this.bars.addEventListener("focusout", () => this.lookAt(null));
    this.detail.textContent = "No batch has run yet.";
  }

  /** Draw the batches of a document of /status.json. */
  update(told) {
    if (told.started_at !== this.startedAt) this.forget();
    this.startedAt = told.started_at;
    this.told = told;
    const endS = Math.max(0, ...told.recent_batches.map(endOf));
    const spanS = spanFor(told.recent_batches, endS);
    const shown = told.recent_batches.filter((batch) => batch.started_at_s >= endS - spanS);
    this.place(shown, endS - spanS, spanS);
    this.top.textContent = `${count(told.settings.max_batch_size)} rows${this.lanes > 1 ? `, ${count(this.lanes)} worker threads` : ""}`;
    this.from.textContent = shown.length ? `${spanS < 1 ? duration(spanS * 1000) : span(spanS)} before` : "";
    this.to.textContent = shown.length ? this.ago(shown.at(-1)) : "";
    this.lookAt(this.looked);
  }

  /** Bars stay the same elements as long as their batches are shown, and so keep the focus. */
  place(shown, fromS, spanS) {
    const width = this.bars.clientWidth || 600;
    const rows = this.told.settings.max_batch_size;
    this.lanes = this.told.health.instances?.count ?? 1;
    const laneHeight = Math.max(LEAST_LANE_HEIGHT, HEIGHT / this.lanes);
    this.bars.setAttribute("height", laneHeight * this.lanes);
    for (const [id, { bar }] of this.drawn) {
      if (shown.some((batch) => batch.batch_id === id)) continue;
      bar.remove();
      this.drawn.delete(id);
    }
    for (const batch of shown) {
      const { bar } = this.drawn.get(batch.batch_id) ?? this.draw(batch);
      const high = Math.max(LEAST_HEIGHT, (batch.size / rows) * (laneHeight - LANE_GAP));
      const low = laneHeight * (Math.min(batch.instance, this.lanes - 1) + 1);
      const wide = Math.max(LEAST_WIDTH, (batch.model_ms / 1000 / spanS) * width - 1);
      const left = Math.min(width - wide, ((batch.started_at_s - fromS) / spanS) * width);
      for (const [name, value] of Object.entries({ x: left, y: low - high, width: wide, height: high })) bar.setAttribute(name, value.toFixed(1));
    }
    this.makeReachable();
  }

  draw(batch) {
    const failed = batch.failed_rows ? " failed" : "";
    const bar = shape("rect", { class: `batch reason-${batch.reason}${failed}`, rx: 1.5, role: "img", "aria-label": wordsFor(batch), tabindex: -1 });
    bar.addEventListener("pointerenter", () => this.lookAt(batch.batch_id));
    bar.addEventListener("focus", () => this.lookAt(batch.batch_id));
    this.drawn.set(batch.batch_id, { bar, batch });
    this.bars.append(bar);
    return { bar };
  }

  forget() {
    for (const { bar } of this.drawn.values()) bar.remove();
    this.drawn.clear();
    this.looked = null;
  }

  /** The tab key reaches one bar; arrow keys reach the others. */
  makeReachable() {
    const bars = [...this.bars.children];
    const focused = bars.find((bar) => bar === document.activeElement) ?? bars.at(-1);
    for (const bar of bars) bar.setAttribute("tabindex", bar === focused ? 0 : -1);
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const bars = [...this.bars.children];
    const next = by && bars[bars.indexOf(document.activeElement) + by];
    if (!next) return;
    event.preventDefault();
    next.focus();
    this.makeReachable();
  }

  ago(batch) {
    const agoS = this.told.uptime_s - endOf(batch);
    return agoS < 1 ? "just now" : `${span(agoS)} ago`;
  }

  /** Tell more of one batch; of the latest when none is looked at. */
  lookAt(id) {
    this.looked = this.drawn.has(id) ? id : null;
    for (const [one, { bar }] of this.drawn) bar.classList.toggle("looked", one === this.looked);
    const batch = this.drawn.get(this.looked)?.batch ?? this.told?.recent_batches.at(-1);
    if (batch) this.detail.replaceChildren(element("strong", {}, this.looked ? "" : "Latest: "), `${wordsFor(batch)}, ${this.ago(batch)}.`);
    else this.detail.textContent = "No batch has run yet.";
  }
}

function endOf(batch) {
  return batch.started_at_s + batch.model_ms / 1000;
}

function spanFor(batches, endS) {
  const enough = batches.slice(-ENOUGH);
  const neededS = enough.length ? endS - enough[0].started_at_s : 0;
  return SPANS_S.find((seconds) => seconds >= neededS) ?? SPANS_S.at(-1);
}

function wordsFor(batch) {
  const parts = [
    `Batch ${batch.batch_id} of ${batch.model} ${batch.version}: ${count(batch.size)} ${batch.size === 1 ? "row" : "rows"}`,
    `left for ${batch.reason} (${REASONS[batch.reason] ?? "other"})`,
    `waited up to ${duration(batch.longest_wait_ms)}`,
    `${duration(batch.model_ms)} in the model`,
  ];
  if (batch.instance) parts.push(`by worker thread ${batch.instance + 1}`);
  if (batch.padding_share) parts.push(`${percent(batch.padding_share)} padding`);
  if (batch.runs > 1) parts.push(`${batch.runs} model calls`);
  if (batch.failed_rows) parts.push(`${batch.failed_rows} failed`);
  return parts.join(", ");
}
