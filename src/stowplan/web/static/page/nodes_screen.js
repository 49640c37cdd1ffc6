// Nodes: heat map by any resource and group, cards, histogram, the same as a table, one node.

import { element } from "../elements.js";
import { paintScale } from "../colour_scale.js";
import { choice, field, panel } from "./controls.js";
import { Histogram } from "./histogram.js";
import { NodeMap } from "./node_map.js";
import { NodePanel } from "./node_panel.js";
import { savePicture } from "./picture.js";
import { Overview, pendingCount } from "./overview.js";
import { countText, percentText, shortQuantity } from "./quantities.js";
import { barCell, linkCell, RowTable } from "./row_table.js";

const MEASURES = [["allocated", "allocated"], ["free", "free"], ["stranded", "stranded"]];
const GROUPS_MAX = 60;
const ZONE = "topology.kubernetes.io/zone";

export class NodesScreen {
  constructor(app) {
    this.app = app;
    this.title = "Nodes";
    this.overview = new Overview(app);
    this.resource = choice("Resource", (value) => app.address.set({ resource: value }));
    this.measure = choice("Show", (value) => app.address.set({ show: value }));
    this.group = choice("Group by", (value) => app.address.set({ group: value }));
    this.filter = field("Filter", "name, label=value, not ready", (value) => app.address.set({ filter: value }));
    this.scale = element("canvas", { width: "121", height: "9", "aria-hidden": "true" });
    this.map = new NodeMap("Map of nodes; arrow keys move, Enter selects; the table has the same nodes", {
      picked: (row) => app.address.set({ node: app.model.nodes.names[row] }, { isStep: true }),
    });
    this.histogram = new Histogram((bin) => app.address.set({ share: bin === null ? "" : String(bin) }));
    this.groups = panel("Groups");
    this.node = new NodePanel(app);
    this.table = this.makeTable();
    this.sort = ["", false];
    this.element = this.lay();
  }

  lay() {
    this.none = element("span", { class: "scale", hidden: "" }, element("span", { class: "key-mark none", "aria-hidden": "true" }), "none on the node");
    const scale = element("span", { class: "scale" }, this.none, "0%", this.scale, "100%");
    const picture = element("button", { type: "button", title: "Save the map as a PNG file" }, "Picture");
    picture.addEventListener("click", () => this.savePicture());
    const tools = element("div", { class: "toolbar" }, this.resource.element, this.measure.element, this.group.element, this.filter.element, picture);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const paint = () => paintScale(this.scale, 120, dark.matches);
    dark.addEventListener("change", paint);
    paint();
    this.counted = element("small", {});
    const map = panel("Map", this.map.element);
    map.classList.add("map-panel");
    map.querySelector("h2").append(this.counted, scale);
    const twin = panel("Table of nodes", this.table.element);
    const left = element("div", { class: "column" }, element("div", { class: "panel" }, tools), map, twin);
    const spread = panel("Nodes by share", this.histogram.element);
    const right = element("div", { class: "column" }, this.node.element, spread, this.groups);
    return element("section", { class: "screen", "aria-label": "Nodes" }, this.overview.element, element("div", { class: "split" }, left, right));
  }

  savePicture() {
    const { model } = this.app;
    const time = this.app.timeText(model.time);
    const { status } = model;
    const placed = status ? `${countText(status.pods)} pods on nodes, ${countText(pendingCount(status))} waiting` : "";
    savePicture(this.map.canvas, `nodes-${this.shown?.resource}-${time}`, [`${this.counted.textContent} · ${time}`, placed]);
  }

  makeTable() {
    const link = (row, before) => linkCell(this.nodes.names[row], this.app.address.link("nodes", { ...this.app.address.now.values, node: this.nodes.names[row] }), before);
    const amount = (value) => (row) => shortQuantity(this.shown.resource, this.nodes[value](this.shown.resource, row));
    const columns = [
      { title: "Node", sort: "name", cell: link },
      { title: "State", sort: "state", cell: (row) => this.nodes.state(row) },
      { title: "Share", sort: "share", cell: (row, before) => barCell(this.share(row), percentText(this.share(row)), before) },
      { title: "Requested", sort: "requested", number: true, cell: amount("requested") },
      { title: "Allocatable", sort: "allocatable", number: true, cell: amount("allocatable") },
      { title: "Pods", sort: "pods", number: true, cell: (row) => countText(this.nodes.pods(row)) },
      { title: "Group", sort: "group", cell: (row) => this.nodes.label(this.shown.group, row) },
    ];
    return new RowTable("Nodes", columns, {
      height: 340,
      keyOf: (row) => this.nodes.names[row],
      opened: (row) => this.app.address.set({ node: this.nodes.names[row] }, { isStep: true }),
      sorted: (key, isDown) => this.app.address.set({ sort: `${isDown ? "-" : ""}${key}` }),
    });
  }

