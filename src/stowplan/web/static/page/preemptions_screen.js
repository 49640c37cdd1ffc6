// Preemptions: who gave way to whom, how long the room stayed empty, loops.

import { element } from "../elements.js";
import { emptyText, panel, plainTable } from "./controls.js";
import { ageText, countText } from "./quantities.js";
import { linkCell, RowTable } from "./row_table.js";

const EVERY = 2000;

export class PreemptionsScreen {
  constructor(app) {
    this.app = app;
    this.title = "Preemptions";
    this.loops = panel("Loops");
    this.loops.hidden = true;
    this.counted = element("small", {});
    this.problem = element("p", { class: "notice error", hidden: "" });
    const pod = (name) => (one, before) => (one[name] ? linkCell(one[name], app.address.link("pod", { pod: one[name] }), before) : "");
    const columns = [
      { title: "Time", cell: (one) => app.timeText(one.time) },
      { title: "Victim", cell: pod("victim") },
      { title: "Priority", number: true, cell: (one) => one.victimPriority ?? "" },
      { title: "Preemptor", cell: pod("preemptor") },
      { title: "Priority", number: true, cell: (one) => one.preemptorPriority ?? "" },
      { title: "Node", cell: (one, before) => (one.node ? linkCell(one.node, app.address.link("nodes", { node: one.node }), before) : "") },
      { title: "Bound after", number: true, cell: (one) => gapText(one.gapMs) },
      { title: "Loop", cell: (one) => (one.loop ? "loop" : "") },
      { title: "Message", cell: (one) => one.message || "" },
    ];
    this.table = new RowTable("Preemptions", columns, { height: 620, keyOf: (one) => String(one.id), opened: (one) => app.address.go("pod", { pod: one.victim }) });
    const list = panel("Newest first", this.table.element);
    list.querySelector("h2").append(this.counted);
    this.empty = emptyText("No pod has given way to another since the server started.");
    list.append(this.empty);
    this.element = element("section", { class: "screen", "aria-label": "Preemptions" }, this.problem, this.loops, list);
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
    if (!this.app.can("preemptions")) return;
    try {
      const found = await this.app.requests.get("preemptions");
      this.problem.hidden = true;
      this.draw(found);
    } catch (problem) {
      this.problem.hidden = false;
      this.problem.textContent = problem.message;
    }
  }

  draw({ preemptions = [], loops = [] }) {
    const rows = [...preemptions].sort((one, other) => other.time - one.time);
    this.table.setRows(rows.length, (k) => rows[k] ?? null);
    this.counted.textContent = countText(rows.length);
    this.empty.hidden = rows.length > 0;
    this.loops.hidden = !loops.length;
    const key = JSON.stringify(loops);
    if (key === this.key) return;
    this.key = key;
    const lines = loops.map((one) => [one.pods.join(" ⇄ "), countText(one.count), ageText((one.last - one.first) / 1000)]);
    const hint = element("p", { class: "soft" }, "These pods give way to each other again and again: their priorities or their requests do not settle.");
    this.loops.replaceChildren(element("h2", {}, "Loops"), hint, plainTable("Loops", [["Pods"], ["Times", true], ["Within", true]], lines));
  }
}

function gapText(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "";
  return milliseconds < 10000 ? `${Math.round(milliseconds)}ms` : ageText(milliseconds / 1000);
}
