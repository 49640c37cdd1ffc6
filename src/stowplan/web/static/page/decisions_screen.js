// Decisions as they are made, the record behind them, and the scores of one.

import { element } from "../elements.js";
import { choice, emptyText, facts, field, panel } from "./controls.js";
import { countText } from "./quantities.js";
import { pathOf } from "./requests.js";
import { linkCell, RowTable } from "./row_table.js";
import { scoreTable } from "./score_table.js";

const PAGE = 200;
const OUTCOMES = [["", "all"], ["bound", "bound"], ["unschedulable", "unschedulable"], ["evicted", "evicted"], ["error", "error"]];

export class DecisionsScreen {
  constructor(app) {
    this.app = app;
    this.title = "Decisions";
    this.filter = field("Filter", "pod, node or message", (value) => app.address.set({ filter: value }));
    this.outcome = choice("Outcome", (value) => app.address.set({ outcome: value }));
    this.outcome.offer(OUTCOMES);
    this.follow = element("input", { type: "checkbox", checked: "" });
    this.follow.addEventListener("change", () => this.draw(true));
    this.older = element("button", { type: "button" }, "Older");
    this.older.addEventListener("click", () => this.askOlder());
    this.counted = element("small", {});
    this.past = [];
    this.table = this.makeTable();
    this.one = panel("Decision");
    const tools = element("div", { class: "toolbar" }, this.filter.element, this.outcome.element, element("label", {}, this.follow, "Follow"), this.older);
    const list = panel("Newest first", this.table.element);
    list.querySelector("h2").append(this.counted);
    this.element = element("section", { class: "screen", "aria-label": "Decisions" }, element("div", { class: "panel" }, tools), element("div", { class: "split even" }, list, this.one));
  }

  makeTable() {
    const { app } = this;
    const node = (one, before) => (one.node ? linkCell(one.node, app.address.link("nodes", { node: one.node }), before) : "");
    const columns = [
      { title: "Time", cell: (one) => app.timeText(one.time) },
      { title: "Pod", cell: (one, before) => linkCell(one.pod, app.address.link("pod", { pod: one.pod }), before) },
      { title: "Outcome", cell: (one) => one.outcome },
      { title: "Node", cell: node },
      { title: "Fits", number: true, cell: (one) => (one.feasible === null || one.feasible === undefined ? "" : `${countText(one.feasible)} of ${countText(one.evaluated)}`) },
      { title: "µs", number: true, cell: (one) => (one.microseconds ? countText(one.microseconds) : "") },
      { title: "Scheduler", cell: (one) => one.scheduler },
      { title: "Message", cell: (one) => one.message || (one.preemptor ? `for ${one.preemptor}` : "") },
    ];
    return new RowTable("Decisions", columns, {
      height: 620, keyOf: (one) => String(one.id),
      opened: (one) => app.address.set({ decision: String(one.id) }, { isStep: true }),
    });
  }

  show(values) {
    this.filter.show(values.filter || "");
    this.outcome.choose(values.outcome || "");
    this.table.select(values.decision || null);
    const query = `${values.filter || ""} ${values.outcome || ""}`;
    if (query !== this.query) [this.past, this.isAll] = [[], false];
    this.query = query;
    this.draw(true);
    // A finished run has a record and no stream; what a filter finds may be older than the stream.
    const isFiltered = query !== " " && this.shown.length < PAGE;
    if ((this.app.source === "simulation" || isFiltered) && !this.past.length && this.app.can("decisions")) this.askOlder();
    this.showOne(values.decision || "");
  }

  matching() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const outcome = this.outcome.value;
    const isKnown = new Set(this.past.map((one) => one.id));
    const all = [...this.past, ...this.app.model.decisions.filter((one) => !isKnown.has(one.id))];
    return all.filter((one) => {
      if (outcome && one.outcome !== outcome) return false;
      if (!words.length) return true;
      const text = `${one.pod} ${one.node} ${one.message} ${one.scheduler}`.toLowerCase();
      return words.every((word) => text.includes(word));
    }).reverse();
  }

  draw(isAsked = false) {
    if (!this.follow.checked && !isAsked) return;
    this.shown = this.matching();
    this.table.setRows(this.shown.length, (k) => this.shown[k] ?? null);
    const skipped = this.app.model.skipped ? ` · ${countText(this.app.model.skipped)} not shown, more than the stream carries` : "";
    this.counted.textContent = `${countText(this.shown.length)}${skipped}`;
    this.older.disabled = !this.app.can("decisions") || this.isAll;
  }

  async askOlder() {
    const { query } = this;
    const oldest = this.shown.at(-1);
    const values = { before: oldest?.id ?? "", limit: PAGE, filter: this.filter.value, outcome: this.outcome.value };
    const found = await this.app.asked(pathOf("decisions", values));
    if (!found || this.query !== query) return;
    this.isAll = !found.more;
    this.past = [...found.decisions].reverse().concat(this.past);
    this.draw(true);
  }

  async showOne(id) {
    if (id === this.opened) return;
    this.opened = id;
    const none = emptyText("Choose a decision to see the scores of its best nodes.");
    this.fillOne("Decision", none);
    if (!id) return;
    const known = this.app.model.decisions.find((one) => String(one.id) === id);
    const found = known?.scores ? known : await this.app.asked(`decisions/${encodeURIComponent(id)}`);
    if (found && this.opened === id) this.fillOne(`Decision ${id}`, ...this.details(found));
  }

  fillOne(title, ...parts) {
    this.one.replaceChildren(element("h2", {}, title), ...parts);
  }

  details(found) {
    const { address } = this.app;
    const link = (screen, name, value) => (value ? element("a", { href: address.link(screen, { [name]: value }) }, value) : "");
    const parts = [facts([
      ["Pod", link("pod", "pod", found.pod)], ["Outcome", found.outcome], ["Node", link("nodes", "node", found.node)],
      ["For", link("pod", "pod", found.preemptor)], ["Time", this.app.timeText(found.time)], ["Decided by", `${found.scheduler} (${found.lane})`],
      ["Message", found.message],
    ])];
    if (found.scores?.length) parts.push(element("h3", {}, found.asOf === "now" ? "Scores as of now" : "Scores at that moment"), scoreTable(this.app, found.scores));
    else parts.push(emptyText("No scores were kept for this decision."));
    return parts;
  }

  update(changed) {
    if (changed.has("decisions")) this.draw();
  }
}
