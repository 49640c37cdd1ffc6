// Frames of the data API (docs/page-api.md): a head, JSON, and typed arrays, little endian.

const HEAD = 32;
const TOPICS = [null, "status", "nodes", "pending", "queues", "decisions", "replay"];
const TYPES = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, i32: Int32Array, f64: Float64Array };

const padded = (bytes) => Math.ceil(bytes / 8) * 8;

// {topic, isSnapshot, epoch, sequence, time, data, arrays: name -> typed array}; null for a layout
// or a topic of a later version.
export function decodeFrame(buffer) {
  const view = new DataView(buffer);
  const topic = TOPICS[view.getUint8(1)];
  if (view.getUint8(0) !== 1 || !topic) return null;
  const size = view.getUint32(12, true);
  const data = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, HEAD, size)));
  const arrays = {};
  let at = HEAD + padded(size);
  for (const { name, type, length } of data.arrays || []) {
    const Type = TYPES[type];
    if (!Type) break;
    arrays[name] = new Type(buffer, at, length);
    at += padded(length * Type.BYTES_PER_ELEMENT);
  }
  return {
    topic, data, arrays, isSnapshot: view.getUint8(2) === 0, epoch: view.getUint32(4, true),
    sequence: view.getUint32(8, true), time: view.getFloat64(16, true),
  };
}
