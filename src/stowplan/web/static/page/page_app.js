// The page: address, data, screens. Each screen is made when it is opened first.

import { element } from "../elements.js";
import { Address } from "./address.js";
import { ClusterModel } from "./cluster_model.js";
import { decodeFrame } from "./frame.js";
import { Header } from "./header.js";
import { Keyboard } from "./keyboard.js";
import { LiveConnection } from "./live_connection.js";
import { NodesScreen } from "./nodes_screen.js";
import { clockText } from "./quantities.js";
import { ReplayModel } from "./replay_model.js";
import { Requests } from "./requests.js";
import { TimeBar } from "./time_bar.js";
import { TokenForm } from "./token_form.js";

// Screen -> its module, and the topics that it needs. The first screen comes with the page.
const SCREENS = {
  nodes: [async () => ({ NodesScreen }), ["status", "nodes"]],
  pending: [() => import("./pending_screen.js"), ["status", "pending"]],
  pod: [() => import("./pod_screen.js"), ["status"]],
  queues: [() => import("./queues_screen.js"), ["status", "queues"]],
  decisions: [() => import("./decisions_screen.js"), ["status", "decisions"]],
  preemptions: [() => import("./preemptions_screen.js"), ["status"]],
  "what-if": [() => import("./what_if_screen.js"), ["status", "nodes"]],
  experiments: [() => import("./experiments_screen.js"), ["status"]],
};
// Screen -> the ability of the server that it needs (`can` of `GET cluster`).
const NEEDED = { queues: "queues", decisions: "decisions", preemptions: "preemptions", "what-if": "whatIf", experiments: "experiments" };
const STALE_FROM = 3;
const PRELOAD_AFTER = 2000;

export class PageApp {
  constructor() {
    this.source = "live";
    this.cluster = null;
    this.replay = null;
    this.changes = new Set();
    this.screens = new Map();
    this.main = document.getElementById("main");
    this.requests = new Requests(() => this.tokenForm.ask());
    this.tokenForm = new TokenForm(this);
    this.model = new ClusterModel((topic) => this.changed(topic));
    this.address = new Address(() => this.moved());
    this.header = new Header(this);
    this.keyboard = new Keyboard(this);
  }

  async start() {
    this.timeBar = new TimeBar(document.getElementById("time"), { bounds: null, paused: (isPaused) => this.pause(isPaused) });
    this.moved();
    const cluster = await this.asked("cluster");
    this.cluster = cluster || {};
    this.source = this.cluster.source || "live";
    if (this.source === "simulation") await this.startReplay();
    else this.startLive();
    await this.moved();
    setTimeout(() => this.preload(), PRELOAD_AFTER);
  }

  startLive() {
    this.live = new LiveConnection({
      received: (frame) => this.received(frame), stated: () => this.header.tick(), unauthorized: () => this.tokenForm.ask(),
    });
  }

  async startReplay() {
    const body = await this.asked("replay");
    const frame = body && decodeFrame(body);
    if (!frame) return;
    this.replay = new ReplayModel(frame.data, frame.arrays, (topic) => this.changed(topic));
    this.model = this.replay;
    this.timeBar = new TimeBar(document.getElementById("time"), {
      bounds: this.replay.bounds, unit: this.replay.unit, profile: this.replay.waitingOver(), moved: (time) => this.seek(time), textOf: (time) => this.replay.timeText(time),
    });
    const at = Number(this.address.now.values.at);
    const { start, end } = this.replay.bounds;
    const time = Number.isFinite(at) && this.address.now.values.at ? Math.min(end, start + at * this.replay.unit) : this.replay.busiest;
    this.timeBar.show(time);
    this.replay.seek(time);
    this.header.tick();
  }

  seek(time) {
    this.replay.seek(time);
    clearTimeout(this.seekTimer);
    this.seekTimer = setTimeout(() => this.address.set({ at: String(Math.round((time - this.replay.bounds.start) / this.replay.unit)) }), 300);
  }

  received(frame) {
    if (this.epoch !== undefined && frame.epoch !== this.epoch) this.restarted();
    this.epoch = frame.epoch;
    this.model.take(frame);
  }

  // Another scheduler process: what was known of it may have changed.
  async restarted() {
    this.model.decisions = [];
    this.cluster = (await this.asked("cluster")) || this.cluster;
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    this.subscribe();
    this.header.tick();
  }

  subscribe() {
    const topics = SCREENS[this.address.now.screen][1];
    this.live?.subscribe(this.isPaused ? ["status"] : topics);
  }

