// What is looked at, and how: kept in the address, so that a link or the back button restores it.

const MAX_ZOOM = 16;
const SCALES = ["own", "shared", "rank"];

const state = {
  image: 0, hidden: new Set(), a: null, b: null, fraction: 0.5, zoom: 1, x: 0.5, y: 0.5,
  opacity: 0.6, scale: "own", theme: "auto",
  pixel: null, pinned: false, // what the pointer is at is nobody's link
};

/** A method that constrains the network's inside against the one that does not, where both are there. */
function defaultPair(image) {
  const names = image.panels.map((panel) => panel.method);
  const constrained = names.find((name) => name.startsWith("fei-") && name !== "fei-none");
  if (constrained && names.includes("fei-none")) return [constrained, "fei-none"];
  return [names[0], names[1] ?? null];
}

/** Choose what exists: other images may have been given other methods. */
function settle() {
  const image = data.images[state.image];
  const [a, b] = defaultPair(image);
  if (!image.byName.has(state.a)) state.a = a;
  if (state.b !== null && !image.byName.has(state.b)) state.b = b;
  if (state.b === state.a) state.b = b === state.a ? null : b;
}

function clampView() {
  state.zoom = Math.min(MAX_ZOOM, Math.max(1, state.zoom));
  const margin = 0.5 / state.zoom;
  state.x = Math.min(1 - margin, Math.max(margin, state.x));
  state.y = Math.min(1 - margin, Math.max(margin, state.y));
}

function tell(words) {
  words.set("image", String(state.image));
  words.set("a", state.a);
  words.set("b", state.b ?? "");
  words.set("q", short(state.fraction, 6));
  if (state.zoom > 1) words.set("view", [state.zoom, state.x, state.y].map((part) => short(part, 4)).join(","));
  if (state.scale !== "own") words.set("scale", state.scale);
}

function readAddress(words) {
  state.image = Math.round(numberFrom(words.get("image"), 0, data.images.length - 1, 0));
  const [a, b] = defaultPair(data.images[state.image]);
  state.a = words.get("a") ?? a;
  state.b = words.has("b") ? words.get("b") || null : b;
  state.fraction = numberFrom(words.get("q"), 0, 1, 0.5);
  const view = (words.get("view") ?? "").split(",");
  state.zoom = numberFrom(view[0], 1, MAX_ZOOM, 1);
  state.x = numberFrom(view[1], 0, 1, 0.5);
  state.y = numberFrom(view[2], 0, 1, 0.5);
  state.scale = oneOf(SCALES, words.get("scale"));
  clampView();
}
