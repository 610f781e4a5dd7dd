// Asking again and again: while somebody can see the page, and less often while nobody answers.

const EVERY_MS = 2000;
const LONGEST_MS = 30_000;
const GIVE_UP_MS = 5000;

/**
 * Asks `url` until the page is closed. `onTold(document)`: an answer came. `onLost(error, nextMs)`: none came, or no good
 * one, and the next try is so far away; `error.status` is that of the answer, if there was one.
 */
export class Poll {
  constructor(url, { onTold, onLost }) {
    this.url = url;
    this.onTold = onTold;
    this.onLost = onLost;
    this.key = "";
    this.isPaused = false;
    this.failures = 0;
    this.timer = null;
    this.isAsking = false;
    document.addEventListener("visibilitychange", () => this.isPaused || this.resume());
  }

  pause() {
    this.isPaused = true;
    clearTimeout(this.timer);
  }

  /** Ask now, and from now on, if somebody looks. */
  resume() {
    this.isPaused = false;
    clearTimeout(this.timer);
    if (!document.hidden && !this.isAsking) this.ask();
  }

  async ask() {
    this.isAsking = true;
    let told, error;
    try {
      told = await this.fetch();
      this.failures = 0;
    } catch (failure) {
      error = failure;
      this.failures += 1;
    }
    this.isAsking = false;
    const nextMs = Math.min(LONGEST_MS, EVERY_MS * 2 ** this.failures);
    if (!document.hidden && !this.isPaused) this.timer = setTimeout(() => this.ask(), error ? nextMs : EVERY_MS);
    if (error) this.onLost(error, nextMs);
    else this.onTold(told);
  }

  async fetch() {
    const headers = this.key ? { "X-API-Key": this.key } : {};
    const response = await fetch(this.url, { headers, cache: "no-store", signal: AbortSignal.timeout(GIVE_UP_MS) });
    if (!response.ok) throw Object.assign(new Error(`the service answered with ${response.status}`), { status: response.status });
    return response.json();
  }
}
