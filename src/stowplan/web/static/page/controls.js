// Panels, choices and fields.

import { element } from "../elements.js";

export function panel(title, ...children) {
  return element("section", { class: "panel" }, element("h2", {}, title), ...children);
}

export function choice(label, chosen) {
  const select = element("select", {});
  select.addEventListener("change", () => chosen(select.value));
  let offered = "";
  return {
    element: element("label", {}, label, select),
    offer(options, value) {
      const key = JSON.stringify(options);
      if (key !== offered) {
        offered = key;
        select.replaceChildren(...options.map(([name, text]) => element("option", { value: name }, text)));
      }
      if (value !== undefined) select.value = value;
    },
    choose(value) {
      select.value = value;
    },
    get value() {
      return select.value;
    },
  };
}

const PAUSE = 80;

// A search field; typed(value) is called when typing pauses. `/` moves there (keyboard.js).
export function field(label, hint, typed) {
  const input = element("input", { type: "search", placeholder: hint, spellcheck: "false", "data-filter": "" });
  let timer = 0;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => typed(input.value), PAUSE);
  });
  return {
    element: element("label", { class: "grow" }, label, input),
    input,
    show(value) {
      if (document.activeElement !== input) input.value = value;
    },
    get value() {
      return input.value;
    },
  };
}

export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return element("dl", { class: "facts" }, ...known.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

// A plain table. columns: [title, isNumber]; rows: texts and nodes.
export function plainTable(label, columns, rows) {
  const head = columns.map(([title, isNumber]) => element("th", { scope: "col", class: isNumber ? "number" : null }, title));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell, k) => element("td", { class: columns[k][1] ? "number" : columns[k][2] || null }, cell ?? ""))));
  const table = element("table", { "aria-label": label }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}

export function track(share, kind = "") {
  const fill = element("i", { class: share > 1.001 ? "over" : kind });
  fill.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return element("span", { class: "track" }, fill);
}

export function emptyText(...texts) {
  return element("p", { class: "empty" }, ...texts);
}
