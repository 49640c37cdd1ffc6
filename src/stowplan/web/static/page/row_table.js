// A table of any length with only its visible rows in the document, by mouse and keyboard.

import { element } from "../elements.js";

const ROW = 25;
const EXTRA = 1;

// columns: {key, title, number, wrap, cell(row) -> text or node}. A column that sorts has `sort` (its
// key). sorted(key, isDown), opened(row), moved(row): callbacks, each optional.
export class RowTable {
  constructor(label, columns, { height = 420, sorted, opened, moved, keyOf, isMain = true } = {}) {
    Object.assign(this, { columns, sorted, opened, moved, keyOf: keyOf || ((row) => row) });
    this.id = `rows-${label.toLowerCase().replace(/[^a-z]+/g, "-")}`;
    this.count = 0;
    this.rowAt = () => null;
    this.active = 0;
    this.sort = { key: "", isDown: false };
    this.selected = null;
    this.lines = [];
    this.body = element("tbody", {});
    this.headers = columns.map((column) => this.header(column));
    const head = element("thead", {}, element("tr", {}, ...this.headers));
    this.table = element("table", { role: "grid", tabindex: "0", "aria-label": label, "data-main": isMain ? "" : null }, head, this.body);
    this.sized = element("div", { class: "sized" }, this.table);
    this.element = element("div", { class: "rows" }, this.sized);
    this.element.style.maxHeight = `${height}px`;
    this.height = height;
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.pressed(event));
  }

  header(column) {
    const header = element("th", { scope: "col", class: column.number ? "number" : null });
    if (!column.sort) {
      header.append(column.title);
      return header;
    }
    const button = element("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      const isDown = this.sort.key === column.sort ? !this.sort.isDown : Boolean(column.number);
      this.sorted(column.sort, isDown);
    });
    header.append(button);
    return header;
  }

  setSort(key, isDown) {
    this.sort = { key, isDown };
    this.columns.forEach((column, place) => {
      const order = column.sort && column.sort === key ? (isDown ? "descending" : "ascending") : null;
      if (order) this.headers[place].setAttribute("aria-sort", order);
      else this.headers[place].removeAttribute("aria-sort");
    });
  }

  // count rows; rowAt(k) gives the k-th, or null where it has not arrived.
  setRows(count, rowAt) {
    this.rowAt = rowAt;
    if (count !== this.count) {
      this.count = count;
      this.table.setAttribute("aria-rowcount", String(count + 1));
      this.sized.style.height = `${(count + 1) * ROW + 2}px`;
    }
    this.active = Math.max(0, Math.min(this.active, count - 1));
    this.draw();
  }

  select(key) {
    this.selected = key;
    this.draw();
  }

  get first() {
    return Math.max(0, Math.min(Math.floor(this.element.scrollTop / ROW), this.count - this.fitting));
  }

  get fitting() {
    return Math.max(1, Math.floor(this.height / ROW) - 1);
  }

  draw() {
    const first = this.first;
    const shown = Math.min(this.count - first, this.fitting + EXTRA);
    while (this.lines.length < shown) this.lines.push(this.line());
    while (this.lines.length > Math.max(0, shown)) this.lines.pop().node.remove();
    this.lines.forEach((line, k) => this.fill(line, first + k));
    const isActive = this.active >= first && this.active < first + this.lines.length;
    if (isActive) this.table.setAttribute("aria-activedescendant", `${this.id}-${this.active}`);
    else this.table.removeAttribute("aria-activedescendant");
  }

  line() {
    const cells = this.columns.map((column) => element("td", { class: column.number ? "number" : null }));
    const node = element("tr", { class: this.opened ? "clickable" : null }, ...cells);
    const line = { node, cells, place: -1, contents: cells.map(() => null) };
    node.addEventListener("click", (event) => {
      if (event.target.closest("a, button") || String(getSelection())) return;
      this.active = line.place;
      this.open();
    });
    this.body.append(node);
    return line;
  }

  fill(line, place) {
    const row = this.rowAt(place);
    line.node.classList.toggle("active", place === this.active);
    const isSelected = row !== null && this.selected !== null && this.keyOf(row) === this.selected;
    line.node.setAttribute("aria-selected", String(isSelected));
    if (line.place !== place) {
      line.place = place;
      line.node.id = `${this.id}-${place}`;
      line.node.setAttribute("aria-rowindex", String(place + 2));
    }
    this.columns.forEach((column, k) => {
      const content = row === null ? "" : column.cell(row, line.contents[k]);
      if (content === line.contents[k]) return;
      line.contents[k] = content;
      const text = typeof content === "number" ? String(content) : content ?? "";
      line.cells[k].replaceChildren(text);
      line.cells[k].title = typeof text === "string" && text.length > 40 ? text : "";
    });
  }

  pressed(event) {
    const page = this.fitting;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count, j: 1, k: -1 };
    if (event.key === "Enter" && event.target === this.table) {
      event.preventDefault();
      this.open();
    }
    if (!(event.key in steps) || event.target.closest("input, select") || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.active = Math.max(0, Math.min(this.count - 1, this.active + steps[event.key]));
    this.reveal();
    const row = this.rowAt(this.active);
    if (row !== null && this.moved) this.moved(row);
  }

  reveal() {
    const last = this.first + this.fitting - 1;
    if (this.active < this.first) this.element.scrollTop = this.active * ROW;
    else if (this.active > last) this.element.scrollTop = (this.active - this.fitting + 1) * ROW;
    this.draw();
  }

  open() {
    const row = this.count ? this.rowAt(this.active) : null;
    this.draw();
    if (row !== null && this.opened) this.opened(row);
  }
}

// A link as the content of a cell; the same node while nothing changed.
export function linkCell(text, address, before) {
  if (before && before.nodeName === "A" && before.textContent === text && before.getAttribute("href") === address) return before;
  return element("a", { href: address, tabindex: "-1" }, text);
}

// A bar with its text.
export function barCell(share, text, before) {
  if (before && before.nodeName === "SPAN" && before.dataset.text === text) return before;
  const fill = element("i", { class: share > 1.001 ? "over" : null });
  fill.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return element("span", { class: "with", "data-text": text }, element("span", { class: "track" }, fill), text);
}
