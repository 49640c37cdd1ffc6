// Queues and gangs: guarantee, deserved, allocated, borrowed and lent, now and over time.

import { element } from "../elements.js";
import { drawLines } from "../line_chart.js";
import { choice, emptyText, panel, plainTable } from "./controls.js";
import { countText, percentText, shortQuantity } from "./quantities.js";

const EVERY = 1000;
const HISTORY_EVERY = 10000;
const SERIES_MAX = 8;
const GANGS_MAX = 200;
const FIELDS = ["allocated", "deserved", "guarantee", "borrowed", "lent", "pending"].map((one) => [one, one]);

export class QueuesScreen {
  constructor(app) {
    this.app = app;
    this.title = "Queues and gangs";
    this.resource = choice("Resource", (value) => app.address.set({ resource: value }));
    this.field = choice("Over time", (value) => app.address.set({ field: value }));
    this.field.offer(FIELDS);
    this.content = element("div", { class: "screen" });
    this.chart = panel("Over time", element("div", { class: "line-chart" }));
    this.measured = element("small", {});
    this.chart.querySelector("h2").append(this.measured);
    this.gangs = panel("Gangs");
    this.tools = element("div", { class: "panel" }, element("div", { class: "toolbar" }, this.resource.element, this.field.element));
    this.element = element("section", { class: "screen", "aria-label": "Queues and gangs" }, this.tools, this.content, this.chart, this.gangs);
    this.content.append(element("div", { class: "panel" }, emptyText("Waiting for the first answer…")));
    this.drawnAt = 0;
    this.askedAt = -Infinity;
  }

  show(values) {
    this.values = values;
    this.field.choose(values.field || "allocated");
    this.key = "";
    this.draw();
    this.drawHistory();
    if (performance.now() - this.askedAt > HISTORY_EVERY) this.ask();
  }

  update(changed) {
    const now = performance.now();
    if (changed.has("queues") && (now - this.drawnAt > EVERY || !this.drawnAt)) this.draw();
    if (now - this.askedAt > HISTORY_EVERY) this.ask();
  }

  async ask() {
    this.askedAt = performance.now();
    if (!this.app.can("queues")) return;
    try {
      const found = await this.app.requests.get("queues");
      this.history = found.history;
      if (!this.app.model.queues) {
        this.app.model.queues = found;
        this.draw();
      }
      this.drawHistory();
    } catch (problem) {
      this.content.replaceChildren(element("p", { class: "notice error" }, problem.message));
    }
  }

  draw() {
    const { queues } = this.app.model;
    if (!queues) {
      if (!this.app.can("queues")) this.content.replaceChildren(noQueues());
      for (const part of [this.tools, this.chart, this.gangs]) part.hidden = !this.app.can("queues");
      return;
    }
    this.drawnAt = performance.now();
    const schedulers = (queues.schedulers || []).filter((one) => one.queues?.length);
    const names = resourcesOf(schedulers);
    const before = this.shown;
    this.shown = names.includes(this.values?.resource) ? this.values.resource : names[0] || "cpu";
    // The history may have come before the resources were known.
    if (before !== this.shown) this.drawHistory();
    this.resource.offer(names.map((name) => [name, name]), this.shown);
    const key = JSON.stringify([schedulers, queues.gangs, this.shown, this.values?.queue]);
    if (key === this.key || this.element.contains(document.activeElement) && document.activeElement.closest("table")) return;
    this.key = key;
    const panels = schedulers.map((one) => this.scheduler(one));
    if (!panels.length) panels.push(noQueues());
    this.content.replaceChildren(...panels);
    this.tools.hidden = !schedulers.length;
    this.chart.hidden = !schedulers.length;
    this.gangs.hidden = !schedulers.length && !queues.gangs?.length;
    this.drawGangs(queues.gangs || []);
  }