  get nodes() {
    return this.app.model.nodes;
  }

  // What the address asks for, with what is there as default.
  show(values) {
    const { nodes } = this;
    const resources = nodes.resources;
    const wanted = resources.includes(values.resource) ? values.resource : resources[0] || "cpu";
    const keys = this.labelKeys;
    const group = keys.includes(values.group) ? values.group : values.group === "none" ? "" : nodes.labelKeys[0] || this.zoneKey;
    const measure = values.show === "stranded" && !nodes.hasStranded ? "allocated" : values.show || "allocated";
    this.shown = { resource: wanted, measure, group };
    this.resource.offer(resources.map((one) => [one, one]), wanted);
    this.measure.offer(nodes.hasStranded ? MEASURES : MEASURES.slice(0, 2), this.shown.measure);
    this.group.offer([["none", "nothing"], ...keys.map((key) => [key, key])], group || "none");
    this.filter.show(values.filter || "");
    const sort = values.sort || "";
    this.sort = [sort.replace(/^-/, ""), sort.startsWith("-")];
    this.table.setSort(...this.sort);
    this.bin = values.share ? Number(values.share) : null;
    this.askLabels();
    this.arrange();
    const row = nodes.rowOf(values.node);
    this.table.select(values.node || null);
    this.map.select(row);
    this.node.show(values.node || "", row);
  }

  // A finished run has its zones as labels, which are of the nodes at its end.
  get zoneKey() {
    const { cluster, replay } = this.app;
    return replay && !replay.intervals.nodeAdded && cluster.zones?.length > 1 ? ZONE : "";
  }

  get labelKeys() {
    return this.nodes.allLabelKeys(this.app.cluster?.labels);
  }

  // Labels but the zone come when a viewer groups or filters by them, for the nodes of now.
  askLabels() {
    const { nodes } = this;
    const { names } = nodes;
    if (!nodes.count) return;
    const wanted = [this.shown.group, ...labelsOf(this.filter.value, this.labelKeys)];
    for (const key of wanted.filter((one) => one && !nodes.hasLabel(one))) {
      nodes.addLabel(key, [""], new Uint8Array(nodes.count));
      this.app.asked(`labels?key=${encodeURIComponent(key)}`).then((found) => {
        // Nodes that have come or gone meanwhile: asked again with their snapshot.
        if (!found || this.nodes.names !== names || found.index.length !== names.length) return;
        nodes.addLabel(key, found.values, found.index);
        this.arrange();
      });
    }
  }

  share(row) {
    const { resource, measure } = this.shown;
    if (measure === "stranded") return this.nodes.strandedShare(row);
    const share = this.nodes.share(resource, row);
    return measure === "free" ? 1 - share : share;
  }

