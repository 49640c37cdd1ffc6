// Nodes as cells on a canvas, in groups. The table beside it has the same nodes for those who do not see it.

import { colourOf } from "../colour_scale.js";
import { element } from "../elements.js";

const LEVELS = 64;
const HEAD = 18;
const GAP = 10;
const HEADS_EVERY = 1000;
const CELL_MAX = 26;
const CELL_MIN = 2;
const CARDS_FROM = 11;
const NOTHING = -1;
const UNDRAWN = -2;
const KINDS_FROM = 1000;
const KINDS = ["--absent", "--c0", "--c1", "--c3"];

// source: {groups: [{title, rows}], share(row) 0..1 or NaN, cards(row) -> shares or null,
// text(row) -> [head, lines], kind(row) -> 1 comes, 2 goes, 3 both}. picked(row), pointed(row): callbacks.
export class NodeMap {
  constructor(label, { picked, pointed } = {}) {
    Object.assign(this, { picked, pointed });
    this.canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": label });
    this.selection = element("div", { class: "box", hidden: "" });
    this.cursor = element("div", { class: "box cursor", hidden: "" });
    this.tip = element("div", { class: "tip", hidden: "" });
    this.element = element("div", { class: "map" }, this.canvas, this.selection, this.cursor, this.tip);
    this.source = { groups: [], share: () => Number.NaN, cards: () => null, text: () => ["", []] };
    this.x = this.y = this.drawn = new Float32Array(0);
    this.order = [];
    this.blocks = [];
    this.at = -1;
    this.selected = null;
    this.heightMax = Math.max(220, Math.min(560, innerHeight * 0.4));
    this.drawnCards = new Map();
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", () => this.lay());
    new ResizeObserver(() => {
      if (Math.abs(this.element.clientWidth - (this.width || 0)) > 1) this.lay();
    }).observe(this.element);
    this.canvas.addEventListener("pointermove", (event) => this.point(this.under(event)));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("blur", () => this.leave());
    this.canvas.addEventListener("click", (event) => this.pick(this.under(event)));
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
  }

  setSource(source) {
    this.source = source;
    this.lay();
  }

  // Sizes of cells and places of groups, then a whole drawing.
  lay() {
    this.width = this.element.clientWidth;
    if (!this.width) return;
    const groups = this.source.groups.filter((group) => group.rows.length);
    this.cell = fittingCell(groups, this.width, this.heightMax);
    const across = Math.max(1, Math.floor(this.width / this.cell));
    this.across = across;
    this.order = groups.flatMap((group) => group.rows);
    const rows = this.order.reduce((most, row) => Math.max(most, row + 1), 0);
    // By row; what is not on the map is left of it.
    this.x = new Float32Array(rows).fill(-1);
    this.y = new Float32Array(rows);
    this.drawn = new Int16Array(rows);
    this.heads = [];
    this.blocks = [];
    let top = 0;
    let start = 0;
    for (const group of groups) {
      if (group.title) this.heads.push([group, top]);
      top += group.title ? HEAD : 0;
      this.blocks.push({ top, start, count: group.rows.length });
      group.rows.forEach((row, k) => {
        this.x[row] = (k % across) * this.cell;
        this.y[row] = top + Math.floor(k / across) * this.cell;
      });
      start += group.rows.length;
      top += Math.ceil(group.rows.length / across) * this.cell + (group.title ? GAP : 0);
    }
    this.ratio = window.devicePixelRatio || 1;
    this.height = Math.max(40, top);
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.canvas.style.height = `${this.height}px`;
    this.whole();
  }

  whole() {
    const style = getComputedStyle(this.element);
    this.colours = Array.from({ length: LEVELS + 2 }, (_, k) => {
      const share = k > LEVELS ? 2 : k / LEVELS;
      return `rgb(${colourOf(share, this.scheme.matches).join(",")})`;
    });
    this.absent = style.getPropertyValue("--absent");
    this.kinds = KINDS.map((name) => style.getPropertyValue(name));
    this.drawn.fill(UNDRAWN);
    this.drawnCards.clear();
    const context = this.canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.headTexts = [];
    this.update();
  }

  // Only cells whose colour has changed are drawn.
  update() {
    if (!this.width) return;
    const context = this.canvas.getContext("2d");
    const { source, cell, drawn } = this;
    const hasCards = cell >= CARDS_FROM && this.order.some((row) => source.cards(row));
    const size = cell - gapOf(cell, hasCards);
    for (const row of this.order) {
      const cards = hasCards ? source.cards(row) : null;
      if (cards && cards.length > 1) {
        this.drawCards(context, row, cards, size);
        continue;
      }
      const kind = source.kind ? source.kind(row) : 0;
      const level = kind ? KINDS_FROM + kind : levelOf(source.share(row));
      if (drawn[row] === level) continue;
      drawn[row] = level;
      context.fillStyle = kind ? this.kinds[kind] : level === NOTHING ? this.absent : this.colours[level];
      context.fillRect(this.x[row], this.y[row], size, size);
    }
    this.drawHeads(context);
    this.mark(this.selection, this.selected);
    if (this.at >= 0) this.showTip(this.order[this.at]);
  }

