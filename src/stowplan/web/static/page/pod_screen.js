// One pod: what refuses it with need and have, the smallest change that helps, scores, gang, past tries.

import { element } from "../elements.js";
import { emptyText, facts, panel, plainTable } from "./controls.js";
import { countText } from "./quantities.js";
import { pathOf, podPath } from "./requests.js";
import { scoreTable } from "./score_table.js";

const EVERY = 3000;
// The search for changes takes seconds where sessions decide.
const CHANGES_EVERY = 30000;
const CHANGES_AGAIN = 10000;

export class PodScreen {
  constructor(app) {
    this.app = app;
    this.title = "Pod";
    this.content = element("div", { class: "screen" });
    this.element = element("section", { class: "screen", "aria-label": "Pod" }, this.content);
    this.pod = null;
    this.askedAt = 0;
  }

  show({ pod = "" }) {
    if (pod === this.pod && !this.app.replay) return;
    this.pod = pod;
    this.changesOf = null;
    this.key = "";
    this.content.replaceChildren(element("div", { class: "panel" }, element("h2", { class: "title" }, `Pod ${pod}`), emptyText(pod ? "Asking why…" : "No pod chosen: open one on the screen Pending.")));
    if (pod) this.ask();
  }

  update() {
    if (this.pod && !this.asking && performance.now() - this.askedAt > EVERY && this.app.isLive) this.ask();
  }

  async ask() {
    this.askedAt = performance.now();
    const { pod } = this;
    const then = this.app.replay?.podAt(pod);
    if (then) this.draw(then);
    // Of a finished run the server answers for its end.
    const hasMoments = then && this.app.cluster?.can?.whyAt;
    if (then && !hasMoments && (then.state !== "pending" || !this.app.can("why"))) return;
    if (hasMoments && !["pending", "running"].includes(then.state)) return;
    const at = hasMoments ? (this.app.replay.time - this.app.replay.data.start) / this.app.replay.unit : null;
    const asking = this.asking = Symbol(pod);
    try {
      const isSame = () => this.pod === pod && (!hasMoments || then.at === this.app.replay.time);
      await this.askTwice(pathOf(`pods/${podPath(pod)}/why`, { at }), isSame, (found) => this.drawAnswer(found, then, hasMoments));
    } catch (problem) {
      if (this.pod !== pod) return;
      this.key = "";
      this.content.replaceChildren(element("div", { class: "panel" }, element("h2", { class: "title" }, `Pod ${pod}`), element("p", { class: "notice error" }, problem.message)));
    } finally {
      if (this.asking === asking) this.asking = null;
    }
  }

  // Where sessions decide, first without changes that help, and then with them, unless they are new.
  async askTwice(path, isSame, drawn) {
    const quick = await this.app.requests.get(`${path}${path.includes("?") ? "&" : "?"}changes=quick`);
    if (!isSame()) return;
    const known = this.changesOf?.path === path ? this.changesOf : null;
    const isWhole = quick.changes !== null || Boolean(quick.wouldGoTo);
    drawn(isWhole ? quick : { ...quick, changes: known?.changes ?? null, notSearched: known?.notSearched });
    const pause = known?.message === quick.message ? CHANGES_EVERY : CHANGES_AGAIN;
    if (isWhole || (known && performance.now() - known.at < pause)) return;
    const found = await this.app.requests.get(path);
    if (!isSame()) return;
    this.changesOf = { path, message: found.message, changes: found.changes, notSearched: found.notSearched, at: performance.now() };
    drawn(found);
  }

  drawAnswer(found, then, hasMoments) {
    const notes = hasMoments ? found.notes : ["rules are of this moment, by amounts; changes and scores of the end of the run"];
    // A recording explains each moment by all rules.
    const { nodes, fitting, rules } = found;
    this.draw(then ? { ...found, ...then, ...(hasMoments ? { nodes, fitting, rules } : {}), notes } : found);
  }

  draw(found) {
    const key = JSON.stringify({ ...found, time: 0 });
    // What is the same stays, with focus and selection.
    if (key === this.key) return;
    this.key = key;
    const right = [this.facts(found), this.gang(found), this.attempts(found)].filter(Boolean);
    const left = [this.changes(found), this.rules(found), this.preemption(found), this.scores(found)].filter(Boolean);
    this.content.replaceChildren(this.head(found), element("div", { class: "split" }, element("div", { class: "column" }, ...left), element("div", { class: "column" }, ...right)));
  }

  head(found) {
    const place = found.node ? element("span", {}, " on ", this.nodeLink(found.node)) : "";
    const back = element("a", { href: this.app.address.link("pending") }, "Pending");
    const title = element("h2", { class: "title" }, `Pod ${found.pod} `, element("small", {}, found.state, place));
    const message = found.message ? element("p", {}, found.message) : "";
    return element("div", { class: "panel" }, element("p", { class: "soft" }, back, " / pod"), title, message);
  }

  nodeLink(name, title = null) {
    return element("a", { href: this.app.address.link("nodes", { node: name, pod: this.pod }), title }, name);
  }

  facts(found) {
    const fitting = found.nodes === undefined ? "" : `${countText(found.fitting)} of ${countText(found.nodes)}`;
    const queue = found.queue ? element("a", { href: this.app.address.link("queues", { queue: found.queue }) }, found.queue) : "";
    return panel("Placement", facts([
      ["State", found.state], ["Node", found.node ? this.nodeLink(found.node) : ""], ["Fits on nodes", fitting],
      ["Would go to", found.wouldGoTo ? this.nodeLink(found.wouldGoTo) : ""], ["Scheduler", found.scheduler], ["Queue", queue],
      ["Notes", (found.notes || []).join("; ")], ...(found.more || []),
    ]));
  }

