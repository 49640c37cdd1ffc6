// Estimates with intervals beside a reference line.

import { element, shape } from "./elements.js";
import { colourClass, drawXAxis, onWidth, svgOf } from "./plot_frame.js";
import { scaleOf } from "./scales.js";
import { textOf } from "./number_texts.js";

const ROW = 24;

export function drawIntervals(place, chart) {
  const canvas = element("div", { class: "canvas" });
  place.append(canvas);
  onWidth(canvas, (width) => {
    canvas.replaceChildren(drawing(chart, width));
  });
}

function drawing(chart, width) {
  const groups = [...new Set(chart.estimates.map((one) => one.group))];
  const names = [...new Set(chart.estimates.map((one) => one.name))];
  const height = 56 + ROW * (groups.length + chart.estimates.length);
  const left = Math.min(240, width * 0.4);
  const svg = svgOf(width, height, chart.title);
  const ends = chart.estimates.flatMap((one) => [one.low, one.high, one.value]);
  const x = scaleOf(chart.x, [...ends, chart.reference], left, width - 24);
  const bottom = height - 42;
  drawXAxis(svg, x, chart.x, bottom, width);
  const zero = x.at(chart.reference);
  svg.append(shape("line", { class: "cursor", x1: zero, x2: zero, y1: 6, y2: bottom }));
  let y = 8;
  for (const group of groups) {
    svg.append(words(shape("text", { class: "head", x: 0, y: y + 15 }), group, left / 7));
    y += ROW;
    for (const one of chart.estimates.filter((each) => each.group === group)) {
      drawEstimate(svg, chart, one, { x, y: y + 11, left, place: names.indexOf(one.name) });
      y += ROW;
    }
  }
  return svg;
}

function drawEstimate(svg, chart, one, { x, y, left, place }) {
  const colour = colourClass(one, place);
  const isSure = one.verdict !== "no difference found";
  svg.append(words(shape("text", { class: "tick", x: 12, y: y + 4 }), one.name, left / 7 - 2));
  svg.append(shape("line", { class: `interval ${colour}`, x1: x.at(one.low), x2: x.at(one.high), y1: y, y2: y }));
  const dot = shape("circle", { class: `dot ${colour}${isSure ? "" : " open"}`, cx: x.at(one.value), cy: y, r: 5 });
  const ends = [one.value, one.low, one.high].map((value) => textOf(value, chart.x.unit));
  dot.append(shape("title", {}, `${one.name}: ${ends[0]} (${ends[1]} to ${ends[2]}). ${one.verdict}`));
  svg.append(dot);
}

function words(text, content, letters) {
  const most = Math.max(6, Math.floor(letters));
  text.append(content.length > most ? `${content.slice(0, most - 1)}…` : content);
  text.append(shape("title", {}, content));
  return text;
}
