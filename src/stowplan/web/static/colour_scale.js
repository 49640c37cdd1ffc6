// Colours of shares from 0 to 1, distinguished by colour-blind people and in grey.

const LIGHT = [[247, 246, 235], [214, 229, 190], [132, 200, 178], [58, 157, 183], [41, 98, 160], [37, 37, 110]];
const DARK = [[32, 36, 56], [46, 62, 118], [38, 112, 142], [42, 160, 132], [140, 206, 88], [250, 232, 70]];
const OVER = [213, 94, 0];

export function colourOf(share, isDark) {
  if (share > 1.001) return OVER;
  const stops = isDark ? DARK : LIGHT;
  const place = Math.min(share, 1) * (stops.length - 1);
  const k = Math.min(Math.floor(place), stops.length - 2);
  return stops[k].map((part, i) => Math.round(part + (stops[k + 1][i] - part) * (place - k)));
}

// A strip from 0 to 1 on a canvas of `steps` + 1 by 10 pixels.
export function paintScale(canvas, steps, isDark) {
  const context = canvas.getContext("2d");
  for (let k = 0; k <= steps; k += 1) {
    context.fillStyle = `rgb(${colourOf(k / steps, isDark).join(",")})`;
    context.fillRect(k, 0, 1, canvas.height);
  }
}
