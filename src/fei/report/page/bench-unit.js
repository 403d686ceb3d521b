// One image under one method: picture, curves, layers, and how to compute it again.

function buildUnit() {
  const open = state.row && state.image !== null;
  $("unit").hidden = !open;
  if (!open) return;
  const pair = chosenPair(), row = chosenRow(), { image } = state;
  const label = run.methods[state.row.method].label;
  $("unit-title").textContent = pair.items[image];
  const sure = Number.isNaN(pair.probability[image]) ? "" : `, ${percent(pair.probability[image], 1)}`;
  const truth = ["; the prediction is wrong", "; the prediction is right", ""][pair.correct[image]];
  $("unit-about").textContent = `Explained: ${pair.classes[pair.class[image]]}${sure}${truth}. ${pair.name}.`;
  options($("unit-method"), pair.rows.map((method) => [String(method), run.methods[method].label]), String(state.row.method));
  options($("seed"), run.seeds.map((seed, i) => [String(i), String(seed)]), String(state.seed));
  $("seed-control").hidden = run.seeds.length < 2;
  const order = orderedImages().map(({ item }) => item);
  $("previous").disabled = order.indexOf(image) <= 0;
  $("next").disabled = order.indexOf(image) === order.length - 1;
  buildPicture(pair, row, image, label);
  buildStrip(pair, image);
  buildCurves(pair, row, image, label);
  buildLayers(pair, row, image, label);
  buildUnitFacts(pair, row, image, label);
}

// Pictures

function stackOf(pair, row, image, label) {
  const photograph = pair.pictures.photographs[image], map = pair.pictures.maps[`${image},${row}`];
  if (!map) return null;
  const over = h("img", { src: map, class: "map", alt: `Map of ${label}`, style: photograph && { opacity: String(state.opacity) } });
  return h("div", { class: "stack" }, photograph ? h("img", { src: photograph, alt: pair.items[image] }) : null, over);
}

function whyNoPicture(pair, image) {
  if (pair.pictures.left_out && !Object.keys(pair.pictures.maps).some((key) => key.startsWith(`${image},`))) return pair.pictures.left_out;
  return pair.pictures.word || "The map of this unit was not kept.";
}

function buildPicture(pair, row, image, label) {
  const stack = stackOf(pair, row, image, label);
  const alone = stack && !pair.pictures.photographs[image];
  const words = alone ? pair.pictures.word
    : run.seeds.length > 1 ? `Map of seed ${run.seeds[0]} on what the network saw; brighter is more important.`
      : "The map on what the network saw; brighter is more important.";
  $("picture").replaceChildren(stack
    ? h("figure", {}, stack, h("figcaption", {}, h("span", { class: "faint" }, words)))
    : h("p", { class: "absent" }, whyNoPicture(pair, image)));
  $("opacity-control").hidden = !stack || alone;
  paintOpacity();
}

/** The maps of all methods, to change between. */
function buildStrip(pair, image) {
  const columns = shownColumns();
  const column = columns.find(({ name }) => name === firstScore(columns));
  const thumbs = pair.rows.map((method, row) => {
    const { label } = run.methods[method];
    const stack = stackOf(pair, row, image, label);
    if (!stack) return null;
    const value = column && pair.columns[column.number] !== null ? imageMean(pair, pair.columns[column.number], row, image) : NaN;
    const score = Number.isNaN(value) ? "" : `${column.metric} ${withDigits(value, column)}`;
    return h("button", { type: "button", class: "thumb", "data-switch": method, "aria-pressed": String(method === state.row.method) },
      stack, h("span", { class: "caption" }, label, h("span", { class: "where" }, score)));
  }).filter(Boolean);
  $("strip").replaceChildren(...(thumbs.length > 1 ? thumbs : []));
}

function paintMaps() {
  for (const map of document.querySelectorAll("#unit img + img.map")) map.style.opacity = String(state.opacity);
}

// Curves

