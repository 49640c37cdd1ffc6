// Numbers with units, as texts; number_texts.py writes the same.

const TIMES = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

export function textOf(value, unit) {
  if (value === null || value === undefined) return "";
  if (unit === "text" || typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return String(value);
  if (unit === "percent") return `${trimmed(value, 3)}%`;
  if (unit === "time") return timeText(value);
  if (unit === "count") {
    const digits = Number.isInteger(value) ? 0 : 1;
    return grouped(value.toFixed(digits));
  }
  return trimmed(value);
}

export function timeText(seconds) {
  if (seconds < 0) return `-${timeText(-seconds)}`;
  if (seconds < 1) return seconds === 0 ? "0s" : `${trimmed(seconds * 1000)}ms`;
  if (seconds < 60) return `${trimmed(seconds)}s`;
  let whole = Math.round(seconds);
  const parts = [];
  for (const [size, name] of TIMES) {
    const count = Math.floor(whole / size);
    whole -= count * size;
    if (count || parts.length) parts.push(count ? `${count}${name}` : "");
  }
  return parts.slice(0, 2).join("");
}

function trimmed(value, digits = 4) {
  const size = Math.abs(value);
  if (size >= 1000) return grouped(value.toFixed(0));
  const decimals = size === 0 ? 3 : Math.max(0, Math.min(6, digits - 1 - Math.floor(Math.log10(size))));
  let text = grouped(value.toFixed(decimals));
  if (text.includes(".")) text = text.replace(/0+$/, "").replace(/\.$/, "");
  return text === "-0" || text === "" ? "0" : text;
}

function grouped(text) {
  const [whole, part] = text.split(".");
  const separated = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return part === undefined ? separated : `${separated}.${part}`;
}
