// The nodes: names, amounts by resource, flags, labels and cards, a column each.

const CORDONED = 1;
const NOT_READY = 2;
const TAINTED = 4;
const FIRST = ["cpu", "memory", "nvidia.com/gpu"];
const ZONE = "topology.kubernetes.io/zone";
const CHANGING = /^(requested|allocatable):|^(flags|stranded)$/;

export class NodeColumns {
  constructor() {
    this.replace({ names: [], resources: [], groups: {} }, {});
  }

  // Everything, from a snapshot.
  replace(data, arrays) {
    this.names = data.names;
    this.count = data.names.length;
    this.units = new Map(data.resources.map((one) => [one.name, one.unit]));
    const names = [...this.units.keys()];
    this.resources = [...FIRST.filter((one) => names.includes(one)), ...names.filter((one) => !FIRST.includes(one))];
    this.groups = data.groups || {};
    const keys = Object.keys(this.groups).sort();
    this.labelKeys = [...keys.filter((key) => key === ZONE), ...keys.filter((key) => key !== ZONE)];
    this.columns = new Map();
    for (const [name, values] of Object.entries(arrays)) {
      // Later values may need a wider type.
      this.columns.set(name, CHANGING.test(name) || name === "cardUsed" ? Float64Array.from(values) : values);
    }
    const column = (name) => this.columns.get(name) || null;
    // A look-up per value is most of the time of a large map: by resource, not by name of the array.
    this.amounts = new Map(this.resources.map((name) => [name, { requested: column(`requested:${name}`), allocatable: column(`allocatable:${name}`) }]));
    this.flags = column("flags");
    const cards = column("cards");
    this.firstCard = new Uint32Array(this.count + 1);
    if (cards) cards.forEach((count, row) => { this.firstCard[row + 1] = this.firstCard[row] + count; });
    this.rows = null;
  }

  // New values of some rows.
  change(arrays) {
    const { rows } = arrays;
    for (const [name, values] of Object.entries(arrays)) {
      const column = this.columns.get(name);
      if (!column) continue;
      if (name === "cardUsed") column.set(values);
      else if (CHANGING.test(name) && rows) rows.forEach((row, k) => { column[row] = values[k]; });
    }
  }

  rowOf(name) {
    if (!name) return null;
    this.rows ??= new Map(this.names.map((one, row) => [one, row]));
    return this.rows.get(name) ?? null;
  }

  requested(resource, row) {
    return this.amounts.get(resource)?.requested?.[row] ?? Number.NaN;
  }

  allocatable(resource, row) {
    return this.amounts.get(resource)?.allocatable?.[row] ?? Number.NaN;
  }

  // Requested by allocatable; NaN for a node without the resource.
  share(resource, row) {
    const amounts = this.amounts.get(resource);
    const offered = amounts?.allocatable ? amounts.allocatable[row] : 0;
    return offered > 0 && amounts.requested ? amounts.requested[row] / offered : Number.NaN;
  }

  pods(row) {
    return this.requested("pods", row);
  }

  get hasStranded() {
    return this.columns.has("stranded");
  }

  // Part of the cards that is idle and of no use to expected pods.
  strandedShare(row) {
    const stranded = this.columns.get("stranded");
    const cards = this.columns.get("cards")?.[row] || 0;
    return stranded && cards ? stranded[row] / (cards * 1000) : Number.NaN;
  }

  // Shares of the cards in use; null for a node without.
  cards(row) {
    const used = this.columns.get("cardUsed");
    if (!used || this.firstCard[row] === this.firstCard[row + 1]) return null;
    return Array.from(used.subarray(this.firstCard[row], this.firstCard[row + 1]), (part) => part / 1000);
  }

  flag(row) {
    return this.flags ? this.flags[row] : 0;
  }

  // As `kubectl get nodes` prints it.
  state(row) {
    const flags = this.flag(row);
    const parts = [flags & NOT_READY ? "NotReady" : "Ready"];
    if (flags & CORDONED) parts.push("SchedulingDisabled");
    if (flags & TAINTED) parts.push("Tainted");
    return parts.join(",");
  }

  addLabel(key, values, index) {
    this.groups[key] = values;
    this.columns.set(`group:${key}`, index);
  }

  hasLabel(key) {
    return this.columns.has(`group:${key}`);
  }

  // Keys of labels by which nodes can be grouped, the zone first; others: those of the cluster.
  allLabelKeys(others = []) {
    return [...this.labelKeys, ...others.filter((key) => !this.labelKeys.includes(key))];
  }

  label(key, row) {
    const index = this.columns.get(`group:${key}`);
    return index ? this.groups[key][index[row]] ?? "" : "";
  }

  // Requested and allocatable amounts of all nodes.
  totals(resource) {
    const { requested, allocatable } = this.amounts.get(resource) || {};
    const sum = (column) => (column ? column.reduce((total, value) => total + value, 0) : 0);
    return { used: sum(requested), offered: sum(allocatable) };
  }
}
