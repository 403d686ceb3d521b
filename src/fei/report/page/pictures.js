// Pixels: maps over the photograph, inserted and deleted pictures, masks, differences. Canvases have the resolution of
// the network's input; the browser only scales what is finished.

let palettes = null;

/** Fill a canvas; `color(i, c)` is the red, green or blue of pixel i. */
function paint(canvas, image, color) {
  if (canvas.width !== image.width || canvas.height !== image.height) {
    Object.assign(canvas, { width: image.width, height: image.height });
    canvas.parentElement.style.aspectRatio = `${image.width} / ${image.height}`;
  }
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const picture = context.createImageData(image.width, image.height);
  for (let i = 0, at = 0; i < image.pixels; i++, at += 4) {
    for (let c = 0; c < 3; c++) picture.data[at + c] = color(i, c);
    picture.data[at + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
}

const paintPhoto = (canvas, image) => paint(canvas, image, (i, c) => image.photo[3 * i + c]);

/** All of a photograph, with a frame around what the network saw. */
function paintWhole(canvas, { picture, box }) {
  Object.assign(canvas, { width: picture.width, height: picture.height });
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  const [left, top, right, bottom] = box.map((share, i) => share * (i % 2 ? picture.height : picture.width));
  const thick = Math.max(2, picture.width / 160);
  for (const [color, dashes] of [["#000", []], ["#fff", [3 * thick, 2 * thick]]]) {
    Object.assign(context, { strokeStyle: color, lineWidth: thick });
    context.setLineDash(dashes);
    context.strokeRect(left + thick / 2, top + thick / 2, right - left - thick, bottom - top - thick);
  }
}

/** The share of the other pixels that a pixel is more important than. */
function percentile(panel, i) {
  const last = panel.ranks.length - 1;
  return last ? (last - panel.ranks[i]) / last : 1;
}

/** From a map's values to places 0 to 255 in a palette, from low to high. */
function placer(panel, scale, range) {
  if (scale === "rank") return (i) => Math.floor(percentile(panel, i) * 255.999);
  const [low, high] = scale === "shared" ? range : [panel.low, panel.high];
  const span = high - low;
  if (!(span > 0)) return () => 0;
  return (i) => Math.min(255, Math.max(0, Math.floor(((panel.values[i] - low) / span) * 256)));
}

/** A map's colours over its photograph: (1 − opacity) · photograph + opacity · colours. */
function paintOverlay(canvas, image, panel, { opacity, scale, range }) {
  const place = placer(panel, scale, range);
  const colors = palettes.inferno;
  paint(canvas, image, (i, c) => Math.round((1 - opacity) * image.photo[3 * i + c] + opacity * colors[3 * place(i) + c]));
}

/**
 * The picture that the metric shows the network: n = round(q · pixels) are painted with R, half to even; deletion paints
 * the n most important pixels, insertion the n least important.
 */
function paintPerturbed(canvas, image, panel, curve, fraction) {
  const count = roundHalfEven(fraction * image.pixels);
  const deletes = curve === "deletion";
  const edge = deletes ? count : image.pixels - count;
  const reference = image.reference[curve];
  paint(canvas, image, (i, c) => ((panel.ranks[i] < edge) === deletes ? reference : image.photo)[3 * i + c]);
}

/** A mask: white is what it shows. */
function paintMask(canvas, image, masks, number) {
  paint(canvas, image, (i) => masks.alphas[number * image.pixels + i]);
}

/** Where two maps rank pixels differently: red where the first ranks them higher, blue where the second does. */
function paintDifference(canvas, image, first, second) {
  const place = (i) => Math.min(255, Math.floor((percentile(first, i) - percentile(second, i) + 1) * 128));
  paint(canvas, image, (i, c) => palettes.coolwarm[3 * place(i) + c]);
}

function paintRamp(canvas, name) {
  paint(canvas, { width: 256, height: 1, pixels: 256 }, (i, c) => palettes[name][3 * i + c]);
}
