// Amounts of resources as kubectl prints them. Base units: milli-CPU, bytes, counts.

const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const BYTES = /^(memory|ephemeral-storage|storage|hugepages-.*|.*gpu-?memory.*)$/;

// Exact, the shortest form: 3500m, 4, 16Gi, 33554433Ki.
export function quantityOf(resource, amount) {
  if (resource === "cpu") return amount % 1000 === 0 ? String(amount / 1000) : `${amount}m`;
  if (!BYTES.test(resource)) return String(amount);
  let [value, power] = [amount, 0];
  while (value !== 0 && value % 1024 === 0 && power < BINARY.length - 1) {
    value /= 1024;
    power += 1;
  }
  return `${value}${BINARY[power]}`;
}

// Short, with three digits: 1.25k cores as 1250, 12.5Gi.
export function shortQuantity(resource, amount) {
  if (amount === null || amount === undefined || !Number.isFinite(amount)) return "";
  if (amount < 0) return `-${shortQuantity(resource, -amount)}`;
  if (resource === "cpu") return amount < 1000 && amount % 1000 ? `${Math.round(amount)}m` : digits(amount / 1000);
  if (!BYTES.test(resource)) return digits(amount);
  let [value, power] = [amount, 0];
  while (value >= 1024 && power < BINARY.length - 1) {
    value /= 1024;
    power += 1;
  }
  return `${digits(value)}${BINARY[power]}`;
}

function digits(value) {
  if (value >= 1e6) return `${(value / 1e6).toPrecision(3)}M`;
  if (value >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(3)));
}

export function countText(value) {
  return value === null || value === undefined ? "" : Math.round(value).toLocaleString("en-US");
}

// Whole percents, cut as kubectl does; 100 only when nothing is left.
export function percentText(share) {
  return Number.isFinite(share) ? `${Math.floor(share * 100 + 1e-9)}%` : "";
}

// Ages and waits as kubectl prints them: 42s, 5m10s, 3h7m, 2d4h, 12d.
export function ageText(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole}s`;
  const [minutes, hours, days] = [Math.floor(whole / 60), Math.floor(whole / 3600), Math.floor(whole / 86400)];
  if (minutes < 10) return two(minutes, "m", whole % 60, "s");
  if (hours < 3) return `${minutes}m`;
  if (hours < 8) return two(hours, "h", minutes % 60, "m");
  if (hours < 48) return `${hours}h`;
  return days < 8 ? two(days, "d", hours % 24, "h") : `${days}d`;
}

function two(large, largeUnit, small, smallUnit) {
  return small ? `${large}${largeUnit}${small}${smallUnit}` : `${large}${largeUnit}`;
}

export function clockText(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour12: false });
}

// Times of a replay: since its start.
export function offsetText(seconds) {
  const whole = Math.floor(seconds);
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  const clock = [hours, minutes, whole % 60].map((part) => String(part).padStart(2, "0")).join(":");
  return days ? `+${days}d ${clock}` : `+${clock}`;
}
