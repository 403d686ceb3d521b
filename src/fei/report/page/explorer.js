// What the page does: from the state to the page, and back.

let data = null;

const current = () => data.images[state.image];
const still = matchMedia("(prefers-reduced-motion: reduce)");

// From the state to the page

function buildAll() {
  settle();
  const image = current();
  buildHead(image);
  buildClasses(image);
  buildMaps();
  buildScrubber(image);
  buildInside(image);
  buildFilms(image);
  buildAgreement(image);
  buildScores(image);
  buildHow(image);
  buildPicks(image);
  paintView();
  paintTheme();
  paintOpacity();
  document.querySelector(`input[name=scale][value=${state.scale}]`).checked = true;
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
  paintReadings();
}

function movePixel(right, down) {
  const { width, height } = current();
  const from = state.pixel ?? { x: Math.floor(state.x * width), y: Math.floor(state.y * height) };
  const x = Math.min(width - 1, Math.max(0, from.x + right));
  const y = Math.min(height - 1, Math.max(0, from.y + down));
  setPixel({ x, y }, true);
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
  openShell(() => data && restore(), () => {
    if (!data) return;
    layOut();
    buildInside(current());
    requestPaint();
  });
  const pointer = { pointerdown: onPress, pointermove: onMove, pointerup: onRelease, pointercancel: onRelease };
  for (const [type, listener] of Object.entries(pointer)) document.addEventListener(type, listener);
  document.addEventListener("wheel", onWheel, { passive: false });
  document.addEventListener("keydown", onKey);
}

function onClick(target, { slot, image, method, a, b }) {
  if (slot) pickInRow(slot, Number(image), method);
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

/** Show what was found, in place of what was shown before. */
function explore(found) {
  data = found;
  palettes = data.colors;
  $("dock").hidden = false;
  paintRamp($("ramp"), "inferno");
  paintRamp($("difference-ramp"), "coolwarm");
  restore();
}

async function start() {
  const found = await readData();
  listen();
  explore(found);
}