  drawCards(context, row, cards, size) {
    const levels = cards.map(levelOf);
    const key = levels.join();
    if (this.drawnCards.get(row) === key) return;
    this.drawnCards.set(row, key);
    const [x, y] = [this.x[row], this.y[row]];
    const across = Math.ceil(Math.sqrt(levels.length));
    const down = Math.ceil(levels.length / across);
    context.clearRect(x, y, size, size);
    levels.forEach((level, k) => {
      const [left, top] = [Math.round(((k % across) * (size + 1)) / across), Math.round((Math.floor(k / across) * (size + 1)) / down)];
      const right = Math.round((((k % across) + 1) * (size + 1)) / across) - 1;
      const bottom = Math.round(((Math.floor(k / across) + 1) * (size + 1)) / down) - 1;
      context.fillStyle = level === NOTHING ? this.absent : this.colours[level];
      context.fillRect(x + left, y + top, right - left, bottom - top);
    });
  }

  // Totals of groups read every node: now and then.
  drawHeads(context) {
    const now = performance.now();
    if (this.headTexts.length && now - this.headsAt < HEADS_EVERY) return;
    this.headsAt = now;
    const style = getComputedStyle(this.element);
    this.heads.forEach(([group, top], k) => {
      const total = group.total ? group.total() : "";
      const text = `${group.title}   ${total}`;
      if (this.headTexts[k] === text) return;
      this.headTexts[k] = text;
      context.clearRect(0, top, this.width, HEAD - 1);
      context.textBaseline = "middle";
      context.fillStyle = style.color;
      context.font = `600 12px ${style.fontFamily}`;
      context.fillText(group.title, 0, top + HEAD / 2 - 1);
      const width = context.measureText(group.title).width;
      context.fillStyle = style.getPropertyValue("--soft");
      context.font = `12px ${style.fontFamily}`;
      context.fillText(total, width + 10, top + HEAD / 2 - 1);
    });
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const block = this.blocks.findLast((one) => y >= one.top);
    const column = Math.floor(x / this.cell);
    if (!block || column < 0 || column >= this.across) return -1;
    const k = Math.floor((y - block.top) / this.cell) * this.across + column;
    return k < block.count ? block.start + k : -1;
  }

  point(at) {
    this.at = at;
    const row = at < 0 ? null : this.order[at];
    this.mark(this.cursor, row);
    if (row === null) this.tip.hidden = true;
    else this.showTip(row);
    if (this.pointed) this.pointed(row);
  }

  leave() {
    this.point(-1);
  }

  showTip(row) {
    const [head, lines] = this.source.text(row);
    const key = `${head}\n${lines.join("\n")}`;
    if (key !== this.tipText) {
      this.tipText = key;
      this.tip.replaceChildren(element("strong", {}, head), ...lines.map((line) => element("div", {}, line)));
    }
    this.tip.hidden = false;
    const [x, y] = [this.x[row], this.y[row]];
    const { offsetWidth: wide, offsetHeight: high } = this.tip;
    this.tip.style.left = `${Math.max(0, Math.min(x + this.cell + 8, this.width - wide))}px`;
    this.tip.style.top = `${y > high + 8 ? y - high - 6 : y + this.cell + 6}px`;
  }

  mark(box, row) {
    const isThere = row !== null && this.x[row] >= 0;
    box.hidden = !isThere;
    if (!isThere) return;
    const size = Math.max(this.cell, 7);
    box.style.transform = `translate(${this.x[row] - 2}px, ${this.y[row] - 2}px)`;
    box.style.width = box.style.height = `${size + 3}px`;
  }

  select(row) {
    this.selected = row;
    this.mark(this.selection, row);
  }

  pick(at) {
    if (at >= 0 && this.picked) this.picked(this.order[at]);
  }

  pressed(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.across, ArrowDown: this.across, Home: -this.order.length, End: this.order.length };
    if (event.key === "Enter") this.pick(this.at);
    if (!(event.key in steps) || !this.order.length) return;
    event.preventDefault();
    const isFirst = this.at < 0 && event.key.startsWith("Arrow");
    const from = this.at < 0 ? Math.max(0, this.order.indexOf(this.selected)) : this.at;
    this.point(Math.max(0, Math.min(this.order.length - 1, from + (isFirst ? 0 : steps[event.key]))));
  }
}

// Between nodes; cards of a node are a pixel apart.
function gapOf(cell, hasCards) {
  if (hasCards) return cell >= 18 ? 4 : 3;
  return cell >= 6 ? 1 : 0;
}

function levelOf(share) {
  if (Number.isNaN(share)) return NOTHING;
  return share > 1.001 ? LEVELS + 1 : Math.round(Math.max(0, Math.min(1, share)) * LEVELS);
}

// The largest cell with which all groups fit into the height.
function fittingCell(groups, width, heightMax) {
  for (let cell = CELL_MAX; cell > CELL_MIN; cell -= 1) {
    const across = Math.max(1, Math.floor(width / cell));
    let height = 0;
    for (const group of groups) {
      height += (group.title ? HEAD + GAP : 0) + Math.ceil(group.rows.length / across) * cell;
    }
    if (height <= heightMax) return cell;
  }
  return CELL_MIN;
}
