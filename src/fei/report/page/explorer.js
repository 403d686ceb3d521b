// What the page does: from the state to the page, and back.

let data = null;

const current = () => data.images[state.image];
const still = matchMedia("(prefers-reduced-motion: reduce)");

// From the state to the page

function buildAll() {
  const image = current();
  buildHead(image);
  buildMaps(data);
  buildScrubber(image);
  buildInside(image);
  buildFilms(image);
  buildAgreement(image);
  buildScores(image);
  buildHow(image);
  buildPicks(image);
  paintView();
  paintSettings();
  paintFraction();
}

function paintFraction() {
  const image = current();
  paintScrubber(image);
  paintCurves(image);
  paintInside(image);
  paintFilms(image);
}

function buildPicks(image) {
  for (const slot of SLOTS) {
    const names = image.panels.map(({ method }) => [method, method]);
    options($(`pick-${slot}`), slot === "b" ? [...names, ["", "none"]] : names, state[slot] ?? "");
  }
  $("swap").disabled = state.b === null;
  $("dock").querySelector(".picks").hidden = image.panels.length < 2;
}

/** Zoom and place of all pictures at once. */
function paintView() {
  const root = document.documentElement;
  root.style.setProperty("--zoom", String(state.zoom));
  root.style.setProperty("--left", `${100 * (0.5 - state.x * state.zoom)}%`);
  root.style.setProperty("--top", `${100 * (0.5 - state.y * state.zoom)}%`);
  root.classList.toggle("zoomed", state.zoom > 1);
  root.classList.toggle("close", state.zoom >= 3);
  $("zoom-reset").textContent = percent(state.zoom);
  paintCross();
}

function paintCross() {
  const root = document.documentElement;
  root.classList.toggle("pointing", state.pixel !== null);
  if (!state.pixel) return;
  const { width, height } = current();
  root.style.setProperty("--cross-x", `${100 * (((state.pixel.x + 0.5) / width - state.x) * state.zoom + 0.5)}%`);
  root.style.setProperty("--cross-y", `${100 * (((state.pixel.y + 0.5) / height - state.y) * state.zoom + 0.5)}%`);
}

function paintSettings() {
  paintTheme();
  $("opacity").value = String(state.opacity);
  $("opacity").setAttribute("aria-valuetext", percent(state.opacity));
  for (const radio of document.querySelectorAll("input[name=scale]")) radio.checked = radio.value === state.scale;
}

// Changes

function setFraction(fraction) {
  state.fraction = Math.min(1, Math.max(0, Number(fraction.toFixed(6))));
  requestPaint();
  writeAddress(false);
}

let paintAsked = false;

/** At most once a frame, however fast the scrubber moves. */
function requestPaint() {
  if (paintAsked) return;
  paintAsked = true;
  requestAnimationFrame(() => {
    paintAsked = false;
    paintFraction();
  });
}

/** Choose images or methods; a new step for the back button. */
function choose(change) {
  Object.assign(state, change);
  settle(data);
  rebuildKeepingFocus();
  writeAddress(true);
}

/** Buttons are made anew; the focus stays where it was for those who use the keyboard. */
function rebuildKeepingFocus() {
  const focused = document.activeElement;
  const marks = ["data-slot", "data-image", "data-method", "data-a", "data-b", "value"];
  const selector = focused && focused !== document.body && !focused.id
    ? focused.tagName.toLowerCase() + marks.filter((mark) => focused.hasAttribute(mark))
      .map((mark) => `[${mark}="${CSS.escape(focused.getAttribute(mark))}"]`).join("")
    : null;
  buildAll();
  if (selector) document.querySelector(selector)?.focus({ preventScroll: true });
}

function put(slot, method) {
  const other = slot === "a" ? "b" : "a";
  if (state[other] === method) choose({ a: state.b, b: state.a }); // the two change places
  else choose({ [slot]: method });
}

function setView(zoom, x, y) {
  Object.assign(state, { zoom, x, y });
  clampView();
  paintView();
  writeAddress(false);
}

/** Zoom by a factor so that the point (u, v) of the picture's frame, from 0 to 1, stays where it is. */
function zoomAt(factor, u = 0.5, v = 0.5) {
  const zoom = Math.min(MAX_ZOOM, Math.max(1, state.zoom * factor));
  const shift = 1 / state.zoom - 1 / zoom;
  setView(zoom, state.x + (u - 0.5) * shift, state.y + (v - 0.5) * shift);
}

function setPixel(pixel, pinned = false) {
  state.pixel = pixel;
  state.pinned = pinned && pixel !== null;
  paintCross();
  paintReadings(data);
}

