// What-if: changes in a form, the difference on the map and in tables. Nothing is written.

import { element } from "../elements.js";
import { choice, emptyText, panel, plainTable } from "./controls.js";
import { NodeMap } from "./node_map.js";
import { countText, percentText, shortQuantity } from "./quantities.js";

const KINDS = [
  ["add-nodes", "Add nodes", "POOL=N"], ["remove-node", "Remove a node", "NODE"], ["drain", "Drain", "ZONE, NODE or SELECTOR"],
  ["cordon", "Cordon", "NODE"], ["taint", "Taint, or remove one", "NODE=KEY=VALUE:EFFECT, a - at the end removes"],
  ["label", "Label", "NODE=KEY=VALUE"], ["scale", "Scale a workload", "KIND/NAME=N"], ["delete", "Delete", "KIND/NAME"],
  ["queue", "Change a queue", "NAME.weight=N, NAME.capability.cpu=N; of KAI NAME.quota.gpu=N, NAME.limit.gpu=N"], ["priority", "Change a priority", "KIND/NAME=N"],
];
const ROWS_MAX = 500;
const QUOTA = "NAME.nominalQuota[FLAVOR/RESOURCE]=AMOUNT, or NAME.weight=N";

export class WhatIfScreen {
  constructor(app) {
    this.app = app;
    this.title = "What-if";
    this.lines = element("div", { class: "column" });
    this.namespace = element("input", { type: "text", placeholder: "default", spellcheck: "false" });
    this.pod = element("textarea", { rows: "4", spellcheck: "false", placeholder: "apiVersion: v1\nkind: Pod\n…" });
    this.send = element("button", { type: "submit", class: "main" }, "Compute the difference");
    this.problem = element("p", { class: "notice error", hidden: "", role: "alert" });
    this.answer = element("div", { class: "screen" });
    const add = element("button", { type: "button" }, "Another change");
    add.addEventListener("click", () => this.addLine("drain", "").focus());
    const form = element("form", { class: "column" }, this.lines, add,
      element("label", { class: "grow" }, "Namespace of names without one", this.namespace),
      element("details", {}, element("summary", {}, "Add a pod"), element("label", { class: "stacked" }, "Pod as YAML or JSON", this.pod)),
      element("div", { class: "toolbar" }, this.send, element("span", { class: "soft" }, "On a copy of the cluster; nothing is written.")), this.problem);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.keep();
      this.ask();
    });
    this.element = element("section", { class: "screen", "aria-label": "What-if" }, panel("Changes, together", form), this.answer);
  }

  addLine(kind, text) {
    const input = element("input", { type: "text", spellcheck: "false", "aria-label": "What" });
    const select = choice("Change", () => name());
    select.offer(KINDS.map(([value, title]) => [value, title]), kind);
    const name = () => {
      const form = select.value === "queue" && this.app.cluster?.admission ? QUOTA : KINDS.find(([value]) => value === select.value)?.[2];
      input.setAttribute("placeholder", form || "");
    };
    input.value = text;
    name();
    const remove = element("button", { type: "button", "aria-label": "Remove this change" }, "✕");
    const line = element("div", { class: "change-line" }, select.element, input, remove);
    line.read = () => [select.value, input.value.trim()];
    remove.addEventListener("click", () => line.remove());
    this.lines.append(line);
    return input;
  }

  get changes() {
    return [...this.lines.children].map((line) => line.read()).filter(([, text]) => text);
  }

  // The address has the changes, so that a link asks the same.
  keep() {
    this.app.address.set({ changes: this.changes.map((change) => change.join(" ")).join("\n") });
  }

  show(values) {
    if (values.workload && values.workload !== this.workload) {
      this.workload = values.workload;
      this.admit(values.workload);
    }
    if (this.isFilled) return;
    this.isFilled = true;
    const given = (values.changes || "").split("\n").filter(Boolean);
    if (values.node) given.push(`drain ${values.node}`);
    for (const line of given) {
      const [kind, ...rest] = line.split(" ");
      this.addLine(kind, rest.join(" "));
    }
    if (!given.length) this.addLine(values.workload ? "queue" : "drain", "");
    if (values.changes) this.ask();
  }

  // The map needs the nodes, which may come after the answer.
  update(changed) {
    if (!changed.has("nodes") || !this.found || this.drawMap) return;
    this.draw(this.found);
  }

  // What would admit a workload that waits for quota; each answer can be tried.
  async admit(workload) {
    this.problem.hidden = true;
    this.answer.replaceChildren(panel(`What would admit ${workload}`, emptyText("Changes of quota and limits, and the end of other jobs, are tried on a copy…")));
    try {
      const found = await this.app.requests.post("what-if", { workload });
      this.found = null;
      this.answer.replaceChildren(this.admitted(workload, found));
      this.app.announce("What would admit it is there.");
    } catch (problem) {
      this.answer.replaceChildren();
      this.problem.hidden = false;
      this.problem.textContent = problem.message;
    }
  }

  admitted(workload, { workload: one, short, admittedBy }) {
    const place = one.position ? `, number ${one.position} in the queue` : "";
    const parts = [element("p", {}, `${one.status} in ${one.cluster_queue || one.local_queue}${place}${one.reason ? `: ${one.reason}: ${one.message}` : ""}`)];
    for (const text of short) parts.push(element("p", { class: "soft" }, `Short: ${text}`));
    const rows = admittedBy.map(({ text, changes }) => {
      const button = element("button", { type: "button", "aria-label": `Try ${text}` }, "Try");
      button.addEventListener("click", () => this.fill(changes));
      return [text, button];
    });
    if (rows.length) parts.push(plainTable("Changes that would admit it, one at a time", [["Change", false, "wrap"], [""]], rows));
    else if (one.status === "Pending") parts.push(emptyText("No single change of quota, of a limit or of other jobs admits it."));
    return panel(`What would admit ${workload}`, ...parts);
  }

  fill(changes) {
    this.lines.replaceChildren();
    for (const change of changes) for (const [kind, text] of Object.entries(change)) this.addLine(kind, text);
    this.keep();
    this.ask();
  }

  async ask() {
    const body = { changes: this.changes.map(([kind, text]) => ({ [kind]: text })) };
    if (this.namespace.value.trim()) body.namespace = this.namespace.value.trim();
    if (this.pod.value.trim()) body.pod = this.pod.value;
    this.send.disabled = true;
    this.problem.hidden = true;
    try {
      this.draw(await this.app.requests.post("what-if", body));
      this.app.announce("The difference is there.");
    } catch (problem) {
      this.found = null;
      this.answer.replaceChildren();
      this.problem.hidden = false;
      this.problem.textContent = problem.message;
    }
    this.send.disabled = false;
  }

  // Which workloads Kueue would admit otherwise.
  drawQuota(found) {
    this.drawMap = null;
    const [admitted, pending] = [found.admitted, found.pending].map(([before, after]) => `${countText(before)} → ${countText(after)}`);
    const chips = [`admitted ${admitted}`, `pending ${pending}`].map((text) => element("span", { class: "chip" }, text));
    const effects = found.changes.map((text) => element("p", { class: "change" }, text));
    const rows = found.workloads.slice(0, ROWS_MAX).map((one) => [`${one.namespace}/${one.job}`, fateText(one.before), fateText(one.after)]);
    const more = found.workloads.length > ROWS_MAX ? element("p", { class: "soft" }, `and ${countText(found.workloads.length - ROWS_MAX)} more`) : "";
    const table = rows.length ? plainTable("Workloads with a difference", [["Workload"], ["Before"], ["After"]], rows) : emptyText("No workload fares differently.");
    this.answer.replaceChildren(panel("Difference", ...effects, element("div", {}, ...chips)), panel("Workloads with a difference", table, more));
  }

  draw(found) {
    this.found = found;
    if (found.workloads) {
      this.drawQuota(found);
      return;
    }
    const pods = found.pods || [];
    const parts = [this.summary(found), this.map(pods), this.pods(pods), this.resources(found.resources || {}), this.queues(found.queues || {})];
    this.answer.replaceChildren(...parts.filter(Boolean));
    this.drawMap?.();
  }

  summary(found) {
    const effects = (found.changes || []).map((one) => element("p", { class: "change" }, `${one.kind} ${one.text}: ${one.effect}`));
    const chips = summaryTexts(found.summary || {}).map((text) => element("span", { class: "chip" }, text));
    const notes = (found.notes || []).map((note) => element("p", { class: "soft" }, note));
    return panel("Difference", ...effects, element("div", {}, ...chips), ...notes);
  }

  map(pods) {
    const { nodes } = this.app.model;
    this.drawMap = null;
    if (!nodes.count) return null;
    const [come, gone] = [new Map(), new Map()];
    for (const one of pods) {
      if (one.to) come.set(one.to, (come.get(one.to) || 0) + 1);
      if (one.from) gone.set(one.from, (gone.get(one.from) || 0) + 1);
    }
    const map = new NodeMap("Map of nodes that gain or lose pods; the table of pods says the same", { picked: (row) => this.app.address.go("nodes", { node: nodes.names[row] }) });
    map.heightMax = 260;
    const kind = (row) => (come.has(nodes.names[row]) ? 1 : 0) + (gone.has(nodes.names[row]) ? 2 : 0);
    const text = (row) => [nodes.names[row], [`${come.get(nodes.names[row]) || 0} pods come, ${gone.get(nodes.names[row]) || 0} go`]];
    const rows = Array.from({ length: nodes.count }, (_, row) => row);
    this.drawMap = () => map.setSource({ groups: [{ title: "", rows }], share: () => Number.NaN, cards: () => null, text, kind });
    const key = (name, label) => element("span", { class: "scale" }, element("span", { class: `key-mark ${name}`, "aria-hidden": "true" }), label);
    return panel("Nodes", map.element, element("p", { class: "toolbar soft" }, key("come", "gets pods"), key("gone", "loses pods"), key("both", "both")));
  }

  pods(pods) {
    if (!pods.length) return panel("Pods", emptyText("No pod is placed otherwise."));
    const rows = pods.slice(0, ROWS_MAX).map((one) => [
      element("a", { href: this.app.address.link("pod", { pod: one.pod }) }, one.pod), one.effect, one.from || "", one.to || "",
      [one.reason, one.by ? `by ${one.by}` : ""].filter(Boolean).join("; "),
    ]);
    const more = pods.length > ROWS_MAX ? element("p", { class: "soft" }, `and ${countText(pods.length - ROWS_MAX)} more`) : "";
    const found = panel("Pods with a difference", plainTable("Pods with a difference", [["Pod"], ["Effect"], ["From"], ["To"], ["Reason", false, "wrap"]], rows), more);
    found.querySelector("h2").append(element("small", {}, countText(pods.length)));
    return found;
  }

  resources(resources) {
    const side = (name, amounts) => `${shortQuantity(name, amounts.requested)} of ${shortQuantity(name, amounts.allocatable)} (${percentText(amounts.share)})`;
    const rows = Object.entries(resources).map(([name, { before, after }]) => [name, side(name, before), side(name, after)]);
    return rows.length ? panel("Resources", plainTable("Resources before and after", [["Resource"], ["Before", true], ["After", true]], rows)) : null;
  }

  queues(queues) {
    const rows = Object.entries(queues).map(([name, { before, after }]) => [name, countText(before.pods), countText(after.pods), countText(before.pending), countText(after.pending)]);
    const columns = [["Queue"], ["Pods before", true], ["after", true], ["Pending before", true], ["after", true]];
    return rows.length ? panel("Queues", plainTable("Queues before and after", columns, rows)) : null;
  }
}

// What becomes of a workload: where it is admitted, or why it waits.
function fateText(one) {
  if (!one) return "-";
  if (one.reason) return `${one.status} (${one.reason})`;
  const flavors = Object.values(one.flavors).flatMap((held) => Object.values(held));
  return `${one.status} in ${[...new Set(flavors)].join(", ")}`;
}

// Figures in words; one that has another before it as both.
function summaryTexts(summary) {
  const shown = ([name, value]) => !name.endsWith("_before") && (value !== 0 || summary[`${name}_before`]);
  return Object.entries(summary).filter(shown).map(([name, value]) => {
    const isPercent = name.endsWith(".percent");
    const title = isPercent ? `${name.slice(0, -8)} allocated` : name.replaceAll("_", " ");
    const before = summary[`${name}_before`];
    const text = (one) => (isPercent ? percentText(one / 100) : Number.isInteger(one) ? countText(one) : String(Number(one.toPrecision(3))));
    return `${title} ${before === undefined ? "" : `${text(before)} → `}${text(value)}`;
  });
}
