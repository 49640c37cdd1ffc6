// Keys of every screen. Single letters act only outside of fields.

import { element } from "../elements.js";
import { SCREENS } from "./address.js";

const KEYS = [
  ["1 to 7", "open a screen"], ["/", "filter"], ["t", "to the table"], ["m", "to the map"], ["Space", "pause or play"],
  [", and .", "step back and forward in a replay"], ["arrows, Page, Home, End", "move in a table or map; j and k too"],
  ["Enter", "open the row or the node"], ["Esc", "close what is open, or back"], ["?", "these keys"],
];

export class Keyboard {
  constructor(app) {
    this.app = app;
    const rows = KEYS.flatMap(([keys, text]) => [element("dt", {}, element("span", { class: "key" }, keys)), element("dd", {}, text)]);
    const close = element("button", { type: "button", class: "main" }, "Close");
    this.dialog = element("dialog", { "aria-labelledby": "keys-title" }, element("h2", { id: "keys-title" }, "Keys"), element("dl", { class: "facts" }, ...rows), close);
    close.addEventListener("click", () => this.dialog.close());
    document.body.append(this.dialog);
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  show() {
    if (!this.dialog.open) this.dialog.showModal();
  }

  pressed(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || this.dialog.open) return;
    const isTyping = event.target.closest("input:not([type=range]):not([type=checkbox]), textarea, select");
    if (event.key === "Escape") {
      if (isTyping) event.target.blur();
      else this.app.leave();
      return;
    }
    if (isTyping) return;
    if (event.key === " " && event.target.closest("button, summary, a, input")) return;
    const done = this.act(event.key);
    if (done) event.preventDefault();
  }

  act(key) {
    const { app } = this;
    const screen = SCREENS[Number(key) - 1];
    if (screen) app.address.go(screen[0], {});
    else if (key === "?") this.show();
    else if (key === "/") app.focus("input[data-filter]");
    else if (key === "t") app.focus(".rows table[data-main]");
    else if (key === "m") app.focus(".map canvas");
    else if (key === " ") app.timeBar?.toggle();
    else if (key === "," || key === ".") app.timeBar?.step(key === "," ? -1 : 1);
    else return false;
    return true;
  }
}