function buildCurves(pair, row, image, label) {
  const wanted = (curve) => curve.protocol === state.protocol || !run.protocols.includes(curve.protocol);
  const curves = curvesOf(pair, row, image, state.seed, wanted);
  const width = Math.max(280, Math.min(820, $("unit-curves").clientWidth || 600));
  $("unit-curves").replaceChildren(...(curves.length ? curves.map((curve) => {
    const same = (other) => other.name === curve.name && other.protocol === curve.protocol;
    const others = [...pair.rows.keys()].filter((other) => other !== row)
      .flatMap((other) => curvesOf(pair, other, image, state.seed, same).map((one) => ({ ...one, label: run.methods[pair.rows[other]].label })));
    const thinned = curve.points > curve.fractions.length ? `, ${curve.fractions.length} of ${curve.points} points` : "";
    return h("figure", { class: "chart", "data-curve": curve.name },
      h("figcaption", {}, h("strong", {}, curve.title),
        h("span", { class: "series a" }, label),
        otherSeries(others.map((other) => other.label)),
        h("span", { class: "faint" }, `${curve.protocol}${thinned}`)),
      curveOf(width, curve, others, `${curve.name} curve of ${label} on ${pair.items[image]}`));
  }) : [h("p", { class: "absent" }, troubleOf(pair, row, image) ?? "The run has no curves of this unit.")]));
}

function curveOf(width, curve, others, label) {
  const scores = [curve, ...others].flatMap((one) => one.scores);
  const low = Math.min(0, ...scores), high = Math.max(low + 1e-6, ...scores);
  const frame = axes({
    width, height: 210, xDomain: [0, 1], yDomain: [low, high > 0.7 && high <= 1 ? 1 : high], xLabel: "pixels replaced",
    xFormat: (share) => percent(share), yFormat: brief, label,
  });
  for (const one of others) frame.draw(one.fractions, one.scores, "other", one.label);
  frame.draw(curve.fractions, curve.scores, "a");
  return frame.svg;
}

// Layers

function buildLayers(pair, row, image, label) {
  const tables = Object.keys(run.metrics).map((metric) => layerTable(pair, row, image, metric)).filter(Boolean);
  $("unit-layers").replaceChildren(...(tables.length ? [
    h("h3", {}, "Inside the network"),
    h("p", { class: "about" }, "Activations on the insertion pictures against those on the photograph, shallow to deep. "
      + `Full: this image under ${label}; hollow: the mean of all images.`),
    h("div", { class: "layer-tables" }, ...tables)] : []));
}

function layerTable(pair, row, image, metric) {
  const about = run.metrics[metric];
  const layers = layersOf(pair, metric, state.protocol).map(({ layer, quantity }) => ({
    layer, here: valueOf(pair, quantity, row, image, state.seed),
    mean: meanOver(pair, quantity, row, [...pair.items.keys()])?.mean ?? NaN,
  }));
  const known = layers.flatMap(({ here, mean }) => [here, mean]).filter((value) => !Number.isNaN(value));
  if (!known.length) return null;
  const text = (value) => (Number.isNaN(value) ? "–" : written(value, about.format));
  const column = (kind, head, values) => ({ kind, head, values, texts: values.map(text) });
  return laneTable(metric, about, laneScale(about, known), layers.map(({ layer }) => layer),
    [column("a", "this image", layers.map(({ here }) => here)), column("", "mean", layers.map(({ mean }) => mean))]);
}

// Provenance

function buildUnitFacts(pair, row, image, label) {
  const unit = unitAt(pair, row, image, state.seed);
  const key = pair.keys[unit];
  const plain = pair.quantities.map(([metric, protocol, layer], quantity) => ({ metric, protocol, layer, quantity }))
    .filter(({ layer, protocol }) => !layer && (!protocol || protocol === state.protocol || !run.protocols.includes(protocol)))
    .map(({ metric, quantity }) => [metric, valueOf(pair, quantity, row, image, state.seed)])
    .filter(([, value]) => !Number.isNaN(value))
    .map(([metric, value]) => `${run.metrics[metric]?.title ?? metric.replaceAll("_", " ")} ${brief(value)}`);
  const settings = Object.entries(pair.settings[row]).map(([name, value]) => `${name} = ${JSON.stringify(value)}`).join(", ");
  buildFacts($("unit-facts"), [
    ["key", `${key}…`], ["method", `${label}, seed ${run.seeds[state.seed]}`],
    ["state", stateOf(pair, unit)],
    ["network", pair.model], ["data", pair.data ?? "–"], ["settings", settings || "none"],
    ["numbers", plain.join(", ") || "none"],
  ]);
  buildSources($("unit-sources"), [
    ["Copy to compute it again", "reproduce", `fei reproduce ${quoted(`${run.run}#${key}`)}`],
    ["Copy to print all of it", "show", `fei bench show ${quoted(run.run)} ${key}`],
  ]);
}

/** As a shell reads it. */
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