  changes({ changes, notSearched, podRefusal }) {
    if (changes === null && !podRefusal) return panel("Smallest change that helps", element("p", { class: "soft", role: "status" }, "Searching…"));
    const lines = (changes || []).map((one) => element("p", { class: "change" }, one.text || JSON.stringify(one)));
    const refusal = podRefusal ? [element("p", { class: "notice error" }, textOfRefusal(podRefusal))] : [];
    if (!lines.length && !refusal.length) return null;
    const rest = notSearched?.length ? [element("p", { class: "soft" }, `Not searched: ${notSearched.join(", ")}`)] : [];
    const head = lines.length ? "Smallest change that helps" : "Refused before nodes are looked at";
    return panel(head, ...refusal, ...lines, ...rest);
  }

  rules({ rules, nodes }) {
    if (!rules?.length) return null;
    const rows = rules.map((one) => [
      one.rule, one.reason, countText(one.first), countText(one.nodes), amountLines(one, ({ need }) => need),
      amountLines(one, ({ have }) => haveText(have)), this.examples(one.examples || [], Boolean(one.amounts)),
    ]);
    const columns = [["Rule"], ["Reason", false, "wrap"], ["Refuses first", true], ["Refuses alone", true], ["Need", true], ["Have", true], ["Examples", false, "wrap"]];
    const found = panel("Rules that refuse it", plainTable("Rules that refuse the pod", columns, rows));
    found.querySelector("h2").append(element("small", {}, `${countText(nodes)} nodes; "first": the refusal that counts for a node`));
    return found;
  }

  // Nodes that are refused in the same words stand together; amounts have columns of their own, and are the titles of nodes.
  examples(examples, hasAmounts) {
    const byText = new Map();
    for (const { node, details } of examples) {
      const whole = (details || []).join("; ");
      const text = hasAmounts ? "" : whole;
      byText.set(text, [...(byText.get(text) || []), { node, whole }]);
    }
    const lines = [...byText].map(([text, nodes]) => {
      const links = nodes.flatMap(({ node, whole }, k) => [k ? ", " : "", this.nodeLink(node, whole)]);
      return element("div", {}, text ? `${text}: ` : "", ...links);
    });
    return element("div", {}, ...lines);
  }

  preemption({ preemption }) {
    if (!preemption) return null;
    if (typeof preemption === "string") return panel("Preemption", element("p", {}, preemption));
    const pairs = Object.entries(preemption).filter(([, value]) => value !== null && value !== "");
    if (pairs.length === 1) return panel("Preemption", element("p", {}, plainText(pairs[0][1])));
    return panel("Preemption", facts(pairs.map(([name, value]) => [name, plainText(value)])));
  }

  scores({ scores }) {
    if (!scores?.length) return null;
    const found = panel("Best nodes", scoreTable(this.app, scores));
    found.querySelector("h2").append(element("small", {}, "raw → normalised × weight = final"));
    return found;
  }

  gang({ gang }) {
    if (!gang) return null;
    const members = element("a", { href: this.app.address.link("pending", { gang: gang.gang }) }, gang.gang);
    return panel("Gang", facts([
      ["Name", members], ["Phase", gang.phase], ["Minimum", countText(gang.min)], ["Running", countText(gang.running)],
      ["Pending", countText(gang.pending)], ["Missing", countText(gang.missing)],
    ]));
  }

  attempts({ attempts }) {
    if (!attempts?.length) return null;
    // The same answer again and again is one line.
    const runs = [];
    for (const one of attempts) {
      const last = runs.at(-1);
      if (last && ["outcome", "node", "message"].every((name) => last.one[name] === one[name])) Object.assign(last, { times: last.times + 1, first: one.time });
      else runs.push({ one, times: 1, first: one.time });
    }
    const items = runs.map(({ one, times, first }) => {
      const node = one.node ? [" on ", this.nodeLink(one.node)] : [];
      const again = times > 1 ? `, ${countText(times)} times since ${this.app.timeText(first)}` : "";
      return element("li", {}, element("span", { class: "soft" }, this.app.timeText(one.time)), ` ${one.outcome}`, ...node, again, one.message ? element("div", {}, one.message) : "");
    });
    return panel("Past tries", element("ul", { class: "tries" }, ...items));
  }
}

function textOfRefusal(refusal) {
  return typeof refusal === "string" ? refusal : [refusal.rule, refusal.reason || refusal.message].filter(Boolean).join(": ");
}

// A line for each resource; its name where there are several.
function amountLines({ amounts, need, have }, text) {
  const found = amounts ?? (have ? [{ resource: "", need, have }] : []);
  return element("div", {}, ...found.map((one) => element("div", {}, found.length > 1 ? `${one.resource} ` : "", text(one))));
}

function haveText({ least, most }) {
  return least === most ? String(least) : `${least} to ${most}`;
}

function plainText(value) {
  if (Array.isArray(value)) return value.map(plainText).join(", ");
  return typeof value === "object" ? Object.entries(value).map(([name, one]) => `${name}: ${plainText(one)}`).join("; ") : String(value);
}
