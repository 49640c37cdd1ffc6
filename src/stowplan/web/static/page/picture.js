// A map as a picture file, with what it shows and when.

const MARGIN = 14;
const LINE = 18;

// canvas: what is drawn. name: of the file, without ending. lines: texts above it.
export function savePicture(canvas, name, lines) {
  const ratio = window.devicePixelRatio || 1;
  const style = getComputedStyle(document.body);
  const top = (MARGIN + lines.length * LINE + 6) * ratio;
  const picture = document.createElement("canvas");
  picture.width = canvas.width + 2 * MARGIN * ratio;
  picture.height = canvas.height + top + MARGIN * ratio;
  const context = picture.getContext("2d");
  context.fillStyle = style.backgroundColor;
  context.fillRect(0, 0, picture.width, picture.height);
  context.fillStyle = style.color;
  lines.forEach((line, k) => {
    context.font = `${k ? "" : "600 "}${13 * ratio}px ${style.fontFamily}`;
    context.fillText(line, MARGIN * ratio, (MARGIN + (k + 0.7) * LINE) * ratio);
  });
  context.drawImage(canvas, MARGIN * ratio, top);
  picture.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${name.replace(/[^\w.+-]+/g, "-")}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}
