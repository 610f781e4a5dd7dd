// Numbers for people: as many digits as tell something, and units.

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** E.g. 1,234; beyond a million 1.23M. */
export function count(value) {
  return value < 1e6 ? COUNT.format(value) : SHORT.format(value);
}

/** Three digits that matter: 0.12, 3.4, 56.7, 890. Null is a dash. */
export function amount(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value >= 1000) return count(value);
  return value.toFixed(value === 0 || value >= 100 ? 0 : value >= 1 ? 1 : 2);
}

export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const shown = share * 100;
  return `${shown > 0 && shown < 10 ? shown.toFixed(1) : shown.toFixed(0)} %`;
}

/** Milliseconds with the unit that suits them. */
export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  return ms < 10_000 ? `${amount(ms)} ms` : span(ms / 1000);
}

/** E.g. "4 s", "3 min 20 s", "5 h 12 min", "12 d 3 h". */
export function span(seconds) {
  const whole = Math.floor(seconds);
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0 s";
  let left = whole;
  const parts = units.slice(first, first + 2).map(([name, size]) => {
    const number = Math.floor(left / size);
    left -= number * size;
    return number ? `${number} ${name}` : "";
  });
  return parts.filter(Boolean).join(" ");
}
