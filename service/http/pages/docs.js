// The page: reads the service's own description and shows it.

import { element, prose } from "./elements.js";
import { contentsOf, openOperation, sectionsOf } from "./operations.js";

// The page is `<service>/docs`, whatever the service's own prefix is.
const BASE = new URL("./", document.baseURI);

async function show() {
  const main = document.getElementById("operations");
  let api;
  try {
    const response = await fetch(new URL("openapi.json", BASE), { cache: "no-store" });
    if (!response.ok) throw new Error(`the service answered with ${response.status}`);
    api = await response.json();
  } catch (error) {
    main.append(element("p", { className: "notice" }, `The description could not be read: ${error.message}.`));
    return;
  }
  document.getElementById("about").replaceChildren(...prose(api.info.description ?? ""));
  document.getElementById("key").placeholder = api.components?.securitySchemes ? "needed" : "none needed";
  document.getElementById("contents").append(contentsOf(api));
  main.append(...sectionsOf(api, BASE));
  openLinked();
}

async function showModel() {
  const line = document.getElementById("model");
  try {
    const response = await fetch(new URL("healthz", BASE), { cache: "no-store" });
    const health = await response.json();
    const name = health.model ? `${health.model.name}, version ${health.model.version} · ${health.model.format} on ${health.model.device}` : response.ok ? "several models" : "no model yet";
    const state = element("span", { className: `dot ${response.ok ? "good" : "ours"}` });
    const reasons = response.ok ? "ready" : health.reasons.join("; ");
    line.replaceChildren(state, `${name} · ${reasons}`);
    if (!health.model && !response.ok) line.append(" ", element("a", { href: "" }, "Load this page again"));
  } catch {
    line.textContent = "The service does not answer.";
  }
}

/** A link to an operation opens it. */
function openLinked() {
  const id = decodeURIComponent(location.hash.slice(1));
  if (openOperation(id)) document.getElementById(id).scrollIntoView();
}

await Promise.all([show(), showModel()]);