  scheduler({ schedulerName, total, queues, loans }) {
    const { shown } = this;
    const whole = total?.[shown] || Math.max(1e-9, ...queues.map((one) => one.allocated?.[shown] || 0));
    const amount = (values) => (values?.[shown] === undefined ? "" : amountText(shown, values[shown]));
    const rows = treeOf(queues).map(([queue, depth]) => {
      const name = element("a", { href: this.app.address.link("pending", { queue: queue.name }), title: "its pending pods" }, queue.name);
      const isChosen = queue.name === this.values?.queue;
      const problem = queue.problem ? element("span", { class: "warn", title: queue.problem }, " inactive") : "";
      const title = element("span", { class: `queue depth${Math.min(depth, 5)}${isChosen ? " chosen" : ""}` }, name, problem);
      return [
        title, queueBar(queue, shown, whole), amount(queue.guarantee), amount(queue.deserved), amount(queue.allocated), amount(queue.borrowed),
        amount(queue.lent), amount(queue.pending), amount(queue.capability), queue.share === null || queue.share === undefined ? "" : queue.share.toFixed(2), queue.weight ?? "", countText(queue.podsPlaced), countText(queue.podsPending),
      ];
    });
    const columns = [["Queue"], [`Of ${amountText(shown, whole)}`], ...["Guarantee", "Deserved", "Allocated", "Borrowed", "Lent", "Pending", "Capability", "Share", "Weight", "Pods", "Waiting"].map((one) => [one, true])];
    const found = panel(`Queues of ${schedulerName}`, plainTable(`Queues of ${schedulerName}`, columns, rows), legend());
    // A finished run has its queues at the end only, whatever the slider says.
    found.querySelector("h2").append(element("small", {}, this.app.source === "live" ? shown : `${shown}, at the end of the run`));
    const owed = (loans || []).filter((one) => one.resource === shown);
    if (owed.length) found.append(this.loans(owed));
    return found;
  }

  loans(loans) {
    const rows = loans.map((one) => [one.borrower, one.lender, amountText(one.resource, one.amount), one.wantedBack ? amountText(one.resource, one.wantedBack) : ""]);
    return element("div", {}, element("h3", {}, "Who borrows from whom"), plainTable("Loans between queues", [["Borrower"], ["Lender"], ["Amount", true], ["Wanted back", true]], rows));
  }

  drawHistory() {
    const { history } = this;
    const place = element("div", { class: "line-chart" });
    this.chart.lastChild.replaceWith(place);
    const field = this.field.value || "allocated";
    this.measured.textContent = "";
    const series = (history?.series || []).filter((one) => one.field === field && one.resource === this.shown);
    if (!series.length || history.times.length < 2) {
      place.append(emptyText(this.app.source === "live" ? "History begins when the server starts; a point each ten seconds." : "A finished run has no history of its queues."));
      return;
    }
    const start = history.times[0];
    const x = history.times.map((time) => (time - history.times.at(-1)) / 1000);
    const biggest = [...series].sort((one, other) => most(other.values) - most(one.values)).slice(0, SERIES_MAX);
    const divisor = divisorOf(this.shown, Math.max(...biggest.map((one) => most(one.values))));
    this.measured.textContent = `${this.shown} ${field}${divisor.name}`;
    const lines = biggest.map((one) => ({ name: one.queue, x, y: one.values.map((value) => (value === null ? null : value / divisor.size)), low: [], high: [] }));
    const axis = (label, unit) => ({ label, unit });
    drawLines(place, {
      title: `${this.shown} ${field} by queue, ${Math.round((history.times.at(-1) - start) / 60000)} minutes`, series: lines, is_step: true,
      x: axis("before now", "time"), y: axis(`${this.shown}${divisor.name}`, "number"),
    });
  }

