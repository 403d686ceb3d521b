// Mouse, fingers and keys.

const fingers = new Map();
let pressed = null;

function placeIn(view, event) {
  const box = view.getBoundingClientRect();
  return { u: (event.clientX - box.left) / box.width, v: (event.clientY - box.top) / box.height, box };
}

function pixelAt(view, event) {
  const { u, v } = placeIn(view, event);
  const canvas = view.querySelector("canvas");
  const x = Math.floor(((u - 0.5) / state.zoom + state.x) * canvas.width);
  const y = Math.floor(((v - 0.5) / state.zoom + state.y) * canvas.height);
  return x >= 0 && y >= 0 && x < canvas.width && y < canvas.height ? { x, y } : null;
}

/** The middle between two fingers, and how far they are apart; one finger is its own middle. */
function grip() {
  const [one, two = one] = [...fingers.values()];
  return { x: (one.x + two.x) / 2, y: (one.y + two.y) / 2, apart: Math.hypot(one.x - two.x, one.y - two.y) || 1 };
}

function onPress(event) {
  scrubOnCurve(event);
  const view = event.target.closest(".view");
  if (!view || event.button > 0) return;
  fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  pressed = { view, x: event.clientX, y: event.clientY, moved: false };
  if (state.zoom > 1 || fingers.size === 2) view.setPointerCapture(event.pointerId);
}

function onMove(event) {
  scrubOnCurve(event);
  if (!fingers.has(event.pointerId)) return point(event);
  const before = grip();
  fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  const now = grip();
  if (Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) > 4) pressed.moved = true;
  if (state.zoom === 1 && fingers.size < 2) return;
  const { u, v, box } = placeIn(pressed.view, { clientX: now.x, clientY: now.y });
  zoomAt(now.apart / before.apart, u, v);
  const right = (now.x - before.x) / box.width / state.zoom;
  const down = (now.y - before.y) / box.height / state.zoom;
  setView(state.zoom, state.x - right, state.y - down);
}

function onRelease(event) {
  if (!fingers.delete(event.pointerId)) return;
  if (fingers.size) return;
  if (event.type === "pointerup" && !pressed.moved) {
    const pixel = pixelAt(pressed.view, event);
    const same = state.pinned && pixel && state.pixel.x === pixel.x && state.pixel.y === pixel.y;
    setPixel(same ? null : pixel, !same);
    if (pressed.view.closest("#stage")) $("stage").focus({ preventScroll: true });
  }
  pressed = null;
}

/** The pixel under the mouse, unless one was pinned by a click. */
function point(event) {
  if (event.pointerType === "touch" || state.pinned) return;
  const view = event.target instanceof Element ? event.target.closest(".view") : null;
  const pixel = view ? pixelAt(view, event) : null;
  if (pixel || state.pixel) setPixel(pixel);
}

function onWheel(event) {
  const view = event.target.closest(".view");
  if (!view) return;
  const meant = event.ctrlKey || event.metaKey || $("stage").matches(":focus-within") || state.zoom > 1;
  if (!meant || (state.zoom === 1 && event.deltaY > 0 && !event.ctrlKey)) return; // the page scrolls
  event.preventDefault();
  const { u, v } = placeIn(view, event);
  zoomAt(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), u, v);
}

function scrubOnCurve(event) {
  const chart = event.target.closest?.("svg.draggable");
  if (!chart || (event.type === "pointermove" && !event.buttons)) return;
  const box = chart.getBoundingClientRect();
  const at = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
  const from = Number(chart.dataset.from), to = Number(chart.dataset.to);
  play(false);
  setFraction((at - from) / (to - from));
}

// Keys, buttons and fields

const KEYS = [
  ["[", "previous measured fraction", () => stepMeasured(-1)],
  ["]", "next measured fraction", () => stepMeasured(1)],
  [",", "1 % fewer pixels replaced", () => setFraction(state.fraction - 0.01)],
  [".", "1 % more", () => setFraction(state.fraction + 0.01)],
  ["p", "play or pause", () => play(!playing)],
  ["+", "zoom in", () => zoomAt(1.5)],
  ["-", "zoom out", () => zoomAt(1 / 1.5)],
  ["0", "whole picture", () => setView(1, 0.5, 0.5)],
  ["a", "next method as A", () => nextMethod("a")],
  ["b", "next method as B", () => nextMethod("b")],
  ["x", "swap A and B", () => state.b !== null && choose({ a: state.b, b: state.a })],
  ["n", "next image", () => photographs().length > 1 && choose({ image: cycle(photographs(), current()).number })],
  ["c", "next class of the image", () => classesOf(current()).length > 1
    && choose({ image: cycle(classesOf(current()), current()).number })],
  ["s", "next colour scale", () => choose({ scale: cycle(SCALES, state.scale) })],
  ["Escape", "let go of a pinned pixel", () => setPixel(null)],
  ["Tab to the maps, then arrows", "pan"],
  ["Shift + arrows", "read single pixels"],
];
const BUTTONS = {
  skip: () => ($("stage").offsetParent ? $("stage") : $("file")).focus(),
  play: () => play(!playing),
  swap: () => choose({ a: state.b, b: state.a }),
  "zoom-in": () => zoomAt(1.5),
  "zoom-out": () => zoomAt(1 / 1.5),
  "zoom-reset": () => setView(1, 0.5, 0.5),
};
const FIELDS = {
  fraction: ({ value }) => { play(false); setFraction(Number(value)); },
  scale: ({ value }) => choose({ scale: value }),
  class: ({ value }) => choose({ image: Number(value) }),
  "pick-a": ({ value }) => put("a", value),
  "pick-b": ({ value }) => put("b", value || null),
};
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function nextMethod(slot) {
  const other = slot === "a" ? state.b : state.a;
  const names = current().panels.map((panel) => panel.method).filter((name) => name !== other);
  if (names.length) choose({ [slot]: cycle(names, state[slot]) });
}

function onKey(event) {
  if (!data || event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const arrow = ARROWS[event.key];
  if (arrow && document.activeElement === $("stage")) {
    event.preventDefault();
    if (event.shiftKey) movePixel(...arrow);
    else setView(state.zoom, state.x + arrow[0] * 0.15 / state.zoom, state.y + arrow[1] * 0.15 / state.zoom);
    return;
  }
  pressKey(event);
}
