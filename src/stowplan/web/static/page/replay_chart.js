// The map of a finished run in a report: nodes at any time, by a slider.

import { paintScale } from "../colour_scale.js";
import { element } from "../elements.js";
import { NodeMap } from "./node_map.js";
import { savePicture } from "./picture.js";
import { countText, percentText, shortQuantity } from "./quantities.js";
import { NEVER, ReplayModel } from "./replay_model.js";
import { TimeBar } from "./time_bar.js";

const TYPES = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, i32: Int32Array, f64: Float64Array };

export function drawReplay(place, chart) {
  const arrays = Object.fromEntries(chart.arrays.map((one) => [one.name, decoded(one)]));
  const model = new ReplayModel(chart.data, arrays, () => {});
  const { nodes } = model;
  let resource = nodes.resources[0];
  const text = element("p", { class: "note", "aria-live": "off" });
  const map = new NodeMap(`${chart.title}; arrow keys move from node to node`);
  const show = () => {
    map.update();
    const { used, offered } = nodes.totals(resource);
    const waiting = model.status.pending.waiting;
    text.textContent = `${countText(model.status.bound)} pods on nodes, ${countText(waiting)} waiting · ${shortQuantity(resource, used)} of ${shortQuantity(resource, offered)} ${resource} requested (${percentText(used / offered)})`;
  };
  const select = element("select", {}, ...nodes.resources.filter((name) => nodes.totals(name).offered).map((name) => element("option", { value: name }, name)));
  select.addEventListener("change", () => {
    resource = select.value;
    show();
  });
  const bar = element("div", { class: "time-bar", role: "group", "aria-label": "Time" });
  const time = new TimeBar(bar, { bounds: model.bounds, unit: model.unit, textOf: (at) => model.timeText(at), profile: model.waitingOver(), moved: (at) => { model.seek(at); show(); } });
  const picture = element("button", { type: "button", class: "picture", title: "Save the map as a PNG file" }, "Picture");
  picture.addEventListener("click", () => savePicture(map.canvas, `${chart.title}-${model.timeText(time.time)}`, [`${chart.title} · ${model.timeText(time.time)}`, text.textContent]));
  const controls = element("div", { class: "controls" }, element("label", {}, "Show ", select), picture);
  place.append(controls, bar, map.element, text, scaleOf());
  const rows = Array.from({ length: nodes.count }, (_, row) => row);
  time.show(model.busiest);
  model.seek(time.time);
  map.setSource({
    groups: [{ title: "", rows }], cards: () => null, share: (row) => nodes.share(resource, row),
    text: (row) => [nodes.names[row], [`${resource}: ${shortQuantity(resource, nodes.requested(resource, row))} of ${shortQuantity(resource, nodes.allocatable(resource, row))}`, `${countText(nodes.pods(row))} pods`]],
  });
  show();
}

function scaleOf() {
  const canvas = element("canvas", { width: "121", height: "9", "aria-hidden": "true" });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = () => paintScale(canvas, 120, dark.matches);
  dark.addEventListener("change", paint);
  paint();
  return element("span", { class: "map-scale" }, "0%", canvas, "100%");
}

function decoded({ type, values, divisor }) {
  const text = atob(values);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k += 1) bytes[k] = text.charCodeAt(k);
  const array = new TYPES[type](bytes.buffer);
  return divisor === 1 ? array : Float64Array.from(array, (value) => (value === NEVER ? value : value / divisor));
}
