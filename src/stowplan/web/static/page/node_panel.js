// One node: amounts, cards, taints, labels, pods, and what refuses a chosen pod there.

import { element } from "../elements.js";
import { emptyText, panel, track } from "./controls.js";
import { ageText, countText, percentText, quantityOf } from "./quantities.js";

const EVERY = 2000;
const PODS_MAX = 100;

export class NodePanel {
  constructor(app) {
    this.app = app;
    this.element = panel("Node");
    this.element.classList.add("node-panel");
    this.name = "";
    this.asked = 0;
    this.show("", null);
  }

  show(name, row) {
    const pod = this.app.address.now.values.pod || "";
    const isSame = this.name === name && this.pod === pod && this.row === row;
    [this.name, this.row, this.pod] = [name, row, pod];
    this.element.hidden = !name;
    if (!name || isSame) return;
    this.found = null;
    this.draw();
    this.ask();
  }

  update(changed) {
    if (!this.name || !changed.has("nodes")) return;
    if (performance.now() - this.asked > EVERY) this.ask();
  }

  async ask() {
    this.asked = performance.now();
    const { name, pod } = this;
    if (!this.app.can("nodes")) return;
    try {
      const query = pod ? `?pod=${encodeURIComponent(pod)}` : "";
      const found = await this.app.requests.get(`nodes/${encodeURIComponent(name)}${query}`);
      if (this.name !== name || this.pod !== pod) return;
      this.found = found;
      this.problem = "";
    } catch (problem) {
      if (this.name !== name) return;
      this.problem = problem.message;
    }
    if (!this.element.contains(document.activeElement)) this.draw();
  }

  draw() {
    const { app, found, name } = this;
    const close = element("button", { type: "button", "aria-label": "Close node" }, "Close");
    close.addEventListener("click", () => app.address.set({ node: "" }, { isStep: true }));
    const parts = [element("h2", {}, `Node ${name}`, close)];
    if (this.problem) parts.push(element("p", { class: "notice error" }, this.problem));
    else if (found) parts.push(...this.details(found));
    else if (this.row !== null) parts.push(this.columns());
    else parts.push(emptyText("not found"));
    this.element.replaceChildren(...parts);
  }

  // What the columns have, until the answer arrives and in a replay.
  columns() {
    const { nodes } = this.app.model;
    const amounts = nodes.resources.map((name) => ({ name, requested: nodes.requested(name, this.row), allocatable: nodes.allocatable(name, this.row) }));
    return element("div", {}, element("p", { class: "soft" }, nodes.state(this.row)), ...amountLines(amounts));
  }

  details(found) {
    const state = `${found.ready ? "Ready" : "NotReady"}${found.unschedulable ? ",SchedulingDisabled" : ""}`;
    const parts = [element("p", { class: found.ready && !found.unschedulable ? "soft" : "warn" }, state)];
    if (found.selected) parts.push(this.selected(found.selected));
    parts.push(...amountLines(found.resources || []));
    if (found.cards?.length) parts.push(element("h3", {}, "GPU cards"), cardList(found.cards));
    if (found.taints?.length) {
      parts.push(element("h3", {}, "Taints"), ...found.taints.map((one) => element("span", { class: "chip warn" }, taintText(one))));
    }
    parts.push(element("h3", {}, `Pods `, element("small", { class: "soft" }, countText(found.pods?.length || 0))), this.pods(found.pods || []));
    const labels = Object.entries(found.labels || {}).map(([key, value]) => element("span", { class: "chip" }, `${key}=${value}`));
    if (labels.length) parts.push(element("details", {}, element("summary", {}, `Labels (${labels.length})`), ...labels));
    return parts;
  }

  selected({ pod, fits, refusals }) {
    const head = element("p", {}, "For ", element("a", { href: this.app.address.link("pod", { pod }) }, pod), fits ? ": fits" : ": does not fit");
    const lines = (refusals || []).map((one) => element("li", {}, `${one.rule}: ${[...(one.reasons || []), ...(one.details || [])].join("; ")}`));
    return element("div", { class: `notice${fits ? "" : " error"}` }, head, element("ul", {}, ...lines));
  }

  pods(pods) {
    if (!pods.length) return emptyText("No pods.");
    const items = pods.slice(0, PODS_MAX).map((one) => {
      const amounts = Object.entries(one.requests || {}).map(([name, amount]) => `${quantityOf(name, amount)} ${name}`);
      if (one.started) amounts.push(`for ${ageText((this.app.model.time - one.started) / 1000)}`);
      return element("li", {}, element("a", { href: this.app.address.link("pod", { pod: one.pod }) }, one.pod), element("div", { class: "soft" }, amounts.join(" · ")));
    });
    const more = pods.length > PODS_MAX ? element("p", { class: "soft" }, `and ${countText(pods.length - PODS_MAX)} more`) : "";
    return element("div", { class: "short", tabindex: "0", role: "region", "aria-label": `Pods of ${this.name}` }, element("ul", { class: "tries" }, ...items), more);
  }
}

// A line per resource with a bar, as `kubectl describe node` counts.
function amountLines(amounts) {
  return amounts.filter((one) => one.allocatable > 0 || one.requested > 0).map((one) => {
    const share = one.allocatable > 0 ? one.requested / one.allocatable : 2;
    const text = `${quantityOf(one.name, one.requested)} of ${quantityOf(one.name, one.allocatable)} (${percentText(share)})`;
    return element("div", { class: "amount" }, element("span", { class: "soft" }, one.name), element("span", {}, text), track(share));
  });
}

function cardList(cards) {
  const items = cards.map((card) => {
    const share = card.used / 1000;
    const title = `card ${card.index}: ${percentText(share)} in use${card.pods?.length ? `, ${card.pods.join(", ")}` : ""}`;
    return element("li", { title, "aria-label": title }, `${card.index} ${percentText(share)}`, track(share));
  });
  return element("ul", { class: "cards" }, ...items);
}

export function taintText({ key, value, effect }) {
  return `${key}${value ? `=${value}` : ""}:${effect}`;
}