  get isLive() {
    return this.source === "live" && !this.isPaused && !document.hidden;
  }

  can(name) {
    if (name === "nodes") return this.source === "live";
    return this.cluster?.can?.[name] ?? this.source === "live";
  }

  // An answer of the server, or null with the problem in the status line.
  async asked(path) {
    try {
      return await this.requests.get(path);
    } catch (problem) {
      this.announce(problem.message);
      return null;
    }
  }

  // Another screen, selection, filter or time.
  async moved() {
    this.header?.show(this.address.now);
    this.subscribe();
    const { screen } = this.address.now;
    const found = await this.screen(screen);
    const { values } = this.address.now;
    // While the module was loading another one may have been asked for.
    if (!found || this.address.now.screen !== screen) return;
    if (this.shown !== found) {
      this.main.replaceChildren(found.element);
      if (this.shown) scrollTo(0, 0);
      this.shown = found;
      document.title = `${found.title} · Stowplan`;
      document.getElementById("title").textContent = found.title;
    }
    found.show(values);
    this.changed("screen");
    this.showTime(values.at);
  }

  showTime(at) {
    if (!this.replay || !at || this.timeBar.isRunning) return;
    const time = this.replay.bounds.start + Number(at) * this.replay.unit;
    if (!(Math.abs(time - this.replay.time) > 1.5 * this.replay.unit)) return;
    this.timeBar.show(time);
    this.replay.seek(time);
  }

  // Made when it is opened first; null when its module could not be loaded.
  async screen(name) {
    if (this.source === "simulation" && NEEDED[name] && !this.can(NEEDED[name])) return missingScreen(name);
    if (!this.screens.has(name)) {
      try {
        const [Screen] = Object.values(await SCREENS[name][0]());
        if (!this.screens.has(name)) this.screens.set(name, new Screen(this));
      } catch (problem) {
        if (!(problem instanceof TypeError)) throw problem;
        this.announce(`The screen could not be loaded: ${problem.message}`);
        return null;
      }
    }
    return this.screens.get(name);
  }

  // So that a screen opens without the server.
  preload() {
    const idle = window.requestIdleCallback || ((work) => setTimeout(work, 500));
    idle(() => Object.values(SCREENS).forEach(([load]) => load().catch((problem) => this.announce(problem.message))));
  }

  // Drawing waits for the next frame, however many topics changed.
  changed(topic) {
    this.changes.add(topic);
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      const { changes } = this;
      this.changes = new Set();
      // The screen may be opened after its data has come.
      if (changes.has("screen")) for (const one of ["status", "nodes", "pending", "queues", "decisions"]) if (this.hasTopic(one)) changes.add(one);
      this.header.update(changes);
      this.shown?.update(changes);
    });
  }

  hasTopic(topic) {
    return this.model.arrived.has(topic) || (this.replay && ["status", "nodes", "pending"].includes(topic));
  }

  freshness() {
    if (this.source === "simulation") return { state: "past", text: this.replay ? "replay" : "loading" };
    if (!this.live || this.live.state === "connecting") return { state: "connecting", text: "connecting" };
    const silent = this.live.silentSeconds;
    if (this.live.state === "stale" || silent > STALE_FROM) return { state: "stale", text: `stale ${Math.round(silent)} s` };
    return this.isPaused ? { state: "past", text: "paused" } : { state: "live", text: "live" };
  }

  // A moment: of the clock, or in a replay since its start.
  timeText(time) {
    return this.replay ? this.replay.timeText(time) : clockText(time / 1000);
  }

  announce(text) {
    document.getElementById("announced").textContent = text;
  }

  showKeys() {
    this.keyboard.show();
  }

  focus(selector) {
    const found = [...this.main.querySelectorAll(selector)].find((one) => one.offsetParent !== null);
    found?.focus();
  }

  // Esc: what is selected first, then back to the screen before.
  leave() {
    const { screen, values } = this.address.now;
    if (screen === "nodes" && values.node) this.address.set({ node: "" });
    else if (screen === "decisions" && values.decision) this.address.set({ decision: "" });
    else if (screen === "pod" && history.length > 1) history.back();
    else if (screen === "pod") this.address.go("pending", {});
  }
}

function missingScreen(name) {
  const text = element("p", { class: "empty" }, "This simulation has no data for this screen. Nodes and Pending have every moment of it.");
  const found = element("section", { class: "screen", "aria-label": name }, element("div", { class: "panel" }, text));
  return { title: name, element: found, show() {}, update() {} };
}
