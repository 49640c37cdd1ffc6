// Pending pods: by rule and reason, then pods or gangs.

import { element } from "../elements.js";
import { choice, emptyText, field, panel, track } from "./controls.js";
import { gangRows, PendingRows, reasonName } from "./pending_rows.js";
import { ageText, countText, shortQuantity } from "./quantities.js";
import { linkCell, RowTable } from "./row_table.js";

const EVERY = 400;

export class PendingScreen {
  constructor(app) {
    this.app = app;
    this.title = "Pending";
    this.rows = new PendingRows(app, (problem) => this.arrived(problem));
    this.filter = field("Filter", "pod, queue, gang, rule or reason", (value) => app.address.set({ filter: value }));
    this.by = choice("Show", (value) => app.address.set({ by: value }));
    this.by.offer([["", "pods"], ["gang", "gangs"]]);
    this.chips = element("span", {});
    this.counted = element("small", {});
    this.problem = element("p", { class: "notice error", hidden: "" });
    this.reasons = this.reasonTable();
    this.pods = this.podTable();
    this.gangs = this.gangTable();
    const tools = element("div", { class: "panel" }, element("div", { class: "toolbar" }, this.filter.element, this.by.element, this.chips));
    this.listed = element("span", {}, "Pods");
    this.empty = emptyText("");
    const list = panel(this.listed, this.pods.element, this.gangs.element, this.empty);
    list.querySelector("h2").append(this.counted);
    this.byReason = panel("By rule and reason", this.reasons.element);
    this.element = element("section", { class: "screen", "aria-label": "Pending" }, tools, this.problem, this.byReason, list);
    this.drawnAt = 0;
  }

  value(row, name) {
    return this.app.model.pendingValue(row, name);
  }

  age(since) {
    return ageText(this.app.model.since(since));
  }

  reasonTable() {
    const text = (group) => {
      const { rule, reason } = this.app.model.reasonText(group.reason);
      return reasonName(rule, reason);
    };
    const most = () => Math.max(1, ...this.app.model.pending.groups.map((one) => one.pods));
    const bar = (group, before) => {
      const key = `${group.pods}/${most()}`;
      if (before?.dataset?.text === key) return before;
      const found = track(group.pods / most(), "soft");
      found.dataset.text = key;
      return found;
    };
    const link = (group, before) => linkCell(this.app.model.reasonText(group.reason).reason || "no reason recorded", this.reasonLink(text(group)), before);
    const columns = [
      { title: "Rule", cell: (group) => this.app.model.reasonText(group.reason).rule },
      { title: "Reason", cell: link },
      { title: "Pods", number: true, cell: (group) => countText(group.pods) },
      { title: "", cell: bar },
      { title: "GPUs", number: true, cell: (group) => (group.gpus ? shortQuantity("gpu", group.gpus) : "") },
      { title: "Longest wait", number: true, cell: (group) => this.age(group.since) },
    ];
    return new RowTable("Reasons", columns, { height: 200, isMain: false, keyOf: text, opened: (group) => this.toggleReason(text(group)) });
  }

  reasonLink(text) {
    return this.app.address.link("pending", { ...this.app.address.now.values, reason: text });
  }

  toggleReason(text) {
    this.app.address.set({ reason: this.app.address.now.values.reason === text ? "" : text }, { isStep: true });
  }

  podTable() {
    const { app } = this;
    const value = (name) => (row) => this.value(row, name) ?? "";
    const place = (row) => {
      const position = this.value(row, "position");
      return position === null ? this.value(row, "place") : `${this.value(row, "place")} ${countText(position)}`;
    };
    const next = (row) => {
      const at = this.value(row, "nextTry");
      return at ? `in ${ageText(Math.max(0, (at - app.model.time) / 1000))}` : "";
    };
    const reason = (row) => {
      const found = app.model.reasonText(this.value(row, "reason"));
      return reasonName(found.rule, found.reason);
    };
    const columns = [
      { title: "Pod", sort: "pod", cell: (row, before) => linkCell(this.value(row, "pod"), app.address.link("pod", { pod: this.value(row, "pod") }), before) },
      { title: "Reason", sort: "reason", cell: reason },
      { title: "Waits", sort: "since", number: true, cell: (row) => this.age(this.value(row, "since")) },
      { title: "GPUs", sort: "gpus", number: true, cell: (row) => (this.value(row, "gpus") ? shortQuantity("gpu", this.value(row, "gpus")) : "") },
      { title: "Priority", sort: "priority", number: true, cell: value("priority") },
      { title: "Tries", sort: "tries", number: true, cell: value("tries") },
      { title: "Next try", sort: "nextTry", cell: next },
      { title: "Place", sort: "place", cell: place },
      { title: "Queue", sort: "queue", cell: value("queue") },
      { title: "Gang", sort: "gang", cell: value("gang") },
      { title: "Nominated", sort: "nominated", cell: value("nominated") },
    ];
    return new RowTable("Pending pods", columns, {
      height: 520,
      keyOf: (row) => this.value(row, "pod"),
      opened: (row) => app.address.go("pod", { pod: this.value(row, "pod") }),
      sorted: (key, isDown) => app.address.set({ sort: `${isDown ? "-" : ""}${key}` }),
    });
  }

