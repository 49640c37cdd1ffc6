// How many nodes have which share, in tenths; a bar filters.

import { element } from "../elements.js";
import { countText } from "./quantities.js";

const BINS = 11;

export class Histogram {
  constructor(chosen) {
    this.bars = Array.from({ length: BINS }, (_, bin) => {
      const fill = element("i", {});
      const button = element("button", { type: "button", "aria-pressed": "false" }, fill);
      button.addEventListener("click", () => chosen(this.chosen === bin ? null : bin));
      return { button, fill };
    });
    const bars = element("div", { class: "histogram" }, ...this.bars.map((bar) => bar.button));
    const ends = element("div", { class: "between", "aria-hidden": "true" }, ...["0%", "50%", "100%"].map((text) => element("span", {}, text)));
    this.element = element("div", {}, bars, ends);
  }

  // The tenth of a share; 10 for full and above, -1 for nodes without the resource.
  static binOf(share) {
    if (Number.isNaN(share)) return -1;
    return share >= 0.9999 ? BINS - 1 : Math.max(0, Math.floor(share * 10 + 1e-9));
  }

  set(rows, shareOf, chosen) {
    this.chosen = chosen;
    const counts = Array.from({ length: BINS }, () => 0);
    for (const row of rows) {
      const bin = Histogram.binOf(shareOf(row));
      if (bin >= 0) counts[bin] += 1;
    }
    const most = Math.max(1, ...counts);
    this.bars.forEach(({ button, fill }, bin) => {
      const label = `${bin === BINS - 1 ? "full" : `${bin * 10} to ${bin * 10 + 10}%`}: ${countText(counts[bin])} nodes`;
      button.setAttribute("aria-label", label);
      button.title = label;
      button.setAttribute("aria-pressed", String(bin === chosen));
      fill.style.height = `${counts[bin] ? Math.max(2, (counts[bin] / most) * 88) : 0}px`;
    });
  }
}
