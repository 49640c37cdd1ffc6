// Groups of bars with intervals.

import { element, shape } from "./elements.js";
import { colourClass, drawYAxis, legendOf, onWidth, svgOf, tooltipOf } from "./plot_frame.js";
import { valueScale } from "./scales.js";
import { textOf } from "./number_texts.js";

const HEIGHT = 270;

export function drawBars(place, chart) {
  const canvas = element("div", { class: "canvas" });
  let draw = () => {};
  const legend = legendOf(chart.series, () => draw());
  place.append(legend.list, canvas);
  const tooltip = tooltipOf(canvas);
  let width = 0;
  draw = () => {
    canvas.querySelectorAll("svg").forEach((old) => old.remove());
    canvas.prepend(drawing(chart, legend.hidden, width, tooltip));
  };
  onWidth(canvas, (found) => {
    width = found;
    draw();
  });
}

function drawing(chart, hidden, width, tooltip) {
  const [left, bottom] = [52, HEIGHT - 40];
  const svg = svgOf(width, HEIGHT, chart.title);
  const values = chart.series.flatMap((one) => [...one.values, ...one.low, ...one.high]);
  const y = valueScale(chart.y, values, bottom, 10);
  drawYAxis(svg, y, chart.y, left, width - 8);
  const shown = chart.series.map((one, k) => [one, k]).filter(([, k]) => !hidden.has(k));
  const room = (width - 8 - left) / chart.groups.length;
  const thick = Math.min(44, (room * 0.82) / Math.max(1, shown.length));
  // Short labels that would touch are left out; the tooltip has them all.
  const longest = Math.min(6, Math.max(...chart.groups.map((group) => group.length)));
  const every = Math.max(1, Math.ceil((longest * 7 + 6) / room));
  chart.groups.forEach((group, g) => {
    const middle = left + room * (g + 0.5);
    shown.forEach(([one, place], k) => {
      const x = middle + (k - shown.length / 2) * thick;
      drawBar(svg, chart, one, g, { x, thick, y, colour: colourClass(one, place), group, tooltip });
    });
    if (g % every) return;
    const text = shape("text", { class: "tick", x: middle, y: bottom + 16, "text-anchor": "middle" });
    const letters = Math.max(4, Math.floor((room * every) / 7));
    text.append(group.length > letters ? `${group.slice(0, letters - 1)}…` : group);
    text.append(shape("title", {}, group));
    svg.append(text);
  });
  const label = shape("text", { class: "axis", x: width - 8, y: bottom + 33, "text-anchor": "end" });
  label.append(chart.groups_label);
  svg.append(label, shape("line", { class: "rule", x1: left, x2: width - 8, y1: y.at(0), y2: y.at(0) }));
  svg.addEventListener("pointerleave", () => tooltip.hide());
  return svg;
}

function drawBar(svg, chart, one, g, { x, thick, y, colour, group, tooltip }) {
  const value = one.values[g];
  if (value === null || value === undefined) return;
  const [top, base] = [Math.min(y.at(value), y.at(0)), Math.max(y.at(value), y.at(0))];
  const size = { x: x + 1, y: top, width: Math.max(1, thick - 2), height: base - top };
  const bar = shape("rect", { class: `bar ${colour}`, ...size });
  svg.append(bar);
  let text = textOf(value, chart.y.unit);
  if (one.low.length && one.low[g] !== null) {
    const middle = x + thick / 2;
    const [from, to] = [y.at(one.low[g]), y.at(one.high[g])];
    svg.append(shape("path", { class: "whisker", d: `M${middle} ${from}V${to}M${middle - 3} ${from}h6M${middle - 3} ${to}h6` }));
    text += ` (${textOf(one.low[g], chart.y.unit)} to ${textOf(one.high[g], chart.y.unit)})`;
  }
  bar.addEventListener("pointermove", () => tooltip.show(x, 14, group, [[colour, one.name, text]]));
}
