// Pixels: maps over the photograph, inserted and deleted pictures, masks, differences. Canvases have the resolution of
// the network's input; the browser only scales what is finished.

let palettes = null;

function contextOf(canvas, image) {
  if (canvas.width !== image.width || canvas.height !== image.height) {
    canvas.width = image.width;
    canvas.height = image.height;
    canvas.parentElement.style.aspectRatio = `${image.width} / ${image.height}`;
  }
  return canvas.getContext("2d", { willReadFrequently: true });
}

/** Fill a canvas; `color(i, out, at)` writes the red, green and blue of pixel i to out from at. */
function paint(canvas, image, color) {
  const context = contextOf(canvas, image);
  const picture = context.createImageData(image.width, image.height);
  for (let i = 0, at = 0; i < image.pixels; i++, at += 4) {
    color(i, picture.data, at);
    picture.data[at + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
}

function paintPhoto(canvas, image) {
  paint(canvas, image, (i, out, at) => {
    for (let c = 0; c < 3; c++) out[at + c] = image.photo[3 * i + c];
  });
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
  paint(canvas, image, (i, out, at) => {
    const from = 3 * place(i);
    for (let c = 0; c < 3; c++) {
      out[at + c] = Math.round((1 - opacity) * image.photo[3 * i + c] + opacity * colors[from + c]);
    }
  });
}

/**
 * The picture that the metric shows the network: n = round(q · pixels) are painted with R, half to even; deletion paints
 * the n most important pixels, insertion the n least important.
 */
function paintPerturbed(canvas, image, panel, curve, fraction) {
  const count = roundHalfEven(fraction * image.pixels);
  const edge = curve === "deletion" ? count : image.pixels - count;
  const deletes = curve === "deletion";
  const reference = image.reference[curve];
  paint(canvas, image, (i, out, at) => {
    const source = (panel.ranks[i] < edge) === deletes ? reference : image.photo;
    for (let c = 0; c < 3; c++) out[at + c] = source[3 * i + c];
  });
}

/** A mask: white is what it shows. */
function paintMask(canvas, image, masks, number) {
  const from = number * image.pixels;
  paint(canvas, image, (i, out, at) => {
    for (let c = 0; c < 3; c++) out[at + c] = masks.alphas[from + i];
  });
}

/** Where two maps rank pixels differently: red where the first ranks them higher, blue where the second does. */
function paintDifference(canvas, image, first, second) {
  const colors = palettes.coolwarm;
  paint(canvas, image, (i, out, at) => {
    const difference = percentile(first, i) - percentile(second, i);
    const from = 3 * Math.min(255, Math.floor((difference + 1) * 128));
    for (let c = 0; c < 3; c++) out[at + c] = colors[from + c];
  });
}

function paintRamp(canvas, name) {
  paint(canvas, { width: 256, height: 1, pixels: 256 }, (i, out, at) => {
    for (let c = 0; c < 3; c++) out[at + c] = palettes[name][3 * i + c];
  });
}

/** One range of values for several maps. */
function sharedRange(panels) {
  return [Math.min(...panels.map((panel) => panel.low)), Math.max(...panels.map((panel) => panel.high))];
}
