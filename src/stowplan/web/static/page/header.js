// The header: screens with counts, and the state of the scheduler and of the data.

import { element } from "../elements.js";
import { SCREENS } from "./address.js";
import { pendingCount } from "./overview.js";
import { ageText, countText } from "./quantities.js";

// Characters of the leader's identity; the whole one is its title.
const HOLDER_MAX = 24;
const OF_LIVE = new Set(["Leader", "Caches", "Data"]);

export class Header {
  constructor(app) {
    this.app = app;
    this.links = new Map(SCREENS.map(([name, title]) => {
      const badge = element("span", { class: "badge", hidden: "" });
      return [name, { badge, link: element("a", { href: `#/${name}` }, title, badge) }];
    }));
    document.getElementById("screens").append(...[...this.links.values()].map((one) => one.link));
    this.state = element("strong", { class: "state", "data-state": "connecting", role: "status" }, "connecting");
    this.facts = new Map();
    this.place = document.getElementById("status");
    this.place.append(this.state);
    for (const [name, isWide] of [["Leader", true], ["Caches", true], ["Bound"], ["Pending", true], ["Nodes", true], ["Data", true]]) {
      const text = element("span", {});
      this.facts.set(name, text);
      const fact = element("span", { class: `fact${isWide ? " wide" : ""}${OF_LIVE.has(name) ? " of-live" : ""}` }, element("span", {}, name));
      text.className = "value";
      fact.append(text);
      this.place.append(fact);
    }
    const help = element("button", { type: "button", class: "help", "aria-label": "Keys" }, "?");
    help.addEventListener("click", () => app.showKeys());
    document.getElementById("time").after(help);
    setInterval(() => this.tick(), 250);
  }

  show({ screen }) {
    for (const [name, { link }] of this.links) {
      const isHere = name === screen || (name === "pending" && screen === "pod");
      if (isHere) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      link.setAttribute("href", this.app.address.link(name));
    }
    this.reveal();
  }

  // On a narrow screen the row of links scrolls.
  reveal() {
    const row = document.getElementById("screens");
    const link = row.querySelector("[aria-current]");
    if (link) row.scrollLeft = link.offsetLeft - row.offsetLeft - 60;
  }

  set(name, text, kind = "") {
    const place = this.facts.get(name);
    if (place.textContent !== text) place.textContent = text;
    place.className = `value ${kind}`;
  }

  tick() {
    const { app } = this;
    const { state, text } = app.freshness();
    this.state.dataset.state = state;
    if (this.state.textContent !== text) this.state.textContent = text;
    this.place.classList.toggle("replay", app.source === "simulation");
    this.set("Data", app.model.time ? app.timeText(app.model.time) : "none yet");
  }

  update(changed) {
    if (!changed.has("status")) return;
    const { status, time } = this.app.model;
    const since = status.leaderSince ? ` for ${ageText((time - status.leaderSince) / 1000)}` : "";
    const leads = status.leads === false ? "not this process" : "this process";
    const holder = status.holder || leads;
    this.set("Leader", `${holder.length > HOLDER_MAX ? `${holder.slice(0, HOLDER_MAX)}…` : holder}${since}`, status.leads === false ? "warn" : "");
    this.facts.get("Leader").title = holder;
    this.set("Caches", status.synced === false ? "not synced" : "synced", status.synced === false ? "bad" : "");
    this.set("Bound", status.boundPerSecond === null || status.boundPerSecond === undefined ? countText(status.bound) : `${status.boundPerSecond.toFixed(1)}/s`);
    const pending = pendingCount(status);
    this.set("Pending", countText(pending), pending ? "warn" : "");
    this.set("Nodes", countText(status.nodes));
    const { badge } = this.links.get("pending");
    const was = badge.textContent.length;
    badge.hidden = !pending;
    badge.textContent = pending ? countText(pending) : "";
    if (badge.textContent.length !== was) this.reveal();
  }
}
