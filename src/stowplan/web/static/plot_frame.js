// What charts have in common: size, axes, legend and the box that names values.

import { element, shape } from "./elements.js";
import { ticksOf } from "./scales.js";
import { textOf } from "./number_texts.js";

export const COLOURS = 8;

export function colourClass(series, place) {
  return `c${(series.colour ?? place) % COLOURS}`;
}

// Redraws when the width of the figure changes, in steps that are worth it.
export function onWidth(place, draw) {
  let last = 0;
  const look = () => {
    const width = Math.floor(place.clientWidth);
    if (width > 0 && Math.abs(width - last) > 1) {
      last = width;
      draw(width);
    }
  };
  new ResizeObserver(look).observe(place);
  look();
}

export function svgOf(width, height, title) {
  return shape(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
  );
}

export function drawXAxis(svg, scale, axis, bottom, width) {
  const room = axis.unit === "time" ? 74 : 52;
  const count = Math.max(2, Math.floor((scale.end - scale.start) / room));
  for (const tick of ticksOf(scale, count)) {
    const x = scale.at(tick);
    svg.append(shape("line", { class: "grid", x1: x, x2: x, y1: 10, y2: bottom }));
    const anchor = x + 20 > width ? "end" : "middle";
    const text = shape("text", { class: "tick", x, y: bottom + 16, "text-anchor": anchor });
    text.append(textOf(tick, axis.unit));
    svg.append(text);
  }
  const label = shape("text", { class: "axis", x: scale.end, y: bottom + 33, "text-anchor": "end" });
  label.append(axis.label);
  svg.append(label);
  svg.append(shape("line", { class: "rule", x1: scale.start, x2: width - 8, y1: bottom, y2: bottom }));
}

export function drawYAxis(svg, scale, axis, left, right) {
  for (const tick of ticksOf(scale, 5)) {
    const y = scale.at(tick);
    svg.append(shape("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }));
    const text = shape("text", { class: "tick", x: left - 7, y: y + 4, "text-anchor": "end" });
    text.append(textOf(tick, axis.unit));
    svg.append(text);
  }
}

export function legendOf(series, onChange) {
  const hidden = new Set();
  const list = element("div", { class: "legend", role: "group", "aria-label": "Series" });
  if (series.length < 2) return { list, hidden };
  series.forEach((one, place) => {
    const name = one.is_reference ? "reference" : colourClass(one, place);
    const swatch = element("span", { class: `swatch ${name}`, "aria-hidden": "true" });
    const button = element("button", { type: "button", "aria-pressed": "true" }, swatch, one.name);
    button.addEventListener("click", () => {
      if (hidden.has(place)) hidden.delete(place);
      else hidden.add(place);
      button.setAttribute("aria-pressed", String(!hidden.has(place)));
      onChange();
    });
    list.append(button);
  });
  return { list, hidden };
}

// A box beside the pointer. rows: [colour class, name, text].
export function tooltipOf(place) {
  const box = element("div", { class: "tooltip", "aria-live": "polite" });
  place.append(box);
  return {
    show(x, y, head, rows) {
      box.replaceChildren(element("strong", {}, head));
      for (const [colour, name, text] of rows) {
        const swatch = element("span", { class: `swatch ${colour}`, "aria-hidden": "true" });
        box.append(element("div", {}, swatch, element("span", {}, name), element("b", {}, text)));
      }
      box.classList.add("visible");
      const width = place.clientWidth;
      const left = x + 16 + box.offsetWidth > width ? x - 16 - box.offsetWidth : x + 16;
      box.style.left = `${Math.max(0, Math.min(left, width - box.offsetWidth))}px`;
      box.style.top = `${Math.max(0, y)}px`;
    },
    hide() {
      box.classList.remove("visible");
    },
  };
}
