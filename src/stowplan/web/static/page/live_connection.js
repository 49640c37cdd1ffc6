// The WebSocket of the page: subscribes, checks sequence numbers, connects again.

import { decodeFrame } from "./frame.js";

const PAUSES = [250, 500, 1000, 2000, 3000];
const SILENCE = 3000;

// received(frame): frames in order, without gaps. stated("live" | "stale" | "connecting").
export class LiveConnection {
  constructor({ received, stated, unauthorized }) {
    Object.assign(this, { received, stated, unauthorized });
    this.topics = [];
    this.sequences = new Map();
    this.waiting = new Set();
    this.failures = 0;
    this.heard = performance.now();
    this.state = "connecting";
    setInterval(() => this.watch(), 500);
  }

  // Exactly these topics from now on.
  subscribe(topics) {
    const wanted = [...topics].sort();
    if (wanted.join() === this.topics.join()) return;
    this.topics.filter((topic) => !wanted.includes(topic)).forEach((topic) => this.sequences.delete(topic));
    this.topics = wanted;
    if (!this.socket) this.connect();
    else if (this.socket.readyState === WebSocket.OPEN) this.send({ topics: wanted });
  }

  connect() {
    this.sequences.clear();
    this.waiting.clear();
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/api/page/v1/live?topics=${this.topics.join()}`);
    const asked = this.topics.join();
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    socket.addEventListener("open", () => {
      if (asked !== this.topics.join()) this.send({ topics: this.topics });
    });
    socket.addEventListener("message", (event) => this.message(event.data));
    socket.addEventListener("close", (event) => {
      if (event.code === 4401) this.unauthorized();
      else this.again();
    });
  }

  again() {
    const pause = PAUSES[Math.min(this.failures, PAUSES.length - 1)];
    this.failures += 1;
    this.tell("stale");
    setTimeout(() => this.connect(), pause);
  }

  send(message) {
    this.socket.send(JSON.stringify(message));
  }

  message(buffer) {
    this.heard = performance.now();
    this.failures = 0;
    this.tell("live");
    const frame = decodeFrame(buffer);
    if (!frame || !this.topics.includes(frame.topic)) return;
    const before = this.sequences.get(frame.topic);
    const follows = before && before.epoch === frame.epoch && before.sequence + 1 === frame.sequence;
    if (frame.isSnapshot) this.waiting.delete(frame.topic);
    else if (!follows) {
      if (!this.waiting.has(frame.topic)) this.send({ snapshot: frame.topic });
      this.waiting.add(frame.topic);
      return;
    }
    this.sequences.set(frame.topic, { epoch: frame.epoch, sequence: frame.sequence });
    this.received(frame);
  }

  get silentSeconds() {
    return (performance.now() - this.heard) / 1000;
  }

  // The connection may look open long after the other side is gone.
  watch() {
    if (performance.now() - this.heard > SILENCE) this.tell("stale");
    if (performance.now() - this.heard > 4 * SILENCE && this.socket?.readyState === WebSocket.OPEN) {
      this.heard = performance.now() - SILENCE;
      this.socket.close();
    }
  }

  tell(state) {
    if (state === this.state && state === "live") return;
    this.state = state;
    this.stated(state);
  }
}
