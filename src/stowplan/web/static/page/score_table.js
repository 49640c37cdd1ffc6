// Scores of the best nodes: a column each, a row per plugin with raw score, normalised times weight.

import { element } from "../elements.js";
import { plainTable } from "./controls.js";
import { countText } from "./quantities.js";

export function scoreTable(app, scores) {
  const plugins = [...new Set(scores.flatMap((one) => Object.keys(one.plugins || {})))];
  const link = (one) => element("a", { href: app.address.link("nodes", { node: one.name }) }, one.name);
  const columns = [["Plugin"], ...scores.map((one) => [link(one), true])];
  const rows = plugins.map((name) => [name, ...scores.map((one) => partOf(one.plugins?.[name]))]);
  const total = ["Total", ...scores.map((one) => element("strong", {}, countText(one.total)))];
  return plainTable("Scores of the best nodes", columns, [total, ...rows]);
}

function partOf(part) {
  if (!part) return "";
  const { raw, weight, final } = part;
  if (weight === 1 && raw === final) return countText(final);
  const how = `${raw} → ${final / (weight || 1)} × ${weight}`;
  return element("span", {}, countText(final), element("small", { class: "how" }, how));
}
