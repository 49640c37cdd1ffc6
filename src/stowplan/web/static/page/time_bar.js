// The time: live and paused, or a moment of a replay that is scrubbed and played.

import { element, shape } from "../elements.js";
import { countText } from "./quantities.js";

const SPEEDS = [1, 10, 60, 600, 3600, 21600, 86400, 604800];
const STEPS = 1000;
const WHOLE_IN = 40;

// profile: of a replay, how many pods wait at equal steps of time, drawn over the slider.
// bounds: null for live, else {start, end}. unit: of the times in a second of play at speed 1, 1000
// for ms. textOf(time). moved(time): of a replay; paused(isPaused): live.
export class TimeBar {
  constructor(place, { bounds, moved, paused, unit = 1000, textOf, profile = null }) {
    Object.assign(this, { bounds, moved, paused, unit, textOf, profile, isRunning: !bounds, time: bounds ? bounds.end : 0 });
    this.play = element("button", { type: "button" }, "");
    this.play.addEventListener("click", () => this.toggle());
    this.output = element("output", {});
    place.replaceChildren(this.play);
    if (bounds) this.addRange(place);
    this.name();
  }

  addRange(place) {
    this.range = element("input", { type: "range", min: "0", max: String(STEPS), step: "1", "aria-label": "Time of the replay" });
    this.range.addEventListener("input", () => this.go(this.timeAt(Number(this.range.value))));
    this.speed = element("select", { class: "speed", "aria-label": "Speed" });
    this.speed.append(...SPEEDS.map((one) => element("option", { value: String(one) }, `${one.toLocaleString("en-US")}×`)));
    const whole = (this.bounds.end - this.bounds.start) / this.unit;
    this.speed.value = String(SPEEDS.find((one) => whole / one <= WHOLE_IN) ?? SPEEDS.at(-1));
    place.append(element("span", { class: "scrub" }, this.curve(), this.range), this.output, this.speed);
    this.show(this.time);
  }

  // Where many pods wait.
  curve() {
    const { profile } = this;
    const most = profile ? Math.max(...profile) : 0;
    if (!most) return "";
    const peak = profile.indexOf(most);
    const points = Array.from(profile, (count, k) => `${k},${(10 - (10 * count) / most).toFixed(2)}`);
    const at = this.textOf(this.bounds.start + ((this.bounds.end - this.bounds.start) * peak) / (profile.length - 1));
    const label = `Pods waiting over the run: at most ${countText(most)}, at ${at}`;
    const area = shape("polygon", { points: `0,10 ${points.join(" ")} ${profile.length - 1},10` });
    return shape("svg", { viewBox: `0 0 ${profile.length - 1} 10`, preserveAspectRatio: "none", role: "img", "aria-label": label, "data-peak": String(peak / (profile.length - 1)) }, area);
  }

  timeAt(step) {
    return this.bounds.start + ((this.bounds.end - this.bounds.start) * step) / STEPS;
  }

  // Shows a time without telling it.
  show(time) {
    this.time = time;
    if (!this.bounds) return;
    const { start, end } = this.bounds;
    this.range.value = String(Math.round(((time - start) / (end - start || 1)) * STEPS));
    this.output.textContent = this.textOf(time);
    this.range.setAttribute("aria-valuetext", this.output.textContent);
  }

  go(time) {
    this.show(Math.max(this.bounds.start, Math.min(this.bounds.end, time)));
    this.moved(this.time);
  }

  step(count) {
    if (this.bounds) this.go(this.time + ((this.bounds.end - this.bounds.start) * count) / 200);
  }

  toggle() {
    this.isRunning = !this.isRunning;
    this.name();
    if (!this.bounds) this.paused(!this.isRunning);
    else if (this.isRunning) this.run();
  }

  run() {
    if (this.time >= this.bounds.end) this.go(this.bounds.start);
    let before = performance.now();
    const frame = (now) => {
      if (!this.isRunning) return;
      this.go(this.time + ((now - before) / 1000) * this.unit * Number(this.speed.value));
      before = now;
      if (this.time >= this.bounds.end) this.toggle();
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  name() {
    const texts = this.bounds ? ["Play", "Pause"] : ["Resume live", "Pause"];
    this.play.textContent = texts[Number(this.isRunning)];
  }
}
