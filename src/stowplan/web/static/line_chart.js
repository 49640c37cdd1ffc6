// Lines and steps with bands; also distributions.

import { element, shape } from "./elements.js";
import { colourClass, drawXAxis, drawYAxis, legendOf, onWidth, svgOf, tooltipOf } from "./plot_frame.js";
import { scaleOf, valueScale } from "./scales.js";
import { textOf } from "./number_texts.js";

const HEIGHT = 270;
const ROWS_MAX = 12;

export function drawLines(place, chart) {
  const canvas = element("div", { class: "canvas" });
  const state = { from: null, to: null };
  let draw = () => {};
  const legend = legendOf(chart.series, () => draw());
  const reset = element("button", { type: "button", class: "reset", hidden: "" }, "Whole range");
  reset.addEventListener("click", () => zoom(null, null));
  place.append(legend.list, canvas, reset);
  const tooltip = tooltipOf(canvas);
  const zoom = (from, to) => {
    [state.from, state.to] = [from, to];
    reset.hidden = from === null;
    draw();
  };
  let width = 0;
  draw = () => {
    canvas.querySelectorAll("svg").forEach((old) => old.remove());
    const shown = chart.series.map((one, k) => [one, k]).filter(([, k]) => !legend.hidden.has(k));
    const { svg, x } = drawing(chart, shown, width, state);
    canvas.prepend(svg);
    follow(svg, canvas, chart, shown, { x, tooltip, zoom });
  };
  onWidth(canvas, (found) => {
    width = found;
    draw();
  });
}

function drawing(chart, shown, width, state) {
  const bottom = HEIGHT - 40;
  const left = 52;
  const svg = svgOf(width, HEIGHT, chart.title);
  svg.setAttribute("tabindex", "0");
  const all = chart.series.filter((one) => !one.is_reference);
  const values = all.flatMap((one) => [...one.y, ...one.low, ...one.high]);
  const axis = state.from === null ? chart.x : { ...chart.x, low: state.from, high: state.to };
  const x = scaleOf(axis, all.flatMap((one) => one.x), left, width - 24);
  const y = valueScale(chart.y, values, bottom, 10);
  drawYAxis(svg, y, chart.y, left, width - 8);
  drawXAxis(svg, x, chart.x, bottom, width);
  // An inner picture cuts what is outside of it, without an id.
  const size = [left, 4, Math.max(1, width - 24 - left), bottom - 4];
  const frame = { x: size[0], y: size[1], width: size[2], height: size[3] };
  const group = shape("svg", { ...frame, viewBox: size.join(" ") });
  for (const [one, place] of shown) {
    if (one.low.length) {
      const d = band(one, x, y, chart.is_step);
      group.append(shape("path", { class: `band ${colourClass(one, place)}`, d }));
    }
  }
  for (const [one, place] of shown) {
    const colour = one.is_reference ? "reference" : colourClass(one, place);
    group.append(shape("path", { class: `line ${colour}`, d: path(one.x, one.y, x, y, chart.is_step) }));
  }
  svg.append(group);
  return { svg, x };
}

function path(xs, ys, x, y, isStep) {
  let text = "";
  let isOpen = false;
  for (let k = 0; k < xs.length; k += 1) {
    if (ys[k] === null) {
      isOpen = false;
      continue;
    }
    const [px, py] = [x.at(xs[k]).toFixed(1), y.at(ys[k]).toFixed(1)];
    if (!isOpen) text += `M${px} ${py}`;
    else text += isStep ? `H${px}V${py}` : `L${px} ${py}`;
    isOpen = true;
  }
  return text;
}

function band(one, x, y, isStep) {
  const there = one.x.map((_, k) => k).filter((k) => one.low[k] !== null && one.high[k] !== null);
  const up = there.map((k) => one.x[k]);
  const high = path(up, there.map((k) => one.high[k]), x, y, isStep);
  let back = "";
  for (let k = there.length - 1; k >= 0; k -= 1) {
    const [px, py] = [x.at(up[k]).toFixed(1), y.at(one.low[there[k]]).toFixed(1)];
    back += isStep && k < there.length - 1 ? `V${py}H${px}` : `L${px} ${py}`;
  }
  return high ? `${high}${back}Z` : "";
}

// The value at a place: of the last point before it for steps, else of the nearest one.
function indexAt(xs, value, isStep) {
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (xs[middle] <= value) low = middle;
    else high = middle - 1;
  }
  if (!isStep && low + 1 < xs.length && xs[low + 1] - value < value - xs[low]) return low + 1;
  return low;
}

function follow(svg, canvas, chart, shown, { x, tooltip, zoom }) {
  const cursor = shape("line", { class: "cursor", y1: 4, y2: HEIGHT - 40, x1: -9, x2: -9 });
  const selection = shape("rect", { class: "selection", y: 4, height: HEIGHT - 44, width: 0 });
  svg.append(selection, cursor);
  let value = null;
  let start = null;
  const clamp = (px) => Math.max(x.start, Math.min(px, x.end));
  const show = (px) => {
    value = x.back(px);
    cursor.setAttribute("x1", px);
    cursor.setAttribute("x2", px);
    const rows = [];
    for (const [one, place] of shown.slice(0, ROWS_MAX)) {
      const k = indexAt(one.x, value, chart.is_step);
      if (k < 0 || one.y[k] === null || one.y[k] === undefined) continue;
      const colour = one.is_reference ? "reference" : colourClass(one, place);
      let text = textOf(one.y[k], chart.y.unit);
      if (one.low.length) text += ` (${textOf(one.low[k], chart.y.unit)} to ${textOf(one.high[k], chart.y.unit)})`;
      rows.push([colour, one.name, text]);
    }
    tooltip.show(px, 14, `${chart.x.label}: ${textOf(value, chart.x.unit)}`, rows);
  };
  const placeOf = (event) => clamp(event.clientX - svg.getBoundingClientRect().left);
  const hide = () => {
    tooltip.hide();
    cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9);
  };
  svg.addEventListener("pointermove", (event) => {
    const px = placeOf(event);
    show(px);
    if (start !== null) {
      selection.setAttribute("x", Math.min(start, px));
      selection.setAttribute("width", Math.abs(px - start));
    }
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointerdown", (event) => {
    start = event.pointerType === "mouse" ? placeOf(event) : null;
  });
  svg.addEventListener("pointerup", (event) => {
    const px = placeOf(event);
    if (start !== null && Math.abs(px - start) > 8) {
      const [from, to] = [x.back(Math.min(start, px)), x.back(Math.max(start, px))];
      start = null;
      zoom(from, to);
      return;
    }
    start = null;
  });
  svg.addEventListener("dblclick", () => zoom(null, null));
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") zoom(null, null);
    if (step === undefined) return;
    event.preventDefault();
    const from = value === null ? x.start : x.at(value);
    show(clamp(from + (step * (x.end - x.start)) / 50));
  });
}