  drawGangs(gangs) {
    // Those that wait first.
    const rank = (one) => (one.missing || one.message ? 0 : one.pending ? 1 : 2);
    const listed = [...gangs].sort((one, other) => rank(one) - rank(other)).slice(0, GANGS_MAX);
    const rows = listed.map((one) => [
      // The pods of a workload that waits for quota do not exist yet.
      one.workload ? one.gang : element("a", { href: this.app.address.link("pending", { gang: one.gang }) }, one.gang), one.queue, one.phase,
      countText(one.min), countText(one.running), countText(one.pending), one.missing ? countText(one.missing) : "", one.message || "",
      one.workload && one.message ? element("a", { href: this.app.address.link("what-if", { workload: one.gang }) }, "What would admit it") : "",
    ]);
    const columns = [["Gang"], ["Queue"], ["Phase"], ["Minimum", true], ["Running", true], ["Pending", true], ["Missing", true], ["Why it waits", false, "wrap"], ["Change"]];
    // Columns that no gang fills say nothing.
    const filled = columns.map((_, k) => k < 2 || rows.some((row) => row[k] !== ""));
    const some = (cells) => cells.filter((_, k) => filled[k]);
    const content = rows.length ? plainTable("Gangs", some(columns), rows.map(some)) : emptyText("No PodGroups.");
    const waiting = gangs.filter((one) => one.missing || one.pending).length;
    const more = gangs.length > rows.length ? `, ${countText(rows.length)} shown` : "";
    this.gangs.replaceChildren(element("h2", {}, "Gangs", element("small", {}, `${countText(gangs.length)}, ${countText(waiting)} wait${more}`)), content);
  }
}

function noQueues() {
  return element("div", { class: "panel" }, emptyText("No scheduler of this process has queues. Sessions, the queue models and Kueue have them: ", element("code", {}, "stowplan up --config FILE"), "."));
}

function resourcesOf(schedulers) {
  const names = schedulers.flatMap((one) => [...Object.keys(one.total || {}), ...one.queues.flatMap((queue) => Object.keys(queue.allocated || {}))]);
  const known = [...new Set(names)];
  return ["nvidia.com/gpu", "cpu", "memory"].filter((one) => known.includes(one)).concat(known.filter((one) => !["nvidia.com/gpu", "cpu", "memory"].includes(one)));
}

// Queues in the order of their tree, with depth; a parent that is not there counts as none.
function treeOf(queues) {
  const names = new Set(queues.map((one) => one.name));
  const below = new Map();
  for (const queue of queues) {
    const parent = names.has(queue.parent) && queue.parent !== queue.name ? queue.parent : "";
    below.set(parent, [...(below.get(parent) || []), queue]);
  }
  const found = [];
  const seen = new Set();
  const walk = (name, depth) => {
    for (const queue of below.get(name) || []) {
      if (seen.has(queue.name)) continue;
      seen.add(queue.name);
      found.push([queue, depth]);
      walk(queue.name, depth + 1);
    }
  };
  walk("", 0);
  return found.concat(queues.filter((one) => !seen.has(one.name)).map((one) => [one, 0]));
}

// Amounts of queues are in cores, bytes and units.
function amountText(resource, amount) {
  const [base] = resource.split(" in ");
  return shortQuantity(base, base === "cpu" ? amount * 1000 : amount);
}

function queueBar(queue, resource, whole) {
  const [allocated, deserved, borrowed] = ["allocated", "deserved", "borrowed"].map((name) => queue[name]?.[resource] || 0);
  const own = element("i", {});
  own.style.width = `${Math.min(100, ((allocated - borrowed) / whole) * 100)}%`;
  const over = element("i", { class: "over" });
  over.style.left = own.style.width;
  over.style.width = `${Math.min(100, (borrowed / whole) * 100)}%`;
  const mark = element("b", {});
  mark.style.left = `calc(${Math.min(100, (deserved / whole) * 100)}% - 1px)`;
  const text = `${percentText(allocated / whole)} of all allocated, ${percentText(deserved / whole)} deserved, ${percentText(borrowed / whole)} borrowed`;
  return element("span", { class: "track wide", role: "img", "aria-label": text, title: text }, own, over, deserved ? mark : "");
}

function legend() {
  const key = (name, text) => element("span", { class: "scale" }, element("span", { class: `key-mark ${name}`, "aria-hidden": "true" }), text);
  return element("p", { class: "toolbar soft" }, key("own", "allocated within its part"), key("over", "borrowed"), key("mark", "deserved"));
}

function most(values) {
  return values.reduce((found, value) => Math.max(found, value || 0), 0);
}

function divisorOf(resource, size) {
  if (!/^memory( in |$)/.test(resource)) return { size: 1, name: "" };
  return size >= 2 ** 40 ? { size: 2 ** 40, name: ", TiB" } : { size: 2 ** 30, name: ", GiB" };
}
