// Shares by node and time, on a canvas. The page has a table of the same nodes beside it.

import { colourOf, paintScale } from "./colour_scale.js";
import { element } from "./elements.js";
import { onWidth, svgOf, drawXAxis, tooltipOf } from "./plot_frame.js";
import { scaleOf } from "./scales.js";
import { textOf } from "./number_texts.js";

const ABSENT = 255;
const STEPS = 200;
const LEFT = 8;

export function drawHeatMap(place, chart) {
  const layers = chart.layers.map((layer) => ({ ...layer, cells: decoded(layer.values) }));
  const state = { layer: layers[0], sorted: false, width: 0, row: 0, column: 0 };
  const canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": chart.title });
  const holder = element("div", { class: "canvas heat" }, canvas);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const draw = () => {
    if (state.width) paint(holder, canvas, chart, state, dark.matches);
  };
  const scale = element("canvas", { class: "scale", width: "201", height: "10", "aria-hidden": "true" });
  const legend = element("div", { class: "legend" }, "0%", scale, "100% of allocatable");
  const colourScale = () => {
    paintScale(scale, STEPS, dark.matches);
    draw();
  };
  place.append(controls(layers, state, draw), holder, legend);
  const tooltip = tooltipOf(holder);
  watch(canvas, chart, state, tooltip);
  dark.addEventListener("change", colourScale);
  colourScale();
  onWidth(holder, (width) => {
    state.width = width;
    draw();
  });
}

function controls(layers, state, draw) {
  const choice = element("select", {});
  layers.forEach((layer, k) => choice.append(element("option", { value: k }, layer.name)));
  choice.addEventListener("change", () => {
    state.layer = layers[Number(choice.value)];
    draw();
  });
  const sort = element("input", { type: "checkbox" });
  sort.addEventListener("change", () => {
    state.sorted = sort.checked;
    draw();
  });
  const what = element("label", {}, "Show ", choice);
  return element("div", { class: "controls" }, what, element("label", {}, sort, " sort by mean share"));
}

function decoded(text) {
  const bytes = atob(text);
  const cells = new Uint8Array(bytes.length);
  for (let k = 0; k < bytes.length; k += 1) cells[k] = bytes.charCodeAt(k);
  return cells;
}

function orderOf(state, columns) {
  const order = state.layer.rows.map((_, row) => row);
  if (!state.sorted) return order;
  const means = order.map((row) => {
    const cells = state.layer.cells.subarray(row * columns, (row + 1) * columns);
    const known = cells.filter((cell) => cell !== ABSENT);
    return known.reduce((sum, cell) => sum + cell, 0) / (known.length || 1);
  });
  return order.sort((one, other) => means[other] - means[one]);
}

function paint(holder, canvas, chart, state, isDark) {
  const columns = chart.at.length;
  const rows = state.layer.rows.length;
  state.order = orderOf(state, columns);
  const picture = new ImageData(columns, rows);
  state.order.forEach((row, y) => {
    for (let column = 0; column < columns; column += 1) {
      const at = (y * columns + column) * 4;
      const cell = state.layer.cells[row * columns + column];
      if (cell === ABSENT) continue;
      picture.data.set(colourOf(cell / STEPS, isDark), at);
      picture.data[at + 3] = 255;
    }
  });
  const small = element("canvas", { width: columns, height: rows });
  small.getContext("2d").putImageData(picture, 0, 0);
  const height = Math.max(120, Math.min(420, rows * 8));
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, state.width - 2 * LEFT);
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = rows > canvas.height;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  holder.querySelectorAll("svg").forEach((old) => old.remove());
  const svg = svgOf(state.width, 42, `${chart.x.label} of the columns`);
  svg.setAttribute("aria-hidden", "true");
  const scale = scaleOf(chart.x, chart.at, LEFT, state.width - LEFT);
  drawXAxis(svg, scale, chart.x, 2, state.width);
  canvas.after(svg);
}

function watch(canvas, chart, state, tooltip) {
  const columns = chart.at.length;
  const show = () => {
    const row = state.order[state.row];
    const cell = state.layer.cells[row * columns + state.column];
    const text = cell === ABSENT ? "not there" : textOf((cell / STEPS) * 100, "percent");
    const x = ((state.column + 0.5) / columns) * canvas.clientWidth + LEFT;
    const y = ((state.row + 0.5) / state.order.length) * canvas.clientHeight;
    const rows = [["none", state.layer.name, text]];
    rows.push(["none", chart.x.label, textOf(chart.at[state.column], chart.x.unit)]);
    tooltip.show(x, Math.max(0, y - 60), state.layer.rows[row], rows);
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const inside = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
    state.column = inside((event.clientX - box.left) / box.width, columns);
    state.row = inside((event.clientY - box.top) / box.height, state.order.length);
    show();
  });
  canvas.addEventListener("pointerleave", () => tooltip.hide());
  canvas.addEventListener("blur", () => tooltip.hide());
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    state.row = Math.max(0, Math.min(state.order.length - 1, state.row + step[0]));
    state.column = Math.max(0, Math.min(columns - 1, state.column + step[1]));
    show();
  });
}
