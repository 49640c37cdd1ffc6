// A finished simulation as intervals of its pods; the state at any time is added up from them.

import { ClusterModel } from "./cluster_model.js";
import { ageText, countText, offsetText, quantityOf } from "./quantities.js";
import { OTHER_REASON, ReplayRules } from "./replay_rules.js";

export const NEVER = 4294967295;
const COLUMNS = ["id", "pod", "since", "queue", "gpus", "reason"];

export class ReplayModel extends ClusterModel {
  // data, arrays: of the frame of `GET replay`.
  constructor(data, arrays, changed) {
    super(changed);
    this.data = data;
    // A placement run has no times: it goes on by pods tried.
    this.hasTime = data.axis !== "pods";
    this.unit = this.hasTime ? 1000 : 1;
    this.intervals = arrays;
    const names = data.resources.map((one) => one.name).filter((name) => name !== "pods");
    const resources = [...data.resources.filter((one) => one.name !== "pods"), { name: "pods", unit: "count" }];
    const columns = {};
    for (const name of names) {
      columns[`allocatable:${name}`] = arrays[`allocatable:${name}`];
      columns[`requested:${name}`] = new Float64Array(data.names.length);
    }
    if (arrays["allocatable:pods"]) columns["allocatable:pods"] = arrays["allocatable:pods"];
    columns["requested:pods"] = new Float64Array(data.names.length);
    this.nodes.replace({ names: data.names, resources, groups: data.groups || {} }, { ...columns, ...groupArrays(arrays) });
    this.amounts = names.map((name) => Float64Array.from(data.templates, (one) => one.requests[name] || 0));
    this.used = names.map((name) => this.nodes.columns.get(`requested:${name}`));
    this.pods = this.nodes.columns.get("requested:pods");
    // Nodes may come and go.
    this.offered = arrays.nodeAdded ? [...this.nodes.columns].filter(([name]) => name.startsWith("allocatable:")).map(([, column]) => [column, Float64Array.from(column)]) : [];
    this.pending.columns = COLUMNS;
    this.pending.places = new Map(COLUMNS.map((name, place) => [name, place]));
    this.rules = new ReplayRules(data.templates.map((one) => one.requests), this.nodes.columns, (row) => this.isThere(row));
    // Number of each reason; they are only appended to.
    this.numbers = new Map();
    this.pending.reasons = [];
    const model = this;
    Object.defineProperty(this.pending, "rows", { get: () => model.pendingRows(), configurable: true });
  }

  timeText(time) {
    return this.hasTime ? offsetText((time - this.data.start) / 1000) : `${countText(time - this.data.start)} pods tried`;
  }

  get bounds() {
    return { start: this.data.start, end: this.data.end };
  }

  // The moment at which most pods run, which says more than the end, when all may have ended.
  get busiest() {
    if (!this.hasTime) return this.data.end;
    const { node, bound, ended } = this.intervals;
    const changes = [];
    for (let pod = 0; pod < node.length; pod += 1) {
      if (node[pod] >= 0 && bound[pod] < NEVER) changes.push([bound[pod], 1], [ended[pod], -1]);
    }
    changes.sort(([one], [other]) => one - other);
    let [running, most, found] = [0, 0, 0];
    for (const [at, step] of changes) {
      running += step;
      if (running > most) [most, found] = [running, at];
    }
    return Math.min(this.data.end, this.data.start + found * this.unit);
  }

  // How many pods wait, at this many times from start to end: where a run is congested.
  waitingOver(steps = 240) {
    const { created, bound, ended } = this.intervals;
    const whole = (this.data.end - this.data.start) / this.unit || 1;
    const counts = new Float64Array(steps + 2);
    const place = (at) => Math.min(steps + 1, Math.max(0, Math.ceil((at / whole) * steps)));
    for (let pod = 0; pod < created.length; pod += 1) {
      counts[place(created[pod])] += 1;
      counts[place(Math.min(bound[pod], ended[pod]))] -= 1;
    }
    for (let k = 1; k <= steps; k += 1) counts[k] += counts[k - 1];
    return counts.slice(0, steps + 1);
  }

  // time: ms, between `bounds`.
  seek(time) {
    const at = (time - this.data.start) / this.unit;
    const { node, created, bound, ended, template } = this.intervals;
    for (const column of this.used) column.fill(0);
    this.pods.fill(0);
    this.seekNodes(at);
    const waiting = [];
    let [placed, gpus, longest] = [0, 0, -1];
    for (let pod = 0; pod < node.length; pod += 1) {
      if (bound[pod] <= at && at < ended[pod] && node[pod] >= 0) {
        placed += 1;
        this.pods[node[pod]] += 1;
        for (let k = 0; k < this.used.length; k += 1) this.used[k][node[pod]] += this.amounts[k][template[pod]];
      } else if (created[pod] <= at && at < bound[pod] && at < ended[pod]) {
        waiting.push(pod);
        gpus += this.data.templates[template[pod]].gpus || 0;
        if (longest < 0 || created[pod] < created[longest]) longest = pod;
      }
    }
    this.finish(time, { waiting, placed, gpus, longest });
  }