  // Rows by filter and group: again when the address or the set of nodes changes.
  arrange() {
    const { nodes, shown } = this;
    const test = filterOf(nodes, this.filter.value, this.labelKeys);
    this.matching = Array.from({ length: nodes.count }, (_, row) => row).filter(test);
    this.histogram.set(this.matching, (row) => this.share(row), this.bin);
    const rows = this.bin === null ? this.matching : this.matching.filter((row) => Histogram.binOf(this.share(row)) === this.bin);
    const groups = new Map();
    for (const row of rows) {
      const title = shown.group ? nodes.label(shown.group, row) || "none" : "";
      if (!groups.has(title)) groups.set(title, []);
      groups.get(title).push(row);
    }
    const sorted = [...groups].sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true }));
    this.parts = merged(sorted).map(([title, members]) => ({ title, rows: members, total: () => this.total(members) }));
    this.map.setSource({
      groups: this.parts,
      share: (row) => this.share(row),
      cards: (row) => (shown.measure === "allocated" && isGpu(shown.resource) ? nodes.cards(row) : null),
      text: (row) => this.tip(row),
    });
    this.rows = rows;
    this.order();
    this.none.hidden = rows.every((row) => Number.isFinite(this.share(row)));
    this.counted.textContent = countedText(rows.length, nodes.count, shown);
    this.showGroups();
  }

  order() {
    const [key, isDown] = this.sort;
    const by = {
      name: (row) => this.nodes.names[row], state: (row) => this.nodes.state(row), share: (row) => this.share(row),
      requested: (row) => this.nodes.requested(this.shown.resource, row), pods: (row) => this.nodes.pods(row),
      allocatable: (row) => this.nodes.allocatable(this.shown.resource, row), group: (row) => this.nodes.label(this.shown.group, row),
    }[key];
    this.sorted = by ? sortedRows(this.rows, by, isDown) : this.rows;
    this.table.setRows(this.sorted.length, (k) => this.sorted[k] ?? null);
  }

  total(rows) {
    const { resource } = this.shown;
    let [used, offered] = [0, 0];
    for (const row of rows) {
      used += this.nodes.requested(resource, row) || 0;
      offered += this.nodes.allocatable(resource, row) || 0;
    }
    const share = offered ? ` · ${percentText(used / offered)} of ${shortQuantity(resource, offered)} ${resource} allocated` : "";
    return `${countText(rows.length)} ${rows.length === 1 ? "node" : "nodes"}${share}`;
  }

  tip(row) {
    const { nodes, shown } = this;
    const [used, offered] = [nodes.requested(shown.resource, row), nodes.allocatable(shown.resource, row)];
    const lines = [`${shown.resource}: ${shortQuantity(shown.resource, used)} of ${shortQuantity(shown.resource, offered)} requested, ${percentText(nodes.share(shown.resource, row))}`];
    lines.push(`${countText(nodes.pods(row))} pods · ${nodes.state(row)}`);
    if (shown.group) lines.push(`${shown.group}: ${nodes.label(shown.group, row)}`);
    return [nodes.names[row], lines];
  }

  showGroups() {
    const { resource, group } = this.shown;
    this.groups.hidden = !group;
    const meters = this.parts.slice(0, GROUPS_MAX).map((part) => {
      let [used, offered] = [0, 0];
      for (const row of part.rows) {
        used += this.nodes.requested(resource, row) || 0;
        offered += this.nodes.allocatable(resource, row) || 0;
      }
      const fill = element("i", { class: used > offered * 1.001 ? "over" : null });
      fill.style.width = `${offered ? Math.min(100, (used / offered) * 100) : 0}%`;
      const name = element("a", { href: this.app.address.link("nodes", { ...this.app.address.now.values, filter: `${group}=${part.title}` }), title: part.title }, part.title);
      return element("div", { class: "meter" }, name, element("span", { class: "track" }, fill), element("span", {}, offered ? percentText(used / offered) : ""));
    });
    this.groups.replaceChildren(element("h2", {}, `By ${group}`, element("small", {}, `${resource} allocated`)), ...meters);
  }

  // New figures of the same nodes.
  update(changed) {
    if (changed.has("nodes") && this.shown && this.sameNodes !== this.nodes.names) {
      this.sameNodes = this.nodes.names;
      this.show(this.app.address.now.values);
    } else if (changed.has("nodes") && this.shown) {
      this.map.update();
      this.table.draw();
      this.every(1000, () => {
        this.histogram.set(this.matching, (row) => this.share(row), this.bin);
        this.showGroups();
        if (["share", "requested", "pods"].includes(this.sort[0])) this.order();
      });
    }
    this.overview.update(changed);
    this.node.update(changed);
  }

  // Slower parts: at most that often.
  every(milliseconds, work) {
    const now = performance.now();
    if (now - (this.worked || 0) < milliseconds) return;
    this.worked = now;
    work();
  }
}

function isGpu(resource) {
  return /gpu/.test(resource);
}

function countedText(shown, all, { resource, measure }) {
  const count = shown === all ? `${countText(all)} nodes` : `${countText(shown)} of ${countText(all)} nodes`;
  return `${count} · ${resource} ${measure}`;
}

// Small groups beyond the first are one, so that a label with a value per node stays readable.
function merged(groups) {
  if (groups.length <= GROUPS_MAX) return groups;
  const rest = groups.slice(GROUPS_MAX - 1).flatMap(([, rows]) => rows);
  return [...groups.slice(0, GROUPS_MAX - 1), [`${groups.length - GROUPS_MAX + 1} more`, rest]];
}

function sortedRows(rows, by, isDown) {
  const keys = new Map(rows.map((row) => [row, by(row)]));
  const collator = new Intl.Collator("en", { numeric: true });
  const compare = (one, other) => {
    const [first, second] = [keys.get(one), keys.get(other)];
    if (typeof first === "string") return collator.compare(first, second);
    return (Number.isNaN(first) ? -1 : first) - (Number.isNaN(second) ? -1 : second);
  };
  const found = [...rows].sort(compare);
  return isDown ? found.reverse() : found;
}

// Keys of labels that a filter names.
function labelsOf(text, keys) {
  const named = text.toLowerCase().split(/\s+/).filter((word) => word.includes("=")).map((word) => word.split("=", 1)[0]);
  return keys.filter((key) => named.includes(key.toLowerCase()));
}

// Words that all have to match: part of a name, label=value, or a state.
export function filterOf(nodes, text, keys) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return () => true;
  const tests = words.map((word) => {
    const [key, value] = word.split(/=(.*)/s);
    const label = value === undefined ? undefined : keys.find((one) => one.toLowerCase() === key);
    if (label !== undefined) return (row) => nodes.label(label, row).toLowerCase() === value;
    return (row) => nodes.names[row].toLowerCase().includes(word) || nodes.state(row).toLowerCase().includes(word);
  });
  return (row) => tests.every((test) => test(row));
}
