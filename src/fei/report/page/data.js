// The images of the explorer, and reading off curves.

async function readReference(reference, pixels) {
  if (reference.pixels) return unpack(reference.pixels, Uint8Array);
  return new Uint8Array(pixels * 3).map((_, i) => reference.color[i % 3]);
}

async function readPanel(panel) {
  panel.values = await unpack(panel.values, Float32Array);
  panel.ranks = await unpack(panel.ranks, Uint32Array);
  if (panel.masks) panel.masks.alphas = await unpack(panel.masks.alphas, Uint8Array);
  if (!panel.repeated) return;
  const changes = await unpack(panel.repeated.changes, Uint8Array);
  Object.assign(panel.repeated, { values: Float32Array.from(changes, (one) => one / 255), low: 0, high: 1 });
}

/** Everything that Python wrote into the page, or into another one. */
async function readData(text) {
  const data = readPayload(text);
  for (const name of Object.keys(data.colors)) data.colors[name] = bytesOf(data.colors[name]);
  for (const [number, image] of data.images.entries()) {
    image.number = number;
    image.pixels = image.width * image.height;
    image.photo = await unpack(image.photo, Uint8Array);
    if (image.whole) image.whole.picture = await createImageBitmap(new Blob([bytesOf(image.whole.jpeg)], { type: "image/jpeg" }));
    image.reference.insertion = await readReference(image.reference.insertion, image.pixels);
    image.reference.deletion = await readReference(image.reference.deletion, image.pixels);
    for (const panel of image.panels) await readPanel(panel);
    image.byName = new Map(image.panels.map((panel) => [panel.method, panel]));
  }
  return data;
}

/** The images that are one photograph, of which each explains another class. */
const classesOf = ({ photograph }) => data.images.filter((image) => image.photograph === photograph);

/** What is shown of each photograph: the class that is chosen in one of them, where it has it. */
function photographs() {
  const chosen = data.images[state.image];
  const inOthers = (images) => images.find(({ target }) => target.index === chosen.target.index) ?? images[0];
  return data.images.filter((image, i) => image.photograph === i)
    .map((image) => (image.photograph === chosen.photograph ? chosen : inOthers(classesOf(image))));
}

/** Half to even, as Python rounds. */
function roundHalfEven(value) {
  const floor = Math.floor(value);
  const rest = value - floor;
  if (rest !== 0.5) return rest < 0.5 ? floor : floor + 1;
  return floor % 2 === 0 ? floor : floor + 1;
}

/**
 * A measured course at a fraction: { value, measured }, linear between two measured points, or null outside of them.
 * A fraction counts as measured where it replaces as many pixels as a measured one.
 */
function valueAt(fractions, values, fraction, pixels) {
  const count = roundHalfEven(fraction * pixels);
  const points = fractions.map((at, i) => ({ at, value: values[i], count: roundHalfEven(at * pixels) }))
    .sort((one, other) => one.at - other.at);
  const next = points.findIndex((point) => point.count >= count);
  if (points[next]?.count === count) return { value: points[next].value, measured: true };
  if (next < 1) return null;
  const [before, after] = points.slice(next - 1, next + 1);
  const share = (fraction - before.at) / (after.at - before.at);
  return { value: before.value + share * (after.value - before.value), measured: false };
}

/** The number of the measured point next to a fraction. */
function nearest(fractions, fraction) {
  const away = fractions.map((one) => Math.abs(one - fraction));
  return away.indexOf(Math.min(...away));
}
