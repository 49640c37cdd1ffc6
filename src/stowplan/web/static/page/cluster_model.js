// What the page knows of the cluster, by topic, from frames of the live connection.

import { NodeColumns } from "./node_columns.js";

const DECISIONS_MAX = 2000;
const RATES_MAX = 180;

export class ClusterModel {
  constructor(changed) {
    this.changed = changed;
    this.nodes = new NodeColumns();
    this.status = null;
    this.queues = null;
    this.pending = { total: 0, complete: true, gpusWaiting: 0, reasons: [], columns: [], rows: new Map(), groups: [] };
    this.decisions = [];
    this.skipped = 0;
    this.rates = [];
    this.arrived = new Set();
    this.time = 0;
    this.epoch = 0;
    this.hasTime = true;
  }

  // How long ago, in seconds; not a number where there are no times.
  since(time) {
    return this.hasTime && time !== null && time !== undefined ? (this.time - time) / 1000 : Number.NaN;
  }

  take(frame) {
    this.time = frame.time;
    this.epoch = frame.epoch;
    const taken = { status: "takeStatus", nodes: "takeNodes", pending: "takePending", queues: "takeQueues", decisions: "takeDecisions" };
    this[taken[frame.topic]]?.(frame);
    this.arrived.add(frame.topic);
    this.changed(frame.topic);
  }

  takeNodes({ isSnapshot, data, arrays }) {
    if (isSnapshot) this.nodes.replace(data, arrays);
    else this.nodes.change(arrays);
  }

  takeStatus({ data, time }) {
    this.status = data;
    this.rates.push([time, data.boundPerSecond || 0]);
    if (this.rates.length > RATES_MAX) this.rates.shift();
  }

  takePending({ isSnapshot, data }) {
    const { pending } = this;
    if (isSnapshot) {
      Object.assign(pending, { reasons: data.reasons, columns: data.columns, rows: new Map(), groups: [] });
      pending.places = new Map(data.columns.map((name, place) => [name, place]));
    } else if (data.newReasons) pending.reasons = [...pending.reasons, ...data.newReasons];
    for (const name of ["total", "complete", "gpusWaiting", "groups"]) {
      if (data[name] !== undefined) pending[name] = data[name];
    }
    if (!pending.complete) pending.rows.clear();
    for (const id of data.removed || []) pending.rows.delete(id);
    const id = pending.places?.get("id") ?? 0;
    for (const row of data.rows || []) pending.rows.set(row[id], row);
  }

  takeQueues({ data }) {
    this.queues = data;
  }

  takeDecisions({ isSnapshot, data }) {
    const known = isSnapshot ? [] : this.decisions;
    this.skipped += data.skipped || 0;
    this.decisions = [...known, ...(data.decisions || [])].slice(-DECISIONS_MAX);
  }

  // A value of a pending pod by the column's name.
  pendingValue(row, name) {
    const place = this.pending.places?.get(name);
    return place === undefined ? null : row[place];
  }

  reasonText(number) {
    const [rule, reason] = this.pending.reasons[number] || ["", ""];
    return { rule: rule || "", reason: reason || "" };
  }
}
