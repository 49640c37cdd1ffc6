// Scales of axes, and their ticks.

const SECONDS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900,
  1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000,
];

export function scaleOf(axis, values, start, end) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  let low = axis.low ?? Math.min(...known, Infinity);
  let high = axis.high ?? Math.max(...known, -Infinity);
  if (!Number.isFinite(low)) low = 0;
  if (!Number.isFinite(high)) high = low + 1;
  if (axis.is_log) low = Math.max(low, 1e-9);
  if (high <= low) high = axis.is_log ? low * 10 : low + 1;
  const forth = axis.is_log ? (value) => Math.log10(Math.max(value, low)) : (value) => value;
  const [from, to] = [forth(low), forth(high)];
  const at = (value) => start + ((forth(value) - from) / (to - from)) * (end - start);
  const back = (place) => {
    const value = from + ((place - start) / (end - start)) * (to - from);
    return axis.is_log ? 10 ** value : value;
  };
  return { at, back, low, high, start, end, isLog: axis.is_log, unit: axis.unit };
}

// A scale that ends at a tick, for values that begin at zero.
export function valueScale(axis, values, start, end) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  const low = axis.low ?? Math.min(0, ...known);
  let high = axis.high ?? Math.max(...known, low);
  if (high <= low) high = low + 1;
  if (axis.high === null || axis.high === undefined) {
    const step = stepOf(high - low, 4, axis.unit);
    high = Math.ceil(high / step - 1e-9) * step;
  }
  return scaleOf({ ...axis, low, high }, [], start, end);
}

export function ticksOf(scale, count) {
  if (scale.isLog) return logTicks(scale, count);
  const step = stepOf(scale.high - scale.low, count, scale.unit);
  const found = [];
  for (let k = Math.ceil(scale.low / step - 1e-9); k * step <= scale.high + step * 1e-9; k += 1) {
    found.push(Number((k * step).toPrecision(12)));
  }
  return found;
}

function stepOf(span, count, unit) {
  if (unit === "time") {
    return SECONDS.find((step) => span / step <= count) || span / count;
  }
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = [1, 2, 5, 10].find((one) => span / (one * power) <= count) * power;
  return unit === "count" ? Math.max(1, step) : step;
}

function logTicks(scale, count) {
  if (scale.unit === "time") {
    const candidates = [0.01, 0.1, 1, 10, 60, 600, 3600, 21600, 86400, 604800, 2592000, 31536000];
    const inside = candidates.filter((at) => at >= scale.low * 0.999 && at <= scale.high * 1.001);
    const every = Math.ceil(inside.length / count) || 1;
    return inside.filter((_, k) => k % every === 0);
  }
  const found = [];
  for (let k = Math.ceil(Math.log10(scale.low)); k <= Math.log10(scale.high); k += 1) {
    found.push(10 ** k);
  }
  const every = Math.ceil(found.length / count) || 1;
  return found.filter((_, k) => k % every === 0);
}
