// What happens inside the network, and the masks of optimisation methods.

function layerTable(image, chosen, metric) {
  const about = data.metrics[metric];
  const place = laneScale(about, chosen.flatMap(({ panel }) => panel.layers[metric].flat()));
  const unchanged = metric === "mse" ? 0 : 1; // where nothing is replaced
  const columns = chosen.map(({ slot, panel: { method, layers } }) => {
    const fractions = [0, ...layers.fractions];
    const here = layers[metric].map((course) => valueAt(fractions, [unchanged, ...course], state.fraction, image.pixels));
    const texts = here.map((one) => told(one, (value) => written(value, about.format)));
    return { kind: slot, head: slot.toUpperCase(), title: method, values: here.map((one) => one?.value), texts };
  });
  return laneTable(metric, about, place, chosen[0].panel.layers.names, columns);
}

function paintInside(image) {
  const chosen = chosenOf(image).filter(({ panel }) => panel.layers);
  $("layers").hidden = !chosen.length;
  const shown = ["cosine", "relevant_cosine", "mse"].filter((metric) => chosen.every(({ panel }) => panel.layers[metric]));
  if (chosen.length) $("layers").replaceChildren(...shown.map((metric) => layerTable(image, chosen, metric)));
}

function buildInside(image) {
  const clipping = chosenOf(image).filter(({ panel }) => panel.masks);
  const measured = chosenOf(image).some(({ panel }) => panel.layers);
  $("inside").hidden = !measured && !clipping.length;
  $("inside-about").textContent = measured
    ? "How far the network’s activations on the insertion picture are from those on the photograph, layer by layer, "
      + "shallow to deep, at the scrubber’s fraction: their cosine, "
      + "their cosine with each unit weighted by what it says about the class, and mean squared error. A method that keeps the answer by another pathway shows here."
    : "What the method kept the optimisation from doing inside the network.";
  const width = columnWidth($("inside"));
  buildBlocks(width, chosenOf(image).filter(({ panel }) => panel.blocks));
  $("clipped").replaceChildren(...(clipping.length ? [
    h("h3", {}, "Units clipped"),
    h("p", { class: "about" }, "The share of units with a gradient that lost it in the last step, at each clip site; the mean over quantiles."),
    h("div", { class: "pairs" }, ...clipping.map(({ slot, panel }) => clippedFigure(width, slot, panel))),
  ] : []));
}

/** The blocks of a transformer: how alike tokens are, and beside it how far attention is from that on the photograph. */
function buildBlocks(width, chosen) {
  const metrics = new Set(chosen.flatMap(({ panel }) => panel.blocks.map(({ metric }) => metric)));
  $("blocks").replaceChildren(...(metrics.size ? [
    h("h3", {}, "Block by block"),
    h("p", { class: "about" }, "Means over the insertion pictures. The cosine of the class token, and of the patches’ tokens, with those on the "
      + "photograph; and the Jensen–Shannon divergence (JS) of attention from that on the photograph, from 0 to 0.693, in the class token’s row and in "
      + "the rows of patches that are kept: the mean over heads, in a band from the least to the greatest of them."),
    h("div", { class: "pairs" }, ...[...metrics].map((metric) => {
      const about = data.metrics[metric];
      const found = chosen.map(({ slot, panel }) =>
        ({ slot, method: panel.method, ...panel.blocks.find((chart) => chart.metric === metric) })).filter(({ mean }) => mean);
      return h("figure", { class: "chart", "data-metric": metric }, h("figcaption", {}, h("strong", {}, about.heading),
        ...found.map(({ slot, method }) => h("span", { class: `series ${slot}` }, method))), blockChart(width, about, found));
    })),
  ] : []));
}

function clippedFigure(width, slot, { method, masks }) {
  const caption = h("figcaption", {}, h("span", { class: `series ${slot}` }, method));
  if (!masks.sites.length) {
    return h("figure", { class: "chart" }, caption, h("p", { class: "faint" }, "No constraint: nothing is clipped anywhere."));
  }
  const shares = masks.clipped.map((share) => share.reduce((sum, one) => sum + one, 0) / share.length);
  const mean = shares.reduce((sum, one) => sum + one, 0) / shares.length;
  const words = `${masks.sites.length} sites, ${percent(Math.min(...shares))} to ${percent(Math.max(...shares))}, mean ${percent(mean)}`;
  caption.append(h("span", { class: "faint" }, words));
  return h("figure", { class: "chart" }, caption,
    columnChart(width, masks.sites, shares, slot, `Units clipped by ${method}: ${words}`));
}

// Masks

function buildFilms(image) {
  const chosen = chosenOf(image).filter(({ panel }) => panel.masks);
  $("masks").hidden = !chosen.length;
  $("films").replaceChildren(...chosen.map(({ slot, panel }) => filmOf(image, slot, panel)));
  for (const canvas of $("films").querySelectorAll("canvas")) {
    paintMask(canvas, image, image.byName.get(canvas.dataset.method).masks, Number(canvas.dataset.mask));
  }
  paintFilms(image);
}

const maskName = (quantile) => (quantile === null ? "α" : `q ${quantile}`);

function filmOf(image, slot, { method, masks }) {
  const frames = masks.quantiles.map((quantile, i) => {
    const canvas = h("canvas", { role: "img", "data-method": method, "data-mask": i, "aria-label": `Mask ${maskName(quantile)} of ${method}` });
    const stop = masks.stopped[i] >= 0 ? `, stopped after ${masks.stopped[i]}` : "";
    return h("figure", { class: "frame", "data-quantile": quantile ?? "" }, viewOf(canvas), h("figcaption", {},
      h("strong", {}, maskName(quantile)),
      h("span", { class: "faint" }, `φ ${masks.phi[i].at(-1).toFixed(2)}, area ${masks.area[i].at(-1).toFixed(2)}${stop}`)));
  });
  return h("div", { class: `film ${slot}`, "data-slot": slot },
    h("h3", {}, h("span", { class: "key" }, slot.toUpperCase()), method),
    h("div", { class: "strip", tabindex: "0", role: "group", "aria-label": `Masks of ${method}` }, ...frames),
    h("div", { class: "pairs courses" }));
}

function paintFilms(image) {
  for (const film of $("films").children) {
    const { method, masks } = image.byName.get(state[film.dataset.slot]);
    const marked = masks.quantiles[0] === null ? null : nearest(masks.quantiles, state.fraction);
    film.querySelectorAll(".frame").forEach((frame, i) => frame.classList.toggle("marked", i === marked));
    const courses = film.querySelector(".courses");
    const width = columnWidth(courses);
    const drawn = `${marked} ${width}`;
    if (courses.dataset.drawn === drawn) continue;
    courses.dataset.drawn = drawn;
    const names = masks.quantiles.map(maskName);
    const phi = masks.phi.flat();
    const range = [Math.min(0, ...phi), Math.max(1, ...phi)];
    courses.replaceChildren(...[
      ["φ", "score on the masked picture", masks.phi, range],
      ["Area", "mean of the mask", masks.area, [0, 1]],
    ].map(([name, what, values, domain]) => h("figure", { class: "chart" },
      h("figcaption", {}, h("strong", {}, name), h("span", { class: "faint" }, what)),
      courseChart(width, values, marked, names, film.dataset.slot, domain, `${name} over the steps of ${method}`))));
  }
}
