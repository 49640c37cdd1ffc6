// The address keeps screen, selection, filter and time: `#/nodes?resource=cpu&node=n1&at=12`.

export const SCREENS = [
  ["nodes", "Nodes"], ["pending", "Pending"], ["queues", "Queues and gangs"], ["decisions", "Decisions"],
  ["preemptions", "Preemptions"], ["what-if", "What-if"], ["experiments", "Experiments"],
];
const KNOWN = new Set([...SCREENS.map(([name]) => name), "pod"]);

export function readAddress(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const screen = KNOWN.has(path) ? path : SCREENS[0][0];
  return { screen, values: Object.fromEntries(new URLSearchParams(query || "")) };
}

export function addressOf(screen, values) {
  const kept = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(kept).toString();
  return `#/${screen}${query ? `?${query}` : ""}`;
}

// Where the page is. changed(now) is called after each step, Back and Forward too.
export class Address {
  constructor(changed) {
    this.changed = changed;
    this.now = readAddress(location.hash);
    addEventListener("popstate", () => this.moved());
    addEventListener("hashchange", () => this.moved());
  }

  // Values of this screen; those that are given as "" are left out.
  set(values, { isStep = false } = {}) {
    this.go(this.now.screen, { ...this.now.values, ...values }, isStep);
  }

  go(screen, values, isStep = true) {
    const at = values.at === undefined ? { at: this.now.values.at } : {};
    const next = addressOf(screen, { ...values, ...at });
    if (next !== location.hash) history[isStep ? "pushState" : "replaceState"](null, "", next);
    this.moved();
  }

  // A link to a screen at the same time.
  link(screen, values = {}) {
    return addressOf(screen, { ...values, at: this.now.values.at });
  }

  moved() {
    if (location.hash && !location.hash.startsWith("#/")) return;
    this.now = readAddress(location.hash);
    this.changed(this.now);
  }
}
