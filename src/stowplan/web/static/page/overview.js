// What a person wants first: is it healthy, what waits, why, how full it is, what changed.

import { element, shape } from "../elements.js";
import { track } from "./controls.js";
import { ageText, clockText, countText, percentText, shortQuantity } from "./quantities.js";

const LINES = 3;
const CHANGES = 2;
const METERS = 4;
const EVERY = 1000;

export class Overview {
  constructor(app) {
    this.app = app;
    this.tiles = ["Health", "Waiting", "Why pods wait", "Allocated", "Changed"].map((title) => {
      const content = element("div", {});
      return { content, element: element("section", { class: "panel tile" }, element("h2", {}, title), content) };
    });
    this.element = element("div", { class: "overview" }, ...this.tiles.map((tile) => tile.element));
    this.drawnAt = 0;
  }

  update(changed) {
    const now = performance.now();
    if (!changed.has("status") && !changed.has("nodes")) return;
    if (now - this.drawnAt < EVERY && this.isComplete) return;
    this.drawnAt = now;
    const { status } = this.app.model;
    this.isComplete = Boolean(status && this.app.model.nodes.count);
    this.tiles[4].element.hidden = Boolean(this.app.replay);
    if (status) {
      this.fill(0, this.app.replay ? this.placed(status) : this.health(status));
      this.fill(1, this.waiting(status));
      this.fill(2, this.reasons(status));
      this.fill(4, this.changes(status));
    }
    if (this.app.model.nodes.count) this.fill(3, this.meters());
  }

  fill(place, lines) {
    const key = lines.map((line) => (typeof line === "string" ? line : line.dataset.key ?? line.outerText ?? line.textContent)).join("\n");
    const tile = this.tiles[place];
    if (tile.key === key) return;
    // A focused link stays where it is.
    if (tile.content.contains(document.activeElement)) return;
    tile.key = key;
    tile.content.replaceChildren(...lines.map((line) => (typeof line === "string" ? element("div", { class: "line", title: line }, line) : line)));
  }

  health(status) {
    const { nodes, rates } = this.app.model;
    const isGood = status.healthy !== false && !(status.unready || []).length;
    const figure = element("div", { class: `figure ${isGood ? "good" : "bad"}` }, isGood ? "Healthy" : "Not ready");
    const problems = [...(status.unready || []).map((text) => [text, ""]), ...(status.findings || []).map((one) => [one.text, one.subject])];
    let [cordoned, unready] = [0, 0];
    for (let row = 0; row < nodes.count; row += 1) {
      const flags = nodes.flag(row);
      cordoned += flags & 1;
      unready += flags & 2 ? 1 : 0;
    }
    const counts = [`${countText(status.nodes ?? nodes.count)} nodes`];
    if (unready) counts.push(`${countText(unready)} not ready`);
    if (cordoned) counts.push(`${countText(cordoned)} cordoned`);
    const [[text, subject] = []] = problems;
    const more = problems.length > 1 ? ` (${countText(problems.length)} findings)` : "";
    const whole = problems.map((one) => one.filter(Boolean).reverse().join(": ")).join("\n");
    const last = text ? element("div", { class: "line", title: whole }, subject ? `${subject}: ` : "", text, more) : sparkLine(rates);
    return [figure, element("div", { class: "line one" }, counts.join(" · ")), last];
  }

  placed(status) {
    this.tiles[0].element.firstChild.textContent = "Placed";
    return [element("div", { class: "figure" }, countText(status.bound), element("small", {}, " pods")), `on ${countText(status.nodes)} nodes`];
  }

  waiting(status) {
    const { app } = this;
    const total = pendingCount(status);
    const link = element("a", { href: app.address.link("pending") }, countText(total));
    const places = Object.entries(status.pending || {}).filter(([, count]) => count).sort(([, one], [, other]) => other - one);
    const texts = places.map(([name, count]) => `${countText(count)} ${name === "sessions" ? "in sessions" : name}`);
    const gpus = status.gpusWaiting ? `, ${shortQuantity("gpu", status.gpusWaiting)} GPUs` : "";
    const lines = [element("div", { class: "figure" }, link, element("small", {}, ` ${total === 1 ? "pod" : "pods"}${gpus}`)), texts.join(" · ") || "none in the queue"];
    const longest = status.longestWait;
    if (longest) {
      const age = ageText(app.model.since(longest.since));
      const pod = element("a", { href: app.address.link("pod", { pod: longest.pod }) }, longest.pod);
      lines.push(element("div", { class: "cut" }, age ? `longest ${age}:` : "first:"), element("div", { class: "cut", title: longest.pod }, pod));
    }
    return lines;
  }

  reasons(status) {
    const why = status.why || [];
    if (!why.length) return ["no pod has been refused"];
    const total = Math.max(1, ...why.map((one) => one.pods));
    return why.slice(0, LINES).map((one) => {
      const text = one.reason || one.rule || "not tried yet";
      const link = element("a", { href: this.app.address.link("pending", { filter: text }), title: `${one.rule}: ${text}` }, text);
      return element("div", { class: "meter why", "data-key": `${text}${one.pods}` }, link, track(one.pods / total, "soft"), element("span", {}, countText(one.pods)));
    });
  }

  meters() {
    const { nodes } = this.app.model;
    const totals = nodes.resources.map((resource) => [resource, nodes.totals(resource)]);
    const inUse = totals.filter(([, { used, offered }]) => offered && used).concat(totals.filter(([, { used, offered }]) => offered && !used));
    return inUse.slice(0, METERS).map(([resource, { used, offered }]) => {
      const share = offered ? used / offered : 0;
      const title = `${shortQuantity(resource, used)} of ${shortQuantity(resource, offered)} ${resource}`;
      const link = element("a", { href: this.app.address.link("nodes", { ...this.app.address.now.values, resource }), title }, resource);
      const line = element("div", { class: "meter", title }, link, track(share), element("span", {}, percentText(share)));
      line.dataset.key = `${title}`;
      return line;
    });
  }

  changes(status) {
    const changed = status.changed || [];
    if (!changed.length) return ["nothing since the page was opened"];
    return changed.slice(0, CHANGES).map((one) => {
      const time = this.app.source === "live" ? clockText(one.time / 1000) : "";
      const name = one.what === "node" ? element("a", { href: this.app.address.link("nodes", { node: one.name }) }, one.name) : one.name;
      return element("div", { class: "line", title: `${time} ${one.what} ${one.name} ${one.text}` }, `${time} `, name, ` ${one.text}`);
    });
  }
}

export function pendingCount(status) {
  return Object.values(status.pending || {}).reduce((sum, count) => sum + count, 0);
}

// Bound pods a second over the last minutes. rates: [ms, rate].
function sparkLine(rates) {
  const [width, height] = [200, 26];
  const most = Math.max(1, ...rates.map(([, rate]) => rate));
  const [from, to] = [rates[0]?.[0] ?? 0, rates.at(-1)?.[0] ?? 1];
  const points = rates.map(([time, rate]) => `${(((time - from) / (to - from || 1)) * width).toFixed(1)},${(height - (rate / most) * (height - 2)).toFixed(1)}`);
  const label = `Pods bound a second: ${(rates.at(-1)?.[1] ?? 0).toFixed(1)} now, at most ${most.toFixed(1)}`;
  const line = shape("polyline", { points: points.join(" "), class: "c0", "vector-effect": "non-scaling-stroke" });
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, line);
  return element("div", { class: "spark", "data-key": `${rates.length}${to}` }, svg, element("small", {}, `bound/s, to ${most.toFixed(1)}`));
}