  gangTable() {
    const { app } = this;
    const main = (gang) => {
      const [reason] = [...gang.reasons].sort(([, one], [, other]) => other - one)[0] || [null];
      const found = app.model.reasonText(reason);
      return reasonName(found.rule, found.reason);
    };
    const columns = [
      { title: "Gang", cell: (gang, before) => linkCell(gang.name, app.address.link("pending", { gang: gang.name }), before) },
      { title: "Pods waiting", number: true, cell: (gang) => countText(gang.pods) },
      { title: "GPUs", number: true, cell: (gang) => (gang.gpus ? shortQuantity("gpu", gang.gpus) : "") },
      { title: "Waits", number: true, cell: (gang) => this.age(gang.since) },
      { title: "Queue", cell: (gang) => gang.queue },
      { title: "Reason of most", cell: main },
    ];
    return new RowTable("Pending gangs", columns, { height: 520, opened: (gang) => app.address.set({ by: "", gang: gang.name }, { isStep: true }) });
  }

  show(values) {
    this.filter.show(values.filter || "");
    this.by.choose(values.by || "");
    const sort = values.sort || "since";
    const query = { filter: values.filter || "", reason: values.reason || "", gang: values.gang || "", queue: values.queue || "", sort: sort.replace(/^-/, ""), isDown: sort.startsWith("-") };
    this.pods.setSort(query.sort, query.isDown);
    this.reasons.select(values.reason || null);
    this.chips.replaceChildren(...["reason", "gang", "queue"].filter((name) => values[name]).map((name) => this.chip(name, values[name])));
    this.isByGang = values.by === "gang";
    this.listed.textContent = this.isByGang ? "Gangs of pods" : "Pods";
    this.pods.element.hidden = this.isByGang;
    this.gangs.element.hidden = !this.isByGang;
    this.rows.set(query);
    this.draw();
  }

  chip(name, text) {
    const remove = element("button", { type: "button", "aria-label": `Remove ${name} ${text}` }, `${name} ${text} ✕`);
    remove.addEventListener("click", () => this.app.address.set({ [name]: "" }, { isStep: true }));
    return remove;
  }

  arrived(problem) {
    this.problem.hidden = !problem;
    this.problem.textContent = problem;
    this.draw();
  }

  draw() {
    const { pending } = this.app.model;
    this.reasons.setRows(pending.groups.length, (k) => pending.groups[k] ?? null);
    this.byReason.hidden = !pending.groups.length;
    const shown = this.rows.count === pending.total ? countText(pending.total) : `${countText(this.rows.count)} of ${countText(pending.total)}`;
    const gpus = pending.gpusWaiting ? ` · ${shortQuantity("gpu", pending.gpusWaiting)} GPUs requested by all` : "";
    this.counted.textContent = `${shown}${gpus}`;
    if (!this.isByGang) {
      this.pods.setRows(this.rows.count, (k) => this.rows.rowAt(k));
      this.sayEmpty(this.rows.count, "No pod matches.");
      return;
    }
    const gangs = gangRows(pending.complete ? this.rows.matching : [], (row, name) => this.value(row, name));
    this.gangs.setRows(gangs.length, (k) => gangs[k] ?? null);
    this.sayEmpty(gangs.length, pending.complete ? "No pod of a gang is pending." : "Too many pods are pending to group them by gang.");
  }

  sayEmpty(count, text) {
    const { model } = this.app;
    this.empty.hidden = count > 0 || !this.app.hasTopic("pending");
    const more = this.app.cluster?.admission ? " Jobs that wait for quota have no pods yet; they are on the screen Queues and gangs." : "";
    this.empty.textContent = model.pending.total ? text : `No pod is pending.${more}`;
  }

  update(changed) {
    if (!changed.has("pending") && !changed.has("status")) return;
    const now = performance.now();
    if (now - this.drawnAt < EVERY && this.drawnAt) return;
    this.drawnAt = now;
    this.rows.refresh();
    this.draw();
  }
}
