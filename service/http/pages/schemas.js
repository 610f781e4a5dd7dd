// JSON Schema for people: a line for the type, and the properties below it.

import { element, folded, prose } from "./elements.js";

/** `node`, or what it refers to; keys beside the reference win. */
export function resolve(api, node) {
  if (!node?.$ref) return node;
  const { $ref, ...beside } = node;
  const target = $ref
    .slice(2)
    .split("/")
    .reduce((part, key) => part[key.replaceAll("~1", "/").replaceAll("~0", "~")], api);
  return { ...resolve(api, target), ...beside };
}

/** E.g. "array of Instance, 1 to 1024 items". */
export function typeOf(schema) {
  return [kindOf(schema), ...limitsOf(schema)].join(", ");
}

/** The type line, the description and, folded, everything that the schema consists of. */
export function schemaView(api, schema) {
  const known = resolve(api, schema);
  const view = element("div", { className: "schema" });
  view.append(element("p", { className: "type" }, typeOf(schema)));
  if (known.description) view.append(element("p", { className: "hint" }, ...prose(known.description)));
  const content = contentOf(api, known);
  if (content) view.append(content);
  return view;
}

function kindOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  const choices = schema.anyOf ?? (isChoiceOfKeys(schema) ? null : schema.oneOf);
  if (choices) return choices.map((choice) => choice.title ?? typeOf(choice)).join(" or ");
  if (schema.format === "binary") return "file";
  const types = [schema.type ?? "any"].flat();
  return types.map((type) => (type === "array" ? arrayOf(schema) : type)).join(" or ");
}

function arrayOf(schema) {
  if (schema.prefixItems) return `array of ${schema.prefixItems.length} values`;
  return schema.items ? `array of ${schema.items.title ?? kindOf(schema.items)}` : "array";
}

function limitsOf(schema) {
  const limits = [range(schema.minItems, schema.maxItems, "items"), range(schema.minLength, schema.maxLength, "characters")];
  if (schema.exclusiveMinimum !== undefined) limits.push(`above ${schema.exclusiveMinimum}`);
  limits.push(range(schema.minimum, schema.maximum, ""));
  return limits.filter(Boolean);
}

function range(least, most, unit) {
  if (least === undefined && most === undefined) return "";
  if (least === most) return `${least} ${unit}`.trim();
  if (most === undefined) return `at least ${least} ${unit}`.trim();
  return (least === undefined ? `at most ${most} ${unit}` : `${least} to ${most} ${unit}`).trim();
}

function isChoiceOfKeys(schema) {
  return schema.oneOf?.every((choice) => choice.required);
}

function contentOf(api, schema) {
  if (schema.properties) return propertiesOf(api, schema);
  if (schema.anyOf) return choicesOf(api, schema.anyOf);
  if (schema.items?.$ref || schema.items?.properties || schema.items?.anyOf) return part(api, schema.items);
  return null;
}

function propertiesOf(api, schema) {
  const list = element("ul", { className: "properties" });
  if (isChoiceOfKeys(schema)) {
    const names = schema.oneOf.flatMap((choice) => choice.required).join(" or ");
    list.append(element("li", { className: "hint" }, `Either ${names}, not both.`));
  }
  for (const [name, property] of Object.entries(schema.properties)) {
    const known = resolve(api, property);
    const item = element(
      "li",
      {},
      element("code", { className: "name" }, name),
      element("span", { className: "type" }, typeOf(property)),
      schema.required?.includes(name) ? element("span", { className: "required" }, "required") : null,
    );
    const described = property.$ref ? property.description : known.description;
    if (described) item.append(element("p", { className: "hint" }, ...prose(described)));
    const inner = property.$ref ?? property.items?.$ref ? part(api, property.$ref ? property : property.items) : contentOf(api, known);
    if (inner) item.append(inner);
    list.append(item);
  }
  return list;
}

function choicesOf(api, choices) {
  const shown = choices.filter((choice) => choice.type !== "null");
  if (shown.every((choice) => !choice.title && !choice.$ref && !contentOf(api, choice))) return null;
  return element("div", { className: "choices" }, ...shown.map((choice) => part(api, choice)));
}

/** A schema inside another one, folded because it may be large, or be the outer one again. */
function part(api, schema) {
  const known = resolve(api, schema);
  const name = schema.$ref ? kindOf(schema) : known.title ?? kindOf(known);
  return folded([name], () => schemaView(api, known), { className: "part" });
}
