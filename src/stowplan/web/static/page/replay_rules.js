// Why a pod waits at a moment of a replay, by amounts: how many nodes have too little of which
// resource. Other rules are not evaluated here.

import { quantityOf } from "./quantities.js";

const RULE = "NodeResourcesFit";
const EXAMPLES = 5;
export const OTHER_REASON = ["", "another rule, or not tried yet"];

export class ReplayRules {
  // requests: of each template, {resource: amount}. columns: name -> array, as in `NodeColumns`.
  // isThere(row): whether the node is there now.
  constructor(requests, columns, isThere) {
    this.isThere = isThere;
    this.count = columns.get("requested:pods").length;
    this.needs = requests.map((one) => [...Object.entries(one), ["pods", 1]].filter(([name, need]) => need > 0 && columns.has(`allocatable:${name}`)).map(([name, need]) => ({ name, need, offered: columns.get(`allocatable:${name}`), used: columns.get(`requested:${name}`) })));
    this.reset();
  }

  // Another moment.
  reset() {
    this.reasons = new Map();
  }

  // [rule, reason] of a template.
  reason(template) {
    let found = this.reasons.get(template);
    if (!found) {
      const short = this.short(template);
      found = short.fits || !short.most ? OTHER_REASON : [RULE, `Insufficient ${short.most}`];
      this.reasons.set(template, found);
    }
    return found;
  }

  // The resource that most nodes have too little of, unless one node has enough of all.
  short(template) {
    const needs = this.needs[template];
    const counts = new Array(needs.length).fill(0);
    for (let row = 0; row < this.count; row += 1) {
      if (!this.isThere(row)) continue;
      let fits = true;
      for (let k = 0; k < needs.length; k += 1) {
        if (needs[k].offered[row] - needs[k].used[row] < needs[k].need) {
          counts[k] += 1;
          fits = false;
        }
      }
      if (fits) return { fits };
    }
    const most = counts.indexOf(Math.max(...counts));
    return { fits: false, most: counts[most] ? needs[most].name : "" };
  }

  // As in `GET pods/NAMESPACE/NAME/why`: nodes, fitting and rules.
  why(template, names) {
    const needs = this.needs[template];
    const found = needs.map(() => ({ rows: [], first: 0, least: Infinity, most: -Infinity }));
    let [nodes, fitting] = [0, 0];
    for (let row = 0; row < this.count; row += 1) {
      if (!this.isThere(row)) continue;
      nodes += 1;
      let refusals = 0;
      needs.forEach(({ need, offered, used }, k) => {
        const have = offered[row] - used[row];
        if (have >= need) return;
        const one = found[k];
        one.rows.push(row);
        one.least = Math.min(one.least, have);
        one.most = Math.max(one.most, have);
        if (!refusals) one.first += 1;
        refusals += 1;
      });
      if (!refusals) fitting += 1;
    }
    const rules = needs.flatMap(({ name, need }, k) => {
      const { rows, first, least, most } = found[k];
      if (!rows.length) return [];
      const text = (amount) => quantityOf(name, amount);
      const examples = rows.slice(0, EXAMPLES).map((row) => ({ node: names[row], details: [] }));
      return [{ rule: RULE, reason: `Insufficient ${name}`, first, nodes: rows.length, need: text(need), have: { least: text(least), most: text(most) }, examples }];
    });
    return { nodes, fitting, rules: rules.sort((one, other) => other.nodes - one.nodes) };
  }
}
