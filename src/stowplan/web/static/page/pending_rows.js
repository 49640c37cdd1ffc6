// Rows of pending pods, filtered and sorted: here while all of them are here, else in pages of the server.

import { pathOf } from "./requests.js";

const PAGE = 200;
const AGAIN = 2000;
const collator = new Intl.Collator("en", { numeric: true });

export class PendingRows {
  constructor(app, arrived) {
    this.app = app;
    this.arrived = arrived;
    this.query = { filter: "", reason: "", gang: "", queue: "", sort: "since", isDown: false };
    this.matching = [];
    this.count = 0;
    this.pages = new Map();
    this.askedAt = 0;
  }

  set(query) {
    const isOther = JSON.stringify(query) !== JSON.stringify(this.query);
    this.query = query;
    if (isOther) this.pages.clear();
    this.refresh(isOther);
  }

  refresh(isNow = false) {
    const { pending } = this.app.model;
    if (pending.complete) {
      this.matching = this.local();
      this.count = this.matching.length;
      return;
    }
    const now = performance.now();
    if (!isNow && now - this.askedAt < AGAIN) return;
    this.askedAt = now;
    const wanted = this.pages.size ? [...this.pages.keys()] : [0];
    wanted.forEach((page) => this.ask(page));
  }

  rowAt(place) {
    if (this.app.model.pending.complete) return this.matching[place] ?? null;
    const page = Math.floor(place / PAGE);
    if (!this.pages.has(page)) {
      this.pages.set(page, []);
      this.ask(page);
    }
    return this.pages.get(page)[place % PAGE] ?? null;
  }

  async ask(page) {
    const { query } = this;
    const reason = this.reasonNumber(query.reason);
    const values = {
      offset: page * PAGE, limit: PAGE, sort: query.sort, order: query.isDown ? "desc" : "asc",
      filter: query.filter, reason, gang: query.gang, queue: query.queue,
    };
    try {
      const found = await this.app.requests.get(pathOf("pending", values));
      if (this.query !== query) return;
      if (this.pages.size > 8) this.pages.clear();
      this.pages.set(page, found.rows);
      this.app.model.pending.reasons = found.reasons;
      this.count = found.matching;
      this.arrived("");
    } catch (problem) {
      this.arrived(problem.message);
    }
  }

  reasonNumber(text) {
    if (!text) return null;
    const place = this.app.model.pending.reasons.findIndex(([rule, reason]) => reasonName(rule, reason) === text);
    return place < 0 ? null : place;
  }

  local() {
    const { model } = this.app;
    const { query } = this;
    const value = (row, name) => model.pendingValue(row, name);
    const words = query.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const reason = this.reasonNumber(query.reason);
    const texts = model.pending.reasons.map(([rule, text]) => `${rule} ${text}`.toLowerCase());
    const found = [...model.pending.rows.values()].filter((row) => {
      if (query.reason && value(row, "reason") !== reason) return false;
      if (query.gang && value(row, "gang") !== query.gang) return false;
      if (query.queue && value(row, "queue") !== query.queue) return false;
      if (!words.length) return true;
      const text = `${value(row, "pod")} ${value(row, "queue")} ${value(row, "gang")} ${value(row, "place")}`.toLowerCase();
      return words.every((word) => text.includes(word) || (texts[value(row, "reason")] || "").includes(word));
    });
    return found.sort(this.order());
  }

  order() {
    const { sort, isDown } = this.query;
    const { model } = this.app;
    const sign = isDown ? -1 : 1;
    return (one, other) => {
      const [first, second] = [model.pendingValue(one, sort), model.pendingValue(other, sort)];
      if (first === second) return collator.compare(model.pendingValue(one, "pod"), model.pendingValue(other, "pod"));
      if (first === null) return 1;
      if (second === null) return -1;
      return sign * (typeof first === "string" ? collator.compare(first, second) : first - second);
    };
  }
}

export function reasonName(rule, reason) {
  return rule && reason ? `${rule}: ${reason}` : rule || reason;
}

// Gangs of the rows: what they wait for together.
export function gangRows(rows, value) {
  const gangs = new Map();
  for (const row of rows) {
    const name = value(row, "gang");
    if (!name) continue;
    const found = gangs.get(name) || { name, pods: 0, gpus: 0, since: Infinity, queue: value(row, "queue"), reasons: new Map() };
    found.pods += 1;
    found.gpus += value(row, "gpus") || 0;
    found.since = Math.min(found.since, value(row, "since"));
    const reason = value(row, "reason");
    found.reasons.set(reason, (found.reasons.get(reason) || 0) + 1);
    gangs.set(name, found);
  }
  return [...gangs.values()].sort((one, other) => other.gpus - one.gpus || other.pods - one.pods);
}
