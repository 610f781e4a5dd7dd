// What the service has told since the page was opened. All of its totals grow, so a difference of two is what happened
// between them.

const KEPT_S = 120;

/** Samples of one run of the service, newest last; a new run begins a new history. */
export class History {
  constructor() {
    this.samples = [];
    this.startedAt = null;
  }

  /** Take over a document of /status.json. */
  add(told) {
    if (told.started_at !== this.startedAt) {
      this.samples = [];
      this.startedAt = told.started_at;
    }
    // Answers may overtake each other.
    if (this.samples.length && told.uptime_s <= this.newest.atS) return;
    this.samples.push({ atS: told.uptime_s, totals: summed(told.totals), latency: told.latency });
    this.samples = this.samples.filter(({ atS }) => atS >= told.uptime_s - KEPT_S);
  }

  get newest() {
    return this.samples.at(-1);
  }

  /** What happened in the last `seconds`, or since the page was opened, and how long that is; null until it is known. */
  during(seconds) {
    const first = this.samples.find(({ atS }) => atS >= this.newest.atS - seconds);
    if (!first || first === this.newest) return null;
    return { totals: difference(this.newest.totals, first.totals), seconds: this.newest.atS - first.atS };
  }

  /** `value(totals, seconds)` of what happened between each two samples, as points of a chart. */
  points(value) {
    return this.samples.slice(1).map(({ atS, totals }, i) => {
      const before = this.samples[i];
      return { atS, value: value(difference(totals, before.totals), atS - before.atS) };
    });
  }
}

/** The totals of all versions of all models in one. */
function summed(totals) {
  const nothing = { requests: { succeeded: 0, failed: 0 }, seconds: {}, rows: 0, batches: 0, tokens: 0, padding_tokens: 0, abandoned_rows: 0 };
  return totals.map(({ model, version, ...counts }) => counts).reduce((one, other) => combined(one, other, (a, b) => a + b), nothing);
}

function difference(newer, older) {
  return combined(newer, older, (a, b) => a - b);
}

/** Number by number; what only one of them has is 0 in the other. */
function combined(one, other, operation) {
  if (typeof (one ?? other) === "number") return operation(one ?? 0, other ?? 0);
  const names = new Set([...Object.keys(one ?? {}), ...Object.keys(other ?? {})]);
  return Object.fromEntries([...names].map((name) => [name, combined(one?.[name], other?.[name], operation)]));
}
