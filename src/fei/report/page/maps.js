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
  if (image.provenance.note) parts.push(image.provenance.note);
  $("summary").textContent = parts.join(" ");
}

/** The classes that were explained in the photograph, where there are several. */
function buildClasses(image) {
  const classes = classesOf(image);
  $("class-choice").hidden = classes.length < 2;
  $("class-choice").replaceChildren($("class-choice").querySelector("legend"), ...classes.map(({ number, target }) =>
    pick("radio", "class", number, number === image.number, target.label)));
}

// Maps

/** What is there to be beaten is marked so, and what was made in a hurry. */
function markOf(panel) {
  if (panel?.preview) return h("span", { class: "faint", title: "Made in few steps, to look at while waiting." }, " preview");
  return panel?.control ? h("span", { class: "faint", title: "It never looks at the network, or has no constraint: a control." }, " control") : null;
}

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
  const name = panel ? panel.method : image.whole ? "what the network saw" : "photograph";
  const canvas = h("canvas", { role: "img", "aria-label": panel ? `Map of ${name}` : `Photograph ${image.name}` });
  return h("figure", { class: "cell", "data-image": number, "data-method": panel ? name : null },
    viewOf(canvas),
    h("figcaption", {},
      h("span", { class: "caption" }, h("span", { class: "name" }, name), markOf(panel),
        ...(panel ? [h("span", { class: "slot-buttons" }, ...slotButtons(number, name))] : [])),
      h("span", { class: "reading" }), panel ? badgeOf(panel.blackImage) : null,
      panel?.evidence ? h("span", { class: isSilent(panel) ? "evidence silent" : "evidence" },
        `${capital(panel.evidence.sentence)}.`) : null));
}

/** All of the photograph, where the network saw a part of it. */
function wholeOf(image) {
  const canvas = h("canvas", { role: "img", "aria-label": `All of the photograph ${image.name}` });
  paintWhole(canvas, image.whole);
  canvas.style.aspectRatio = `${image.width} / ${image.height}`; // of the maps beside it
  return h("figure", { class: "whole" }, canvas,
    h("figcaption", {}, h("span", { class: "caption" }, h("span", { class: "name" }, "photograph")),
      h("span", { class: "evidence" }, "Framed: what the network saw.")));
}

/** Where a map changes with the seed. */
function changesOf(number, { method, repeated }) {
  const canvas = h("canvas", { role: "img", "aria-label": `Where the map of ${method} changes with the seed` });
  return h("figure", { class: "cell", "data-image": number, "data-changes": method },
    viewOf(canvas),
    h("figcaption", {},
      h("span", { class: "caption" }, h("span", { class: "name" }, "changes with the seed")),
      h("span", { class: "reading" }),
      h("span", { class: "evidence" }, `How far each pixel moves in the order of ${method} with seed ${repeated.seed}.`)));
}

function buildMaps() {
  const names = [...new Set(data.images.flatMap((image) => image.panels.map((panel) => panel.method)))];
  $("chips").replaceChildren(...names.map((name) => pick("checkbox", "shown", name, !state.hidden.has(name))));
  const rows = photographs();
  $("stage").replaceChildren(...rows.map((image) => {
    const panels = image.panels.filter((panel) => !state.hidden.has(panel.method));
    const cells = panels.flatMap((panel) => [cellOf(image.number, image, panel),
      ...(panel.repeated ? [changesOf(image.number, panel)] : [])]);
    const heading = rows.length < 2 ? null : h("h3", {}, h("button", {
      type: "button", class: "image-name", "data-image": image.number, "aria-pressed": String(image.number === state.image),
    }, image.name), h("span", { class: "faint" }, image.target.label));
    return h("div", { class: "row" }, heading, h("div", { class: "cells" }, image.whole ? wholeOf(image) : null,
      cellOf(image.number, image, null), ...cells));
  }));
  for (const cell of $("stage").querySelectorAll(".cell:not([data-method], [data-changes])")) {
    paintPhoto(cell.querySelector("canvas"), data.images[cell.dataset.image]);
  }
  layOut();
  paintMaps();
}

function cellParts(cell) {
  const image = data.images[cell.dataset.image];
  return { image, panel: image.byName.get(cell.dataset.method), repeated: image.byName.get(cell.dataset.changes)?.repeated };
}

/** Rows of maps of even length, as many in a row as the width allows. */
function layOut() {
  const most = Math.max(2, Math.floor(($("stage").clientWidth + 16) / (9.25 * 16 + 16)));
  const cells = Math.max(...[...$("stage").querySelectorAll(".cells")].map((row) => row.children.length));
  const rows = Math.ceil(cells / most);
  $("stage").style.setProperty("--columns", String($("stage").children.length > 1 ? Math.min(most, cells) : Math.ceil(cells / rows)));
}

/** Whether nothing in the picture speaks for the class: then noise is neither stretched nor vivid. */
const isSilent = (panel) => panel?.evidence?.found === false;

function paintMaps() {
  const shown = data.images.flatMap((image) => image.panels).filter((panel) => !state.hidden.has(panel.method));
  const bounds = shown.length ? shown.flatMap(({ low, high }) => [low, high]) : [0, 1];
  const range = [Math.min(...bounds), Math.max(...bounds)];
  for (const cell of $("stage").querySelectorAll(".cell[data-method], .cell[data-changes]")) {
    const { image, panel, repeated } = cellParts(cell);
    const scale = panel ? state.scale : "own";
    const opacity = state.opacity * (isSilent(panel) ? 0.4 : 1);
    paintOverlay(cell.querySelector("canvas"), image, panel ?? repeated, { opacity, scale, range });
  }
  $("ramp-text").textContent = {
    own: `1st to 99th percentile of each map${shown.some(isSilent) ? "; 0 to 1, and faint, where nothing was found" : ""}`,
    shared: `all maps from ${brief(range[0])} to ${brief(range[1])}`,
    rank: "rank, least to most important",
  }[state.scale];
  paintReadings();
}

/** Under each map: the value at the pixel that is pointed at, or else the scores. */
function paintReadings() {
  const { pixel } = state;
  for (const cell of $("stage").querySelectorAll(".cell")) {
    const { image, panel, repeated } = cellParts(cell);
    const inside = pixel && pixel.x < image.width && pixel.y < image.height;
    const i = inside ? pixel.y * image.width + pixel.x : 0;
    const lines = panel ? panelReading(panel, inside ? i : null)
      : repeated ? changesReading(repeated, inside ? i : null) : photoReading(image, inside ? pixel : null);
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

function changesReading({ values, correlation }, i) {
  return [i === null ? `rank correlation ${signed(correlation)}` : `moves by ${percent(values[i], 1)} of pixels`];
}

function photoReading(image, pixel) {
  if (!pixel) return [`${image.width} × ${image.height} pixels`];
  const from = 3 * (pixel.y * image.width + pixel.x);
  return [`x ${pixel.x}, y ${pixel.y}`, `RGB ${image.photo.slice(from, from + 3).join(" ")}`];
}
