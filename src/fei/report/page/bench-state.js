// What is looked at: filters, order, and the chosen method, image and seed; kept in the address.

const TRUTHS = ["all", "right", "wrong"];

const state = {
  theme: "auto", opacity: 0.6, pair: null, protocol: null, truth: "all", class: null, hidden: new Set(),
  sort: "", down: true, order: "", worst: true, // sort: a column's name; order: that of the images
  row: null, // { pair, method }: places in the run
  image: null, seed: 0, most: 50,
};

/** A column's name in the address. */
const nameOf = (column) => (column.protocol && !run.protocols.includes(column.protocol) ? `${column.metric}@${column.protocol}` : column.metric);

/** Columns under the chosen protocol: what belongs to no protocol, or to one of its own (ROAD), is always there. */
function shownColumns() {
  return run.columns.map((column, number) => ({ ...column, number, name: nameOf(column) }))
    .filter(({ protocol }) => !protocol || protocol === state.protocol || !run.protocols.includes(protocol))
    .filter(({ number }) => shownPairs().some((pair) => pair.columns[number] !== null && pair.columns[number] !== undefined));
}

const shownPairs = () => run.pairs.filter((pair) => state.pair === null || pair.number === state.pair);

/** Whether images are filtered, so that numbers are no longer the report's. */
const filtered = () => state.truth !== "all" || state.class !== null;

/** The images of a pair that pass the filters. */
function shownItems(pair) {
  const wanted = { all: null, right: 1, wrong: 0 }[state.truth];
  return [...pair.items.keys()].filter((item) => (wanted === null || pair.correct[item] === wanted)
    && (state.class === null || pair.classes[pair.class[item]] === state.class));
}

function tell(words) {
  if (state.pair !== null) words.set("pair", run.pairs[state.pair].name);
  if (state.protocol !== run.protocols[0]) words.set("protocol", state.protocol);
  if (state.truth !== "all") words.set("predictions", state.truth);
  if (state.class !== null) words.set("class", state.class);
  if (state.sort) words.set("sort", `${state.sort},${state.down ? "best" : "worst"}`);
  if (state.row) {
    words.set("on", run.pairs[state.row.pair].name);
    words.set("method", run.methods[state.row.method].label);
    if (state.order || !state.worst) words.set("order", `${state.order},${state.worst ? "worst" : "best"}`);
    if (state.image !== null) words.set("image", run.pairs[state.row.pair].items[state.image]);
    if (state.seed) words.set("seed", String(run.seeds[state.seed]));
  }
}

const placeOf = (list, wanted) => (wanted === null || list.indexOf(wanted) < 0 ? null : list.indexOf(wanted));

function readAddress(words) {
  const names = run.pairs.map(({ name }) => name);
  state.pair = placeOf(names, words.get("pair"));
  state.protocol = oneOf(run.protocols, words.get("protocol")) ?? "";
  state.truth = oneOf(TRUTHS, words.get("predictions"));
  const classes = new Set(run.pairs.flatMap((pair) => pair.classes));
  state.class = classes.has(words.get("class")) ? words.get("class") : null;
  const known = ["method", "pair", "images", "fired", "image", "class", "probability", "truth", ...run.columns.map(nameOf)];
  [state.sort, state.down] = orderFrom(words.get("sort"), known, "best");
  [state.order, state.worst] = orderFrom(words.get("order"), known, "worst");
  const pair = placeOf(names, words.get("on"));
  const method = placeOf(run.methods.map(({ label }) => label), words.get("method"));
  state.row = pair !== null && method !== null && run.pairs[pair].rows.includes(method) ? { pair, method } : null;
  state.image = state.row ? placeOf(run.pairs[pair].items, words.get("image")) : null;
  state.seed = placeOf(run.seeds.map(String), words.get("seed")) ?? 0;
}

function orderFrom(text, known, first) {
  const [name, way] = (text ?? "").split(",");
  return known.includes(name) || !name ? [name, (way ?? first) === first] : ["", true];
}
