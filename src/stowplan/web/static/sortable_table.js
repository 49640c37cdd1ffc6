// Tables whose headers sort them, by mouse and keyboard; long ones have a filter.

import { element } from "./elements.js";

const FILTER_FROM = 15;

export function makeSortable(table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    const button = element("button", { type: "button" }, ...header.childNodes);
    header.replaceChildren(button);
    button.addEventListener("click", () => {
      const isUp = header.getAttribute("aria-sort") !== "ascending";
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", isUp ? "ascending" : "descending");
      const sorted = [...rows].sort((one, other) => compared(one.cells[column], other.cells[column]));
      body.replaceChildren(...(isUp ? sorted : sorted.reverse()));
    });
  });
  if (rows.length >= FILTER_FROM) addFilter(table, rows);
}

function compared(one, other) {
  const [first, second] = [one.dataset.value, other.dataset.value];
  if (first !== undefined && second !== undefined) return Number(first) - Number(second);
  if (first !== undefined) return 1;
  if (second !== undefined) return -1;
  return one.textContent.localeCompare(other.textContent, undefined, { numeric: true });
}

function addFilter(table, rows) {
  const input = element("input", { type: "search" });
  const count = element("span", { class: "count", "aria-live": "polite" });
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
  const label = element("label", { class: "filter" }, "Filter ", input, count);
  table.parentElement.before(label);
}
