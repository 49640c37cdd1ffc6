// Experiments: sweeps below the server's directory, their progress and failures.

import { element } from "../elements.js";
import { emptyText, panel, plainTable, track } from "./controls.js";
import { ageText, countText } from "./quantities.js";

const EVERY = 5000;

export class ExperimentsScreen {
  constructor(app) {
    this.app = app;
    this.title = "Experiments";
    this.panel = panel("Experiments", emptyText("Waiting for the first answer…"));
    this.element = element("section", { class: "screen", "aria-label": "Experiments" }, this.panel);
    this.askedAt = 0;
  }

  show() {
    this.ask();
  }

  update() {
    if (performance.now() - this.askedAt > EVERY && this.app.isLive) this.ask();
  }

  async ask() {
    this.askedAt = performance.now();
    if (!this.app.can("experiments")) {
      this.draw([]);
      return;
    }
    const found = await this.app.asked("experiments");
    if (found) this.draw(found.experiments || []);
  }

  report(one) {
    if (!one.ended && !one.report) return element("span", { class: "soft" }, "when it has ended");
    const href = `/api/page/v1/experiments/report?folder=${encodeURIComponent(one.folder)}`;
    return element("a", { href, target: "_blank", rel: "noopener" }, "report", element("span", { class: "unseen" }, ` of ${one.folder}, opens a new tab`));
  }

  draw(experiments) {
    const key = JSON.stringify(experiments);
    if (key === this.key) return;
    this.key = key;
    const rows = experiments.map((one) => {
      const progress = track(one.runs ? one.done / one.runs : 0);
      const verdicts = (one.verdicts || []).map((text) => element("li", {}, text));
      return [
        one.folder, one.ended ? "ended" : "running", element("span", { class: "with" }, progress, `${countText(one.done)} of ${countText(one.runs)}`),
        one.failed ? element("strong", { class: "bad" }, countText(one.failed)) : "0",
        one.updated ? `${ageText((Date.now() - one.updated) / 1000)} ago` : "", this.report(one), verdicts.length ? element("ul", { class: "plain" }, ...verdicts) : "",
      ];
    });
    const columns = [["Folder"], ["State"], ["Runs done"], ["Failed", true], ["Updated"], ["Report"], ["What differs", false, "wrap"]];
    const none = emptyText("No results of ", element("code", {}, "stowplan experiment"), " below the directory in which the server was started.");
    this.panel.replaceChildren(element("h2", {}, "Experiments", element("small", {}, countText(rows.length))), rows.length ? plainTable("Experiments", columns, rows) : none);
  }
}