function movePixel(right, down) {
  const { width, height } = current();
  const from = state.pixel ?? { x: Math.floor(state.x * width), y: Math.floor(state.y * height) };
  const x = Math.min(width - 1, Math.max(0, from.x + right));
  const y = Math.min(height - 1, Math.max(0, from.y + down));
  setPixel({ x, y }, true);
}

function setScale(scale) {
  state.scale = scale;
  paintSettings();
  paintMaps(data);
  writeAddress(true);
}

// Play

let playing = 0;

function play(on) {
  cancelAnimationFrame(playing);
  playing = 0;
  $("play").setAttribute("aria-pressed", String(on));
  $("play").setAttribute("aria-label", on ? "Pause" : "Play");
  $("play").textContent = on ? "❚❚" : "▶\uFE0E";
  if (!on) return;
  const begin = performance.now();
  const from = state.fraction >= 1 ? 0 : state.fraction;
  const frame = (now) => {
    const exact = from + (now - begin) / 8000;
    const next = still.matches ? Math.floor(exact * 10) / 10 : exact; // few still pictures where motion is unwelcome
    if (Math.abs(next - state.fraction) > 1e-9) setFraction(Math.max(from, next));
    if (exact >= 1) play(false);
    else playing = requestAnimationFrame(frame);
  };
  playing = requestAnimationFrame(frame);
}

/** The measured fractions next to the scrubber. */
function stepMeasured(direction) {
  const panel = current().byName.get(state.a);
  const fractions = [...(panel.insertion?.fractions ?? Array.from({ length: 21 }, (_, i) => i / 20))].sort((x, y) => x - y);
  const beyond = direction > 0
    ? fractions.find((one) => one > state.fraction + 5e-4)
    : fractions.reverse().find((one) => one < state.fraction - 5e-4);
  if (beyond !== undefined) setFraction(beyond);
}

// Start

function listen() {
  document.addEventListener("pointerdown", onPress);
  document.addEventListener("pointermove", onMove);
  document.addEventListener("pointerup", onRelease);
  document.addEventListener("pointercancel", onRelease);
  document.addEventListener("pointerdown", scrubOnCurve);
  document.addEventListener("pointermove", scrubOnCurve);
  document.addEventListener("wheel", onWheel, { passive: false });
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", onClick);
  $("fraction").addEventListener("input", () => {
    play(false);
    setFraction(Number($("fraction").value));
  });
  $("opacity").addEventListener("input", () => {
    state.opacity = Number($("opacity").value);
    paintSettings();
    paintMaps(data);
    writeAddress(false);
  });
  $("chips").addEventListener("change", ({ target }) => choose({ hidden: hiddenAfter(target) }));
  for (const radio of document.querySelectorAll("input[name=scale]")) {
    radio.addEventListener("change", () => setScale(radio.value));
  }
  for (const slot of SLOTS) {
    $(`pick-${slot}`).addEventListener("change", () => put(slot, $(`pick-${slot}`).value || null));
  }
  listenToShell(restore, () => {
    if (!data) return;
    layOut(data);
    buildInside(current());
    requestPaint();
  });
}

function onClick(event) {
  const button = event.target.closest("button");
  if (!button || pressTool(button)) return;
  const { slot, image, method, a, b } = button.dataset;
  const plain = {
    skip: () => ($("stage").offsetParent ? $("stage") : $("file")).focus(),
    play: () => play(!playing),
    swap: () => choose({ a: state.b, b: state.a }),
    "zoom-in": () => zoomAt(1.5),
    "zoom-out": () => zoomAt(1 / 1.5),
    "zoom-reset": () => setView(1, 0.5, 0.5),
  }[button.id];
  if (plain) plain();
  else if (slot) pickInRow(slot, Number(image), method);
  else if (image) choose({ image: Number(image) });
  else if (a) choose({ a, b });
}

/** A and B of any row; a second press on B clears it. */
function pickInRow(slot, image, method) {
  const again = image === state.image && state[slot] === method;
  state.image = image;
  if (again) choose(slot === "b" ? { b: null } : {});
  else put(slot, method);
}

function restore() {
  if (!data) return;
  readAddress(data);
  buildAll();
}

/** Show what was found, in place of what was shown before. */
function explore(found) {
  data = found;
  palettes = data.colors;
  readAddress(data);
  $("dock").hidden = false;
  paintRamp($("ramp"), "inferno");
  paintRamp($("difference-ramp"), "coolwarm");
  buildAll();
}

async function start() {
  const found = await readData();
  openShell(MORE_KEYS);
  listen();
  explore(found);
}
