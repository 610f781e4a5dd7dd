// Building elements. Text becomes text nodes and never markup, whatever it holds.

/** An element; `properties` are set as DOM properties, those with a dash and `for`, `role`, `list` as attributes. */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.includes("-") || name === "for" || name === "role") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

let count = 0;

/** An id that no other element of the page has. */
export function newId(name) {
  count += 1;
  return `${name}-${count}`;
}

/** Prose in which `words` between backquotes are code. */
export function prose(text) {
  const parts = text.split("`");
  return parts.map((part, i) => (i % 2 ? element("code", {}, part) : part));
}

/** A details element whose content is made when it is first opened: schemas may hold themselves. */
export function folded(summary, makeContent, properties = {}, isOpen = false) {
  const node = element("details", properties, element("summary", {}, ...summary));
  const fill = () => {
    if (node.open && node.children.length === 1) node.append(makeContent());
  };
  node.addEventListener("toggle", fill);
  node.open = isOpen;
  // The event comes later; what is open from the start is whole at once.
  fill();
  return node;
}
