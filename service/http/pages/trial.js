// Trying the model that is served: the form of the page at /docs, for one operation.

import { element } from "./elements.js";
import { tryView } from "./try.js";

/** Keeps the form in `place` fit for the models that are served; `base`: URL of the service. */
export class Trial {
  constructor(place, base) {
    this.place = place;
    this.base = base;
    this.shown = null;
  }

  /** Show the form for what is served now. What was written into it stays for as long as that does not change. */
  async update({ health, models, started_at: startedAt }) {
    const wanted = health.model ?? models.find(({ versions }) => versions.some(({ state }) => state === "loaded"));
    if (!wanted) return;
    const shown = JSON.stringify([startedAt, wanted.name, wanted.version, health.model === null]);
    if (shown === this.shown) return;
    this.shown = shown;
    try {
      const response = await fetch(new URL("openapi.json", this.base), { cache: "no-store" });
      if (!response.ok) throw new Error(`the service answered with ${response.status}`);
      this.show(await response.json(), health.model ? "/predict" : "/models/{name}/predict", wanted.name);
    } catch (error) {
      this.shown = null; // asked for again with the next numbers
      this.place.replaceChildren(element("p", { className: "hint" }, `The form could not be made: ${error.message}.`));
    }
  }

  show(api, path, name) {
    const operation = api.paths[path].post;
    document.getElementById("key-field").hidden = !operation.security;
    const form = tryView(api, this.base, "post", path, operation);
    const nameField = path === "/predict" ? null : form.querySelector("input[type=text]");
    if (nameField && !nameField.value) nameField.value = name;
    this.place.replaceChildren(form);
  }
}
