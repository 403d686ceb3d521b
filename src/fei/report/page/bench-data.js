// The run: its arrays unpacked, and means read off them. A unit is a method, an image and a seed of a pair.

const MISSING = 65535;

async function lines(text) {
  return new TextDecoder().decode(await unpack(text, Uint8Array)).split("\n");
}

/** Everything that Python wrote into the page. */
async function readRun() {
  const run = readPayload();
  for (const [number, pair] of run.pairs.entries()) {
    pair.number = number;
    pair.pictures = run.pictures[number];
    pair.seeds = run.seeds;
    if (!pair.images) Object.assign(pair, { items: [], classes: [], quantities: [], columns: [], curves: [] });
    else await unpackPair(pair);
  }
  return run;
}

async function unpackPair(pair) {
  pair.items = await lines(pair.items);
  pair.keys = await lines(pair.keys);
  pair.class = await unpack(pair.class, Uint16Array);
  pair.probability = await unpack(pair.probability, Float32Array);
  pair.correct = await unpack(pair.correct, Uint8Array);
  pair.states = await unpack(pair.states, Uint16Array);
  pair.values = await unpack(pair.values, Float32Array);
  for (const curve of pair.curves) curve.levels = await unpack(curve.levels, Uint16Array);
}

/** The place of a unit among all of its pair; `row` is the method's place among the pair's methods. */
const unitAt = (pair, row, item, seed) => (row * pair.images + item) * pair.seeds.length + seed;

function stateOf(pair, unit) {
  const status = pair.states[unit];
  return ["done", "not computed yet"][status] ?? `failed: ${pair.reasons[status - 2]}`;
}

/** A number of a unit; NaN where there is none. `quantity` is its place among the pair's quantities. */
function valueOf(pair, quantity, row, item, seed) {
  return pair.values[unitAt(pair, quantity * pair.rows.length + row, item, seed)];
}

/** The mean of the numbers that there are; NaN where there is none. */
function meanOf(values) {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

/** The mean over the seeds that have a number, of one image; NaN where none has. */
const imageMean = (pair, quantity, row, item) => meanOf(pair.seeds.map((_, seed) => valueOf(pair, quantity, row, item, seed)));

/** As the report has it: over the seeds, the mean of the means over the images. { mean, images } or null. */
function meanOver(pair, quantity, row, items) {
  const mean = meanOf(pair.seeds.map((_, seed) => meanOf([...items].map((item) => valueOf(pair, quantity, row, item, seed)))));
  const seen = [...items].filter((item) => !Number.isNaN(imageMean(pair, quantity, row, item)));
  return seen.length ? { mean, images: seen.length } : null;
}

/** The curves of a unit under a protocol: [{ name, protocol, fractions, scores, points }]. */
function curvesOf(pair, row, item, seed, wanted) {
  return pair.curves.filter(wanted).map((curve) => {
    const from = unitAt(pair, row, item, seed) * curve.fractions.length;
    const levels = curve.levels.subarray(from, from + curve.fractions.length);
    const known = [...levels.keys()].filter((i) => levels[i] !== MISSING);
    return {
      ...curve,
      fractions: known.map((i) => curve.fractions[i]),
      scores: known.map((i) => curve.low + (levels[i] / (MISSING - 1)) * (curve.high - curve.low)),
    };
  }).filter(({ scores }) => scores.length);
}

/** Layers of a metric under a protocol, shallow to deep: [{ layer, quantity }]. */
function layersOf(pair, metric, protocol) {
  return pair.quantities.map(([name, under, layer], quantity) => ({ name, under, layer, quantity }))
    .filter(({ name, under, layer }) => name === metric && under === protocol && layer);
}
