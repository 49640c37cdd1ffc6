// Scores of the best nodes: raw times weight for each plugin, and the sum.

import { element } from "../elements.js";
import { plainTable } from "./controls.js";
import { countText } from "./quantities.js";

export function scoreTable(app, scores) {
  const plugins = [...new Set(scores.flatMap((one) => Object.keys(one.plugins || {})))];
  const columns = [["Node"], ["Total", true], ...plugins.map((name) => [name, true])];
  const rows = scores.map((one) => [
    element("a", { href: app.address.link("nodes", { node: one.name }) }, one.name),
    countText(one.total),
    ...plugins.map((name) => partText(one.plugins[name])),
  ]);
  return plainTable("Scores of the best nodes", columns, rows);
}

function partText(part) {
  if (!part) return "";
  const { raw, weight, final } = part;
  return weight === 1 && raw === final ? countText(final) : `${raw} → ${final / (weight || 1)} × ${weight} = ${final}`;
}