  // A node that is not there has nothing to offer.
  seekNodes(at) {
    const { nodeAdded, nodeRemoved } = this.intervals;
    this.present = this.nodes.count;
    if (!nodeAdded) return;
    this.present = 0;
    this.at = at;
    for (let row = 0; row < this.nodes.count; row += 1) {
      const isThere = this.isThere(row);
      this.present += Number(isThere);
      for (const [column, values] of this.offered) column[row] = isThere ? values[row] : 0;
    }
  }

  isThere(row) {
    const { nodeAdded, nodeRemoved } = this.intervals;
    return !nodeAdded || (nodeAdded[row] <= this.at && this.at < nodeRemoved[row]);
  }

  reasonOf(pod) {
    let found = this.rules.reason(this.intervals.template[pod]);
    const last = this.intervals.lastReason?.[pod];
    // Rules that are not by amounts are known from the last try of a pod that was never bound.
    if (found === OTHER_REASON && last) {
      const [rule, reason] = this.data.lastReasons[last - 1];
      found = [rule, `${reason}, when last tried`];
    }
    const key = found.join(" ");
    let number = this.numbers.get(key);
    if (number === undefined) {
      number = this.pending.reasons.push(found) - 1;
      this.numbers.set(key, number);
    }
    return number;
  }

  // Waiting pods by reason, the largest first.
  groupsOf(waiting) {
    const groups = new Map();
    for (const pod of waiting) {
      const reason = this.reasonOf(pod);
      let one = groups.get(reason);
      if (!one) groups.set(reason, one = { reason, pods: 0, gpus: 0, since: Infinity });
      one.pods += 1;
      one.gpus += this.data.templates[this.intervals.template[pod]].gpus || 0;
      one.since = Math.min(one.since, this.data.start + this.intervals.created[pod] * this.unit);
    }
    return [...groups.values()].sort((one, other) => other.pods - one.pods);
  }

  finish(time, { waiting, placed, gpus, longest }) {
    const { start } = this.data;
    this.time = time;
    this.waiting = waiting;
    this.madeRows = null;
    const since = longest < 0 ? null : start + this.intervals.created[longest] * this.unit;
    this.rules.reset();
    const groups = this.groupsOf(waiting);
    const reasons = groups.slice(0, 5).map((one) => {
      const [rule, reason] = this.pending.reasons[one.reason];
      return { rule, reason, pods: one.pods, gpus: one.gpus };
    });
    this.status = {
      healthy: true, unready: [], bound: placed, pods: placed, nodes: this.present, pending: { waiting: waiting.length }, gpusWaiting: gpus, why: reasons,
      longestWait: longest < 0 ? null : { pod: this.data.pods[longest], since }, boundPerSecond: null,
    };
    Object.assign(this.pending, { total: waiting.length, complete: true, gpusWaiting: gpus, groups });
    for (const topic of ["status", "nodes", "pending"]) this.changed(topic);
  }

  pendingRows() {
    this.madeRows ??= new Map((this.waiting || []).map((pod) => {
      const template = this.data.templates[this.intervals.template[pod]];
      return [pod, [pod, this.data.pods[pod], this.data.start + this.intervals.created[pod] * this.unit, template.queue || "", template.gpus || 0, this.reasonOf(pod)]];
    }));
    return this.madeRows;
  }

  // Of several pods with one name, one after the other, the one of this time.
  podNamed(name) {
    const at = (this.time - this.data.start) / this.unit;
    let found = this.data.pods.indexOf(name);
    for (let pod = found + 1; found >= 0 && pod < this.data.pods.length; pod += 1) {
      if (this.data.pods[pod] === name && this.intervals.created[pod] <= at) found = pod;
    }
    return found;
  }

  // What the pod screen shows of a pod in a replay.
  podAt(name) {
    const pod = this.podNamed(name);
    if (pod < 0) return { pod: name, state: "unknown", message: `pods "${name}" not found` };
    const { node, created, bound, ended, template } = this.intervals;
    const at = (this.time - this.data.start) / this.unit;
    const isRunning = bound[pod] <= at && at < ended[pod] && node[pod] >= 0;
    const state = isRunning ? "running" : at < created[pod] ? "not created yet" : at >= ended[pod] ? "ended" : "pending";
    const time = (value) => (value >= NEVER ? "not within the run" : this.timeText(this.data.start + value * this.unit));
    const wait = bound[pod] >= NEVER || !this.hasTime ? "" : ageText(bound[pod] - created[pod]);
    const requests = Object.entries(this.data.templates[template[pod]].requests).map(([key, amount]) => [key, quantityOf(key, amount)]);
    const why = state === "pending" ? this.rules.why(template[pod], this.data.names) : {};
    return {
      ...why, pod: name, at: this.time, state, node: isRunning ? this.data.names[node[pod]] : "", queue: this.data.templates[template[pod]].queue,
      more: [["Created", time(created[pod])], ["Bound", time(bound[pod])], ["Ended", time(ended[pod])], ["Waited", wait], ...requests],
    };
  }
}

function groupArrays(arrays) {
  return Object.fromEntries(Object.entries(arrays).filter(([name]) => name.startsWith("group:")));
}
