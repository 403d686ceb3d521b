// The head of the page and the maps. `build…` where images or methods change, `paint…` where only a number does.

const SLOTS = ["a", "b"];

/** The methods in the two slots: [{ slot, panel }]. */
function chosenOf(image) {
  return SLOTS.filter((slot) => state[slot] !== null).map((slot) => ({ slot, panel: image.byName.get(state[slot]) }));
}

/** A value that may lie between two measured ones, which the sign tells. */
function told(here, format) {
  return here === null ? "–" : `${here.measured ? "" : "≈ "}${format(here.value)}`;
}

const isShare = ({ score }) => score === "softmax" || score === "sigmoid";

// Head

function buildHead(image) {
  const { label, probability } = image.target;
  $("headline").textContent = probability === null ? label : `${label}, ${percent(probability, 1)}`;
  const [first, ...rest] = image.prediction;
  const parts = [`${image.name}.`];
  if (first) {
    const others = rest.slice(0, 2).map((guess) => `${guess.label} ${percent(guess.probability, 1)}`).join(", ");
    const best = first.index === image.target.index
      ? "This is what the network sees" : `The network sees ${first.label} (${percent(first.probability, 1)})`;
    parts.push(`${best}${others ? `, before ${others}` : ""}.`);
  }
  if (image.provenance.network) parts.push(`Network: ${image.provenance.network}.`);
  $("summary").textContent = parts.join(" ");
}

// Maps

function badgeOf(test, inFull = false) {
  if (!test) return null;
  const fooled = Math.round(test.rate * test.trials);
  const range = test.interval.map((share) => percent(share)).join(" to ");
  return h("span", {
    class: `badge ${fooled ? "bad" : "good"}`,
    title: `Found evidence in a black image in ${percent(test.rate)} of ${test.trials} trials (95 % interval ${range})`,
  }, inFull ? `${fooled} of ${test.trials}, ${range}` : `black image ${fooled} of ${test.trials}`);
}

function slotButtons(number, method) {
  return SLOTS.map((slot) => h("button", {
    type: "button", class: `slot-button ${slot}`, "data-slot": slot, "data-image": number, "data-method": method,
    "aria-label": `Show ${method} as ${slot.toUpperCase()}`,
    "aria-pressed": String(state.image === number && state[slot] === method),
  }, slot.toUpperCase()));
}

function viewOf(canvas) {
  return h("div", { class: "view" }, canvas, h("span", { class: "cross", "aria-hidden": "true" }));
}

function cellOf(number, image, panel) {
  const name = panel ? panel.method : "photograph";
  const canvas = h("canvas", { role: "img", "aria-label": panel ? `Map of ${name}` : `Photograph ${image.name}` });
  return h("figure", { class: "cell", "data-image": number, "data-method": panel ? name : null },
    viewOf(canvas),
    h("figcaption", {},
      h("span", { class: "caption" }, h("span", { class: "name" }, name),
        ...(panel ? [h("span", { class: "slot-buttons" }, ...slotButtons(number, name))] : [])),
      h("span", { class: "reading" }), panel ? badgeOf(panel.blackImage) : null));
}

function buildMaps() {
  const names = [...new Set(data.images.flatMap((image) => image.panels.map((panel) => panel.method)))];
  $("chips").replaceChildren(...names.map((name) => pick("checkbox", "shown", name, !state.hidden.has(name))));
  $("stage").replaceChildren(...data.images.map((image, number) => {
    const panels = image.panels.filter((panel) => !state.hidden.has(panel.method));
    const cells = [null, ...panels].map((panel) => cellOf(number, image, panel));
    const heading = data.images.length < 2 ? null : h("h3", {}, h("button", {
      type: "button", class: "image-name", "data-image": number, "aria-pressed": String(number === state.image),
    }, image.name), h("span", { class: "faint" }, image.target.label));
    return h("div", { class: "row" }, heading, h("div", { class: "cells" }, ...cells));
  }));
  for (const cell of $("stage").querySelectorAll(".cell:not([data-method])")) {
    paintPhoto(cell.querySelector("canvas"), data.images[cell.dataset.image]);
  }
  layOut();
  paintMaps();
}

function cellParts(cell) {
  const image = data.images[cell.dataset.image];
  return { image, panel: cell.dataset.method ? image.byName.get(cell.dataset.method) : null };
}

/** Rows of maps of even length, as many in a row as the width allows. */
function layOut() {
  const most = Math.max(2, Math.floor(($("stage").clientWidth + 16) / (9.25 * 16 + 16)));
  const cells = Math.max(...[...$("stage").querySelectorAll(".cells")].map((row) => row.children.length));
  const rows = Math.ceil(cells / most);
  $("stage").style.setProperty("--columns", String(data.images.length > 1 ? Math.min(most, cells) : Math.ceil(cells / rows)));
}

function paintMaps() {
  const shown = data.images.flatMap((image) => image.panels).filter((panel) => !state.hidden.has(panel.method));
  const bounds = shown.length ? shown.flatMap(({ low, high }) => [low, high]) : [0, 1];
  const range = [Math.min(...bounds), Math.max(...bounds)];
  for (const cell of $("stage").querySelectorAll(".cell[data-method]")) {
    const { image, panel } = cellParts(cell);
    paintOverlay(cell.querySelector("canvas"), image, panel, { opacity: state.opacity, scale: state.scale, range });
  }
  $("ramp-text").textContent = {
    own: "1st to 99th percentile of each map",
    shared: `all maps from ${brief(range[0])} to ${brief(range[1])}`,
    rank: "rank, least to most important",
  }[state.scale];
  paintReadings();
}

/** Under each map: the value at the pixel that is pointed at, or else the scores. */
function paintReadings() {
  const { pixel } = state;
  for (const cell of $("stage").querySelectorAll(".cell")) {
    const { image, panel } = cellParts(cell);
    const inside = pixel && pixel.x < image.width && pixel.y < image.height;
    const i = inside ? pixel.y * image.width + pixel.x : 0;
    const lines = panel ? panelReading(panel, inside ? i : null) : photoReading(image, inside ? pixel : null);
    cell.querySelector(".reading").replaceChildren(...lines.map((line) => h("span", {}, line)));
  }
  // a reader of the screen is told of chosen pixels, not of all that the mouse passes
  $("pixel").textContent = state.pinned ? `pixel x ${pixel.x}, y ${pixel.y}` : "";
}

function panelReading(panel, i) {
  if (i !== null) return [`value ${brief(panel.values[i])}`, `above ${percent(percentile(panel, i), 1)} of pixels`];
  if (!panel.insertion) return [`${brief(panel.low)} to ${brief(panel.high)}`];
  return ["insertion", "deletion"].map((curve) => `${data.metrics[curve].title} ${written(panel[curve].auc, data.metrics[curve].format)}`);
}

function photoReading(image, pixel) {
  if (!pixel) return [`${image.width} × ${image.height} pixels`];
  const from = 3 * (pixel.y * image.width + pixel.x);
  return [`x ${pixel.x}, y ${pixel.y}`, `RGB ${image.photo.slice(from, from + 3).join(" ")}`];
}
