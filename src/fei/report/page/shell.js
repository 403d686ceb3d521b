// What all pages share: theme, address, changes, copying, keys, and how they begin. A page has a `state`, which it tells
// the address by `tell` and takes from it by `readAddress`; `buildAll` and `paintMaps`, which show it; and `KEYS`,
// `BUTTONS` and `FIELDS` by their ids or names, and `onClick`, which change it.

const THEMES = ["auto", "light", "dark"];
// Inside a notebook the page has no address of its own.
const LINKABLE = location.protocol !== "about:";

function cycle(list, value, step = 1) {
  return list[(list.indexOf(value) + step + list.length) % list.length];
}

// Theme

function paintTheme() {
  const root = document.documentElement;
  if (state.theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = state.theme;
  $("theme").textContent = `Theme: ${state.theme}`;
}

function nextTheme() {
  state.theme = cycle(THEMES, state.theme);
  paintTheme();
  writeAddress(true);
}

// Address

const short = (number, digits) => String(Number(number.toFixed(digits)));

/** What an address says if it can be chosen, or else the first of the choices. */
const oneOf = (choices, word) => (choices.includes(word) ? word : choices[0]);

function numberFrom(text, low, high, otherwise) {
  const number = Number(text);
  return text === null || text === "" || !Number.isFinite(number) ? otherwise : Math.min(high, Math.max(low, number));
}

/** The state as the part of an address after its #. */
function addressOf() {
  const words = new URLSearchParams();
  tell(words);
  if (state.opacity !== 0.6) words.set("opacity", short(state.opacity, 2));
  if (state.theme !== "auto") words.set("theme", state.theme);
  for (const name of state.hidden) words.append("hide", name);
  return `#${words}`;
}

/** The words of the address; what all pages have of the state is taken from them. */
function readWords() {
  const words = new URLSearchParams(location.hash.slice(1));
  state.opacity = numberFrom(words.get("opacity"), 0, 1, 0.6);
  state.theme = oneOf(THEMES, words.get("theme"));
  state.hidden = new Set(words.getAll("hide"));
  return words;
}

/** Take the state from the address; what it does not say, or says wrongly, is the default. */
function restore() {
  readAddress(readWords());
  buildAll();
}

let pendingAddress = 0;

/** Put the state into the address: as a new step for the back button, or quietly once a movement has come to rest. */
function writeAddress(step) {
  if (!LINKABLE) return;
  clearTimeout(pendingAddress);
  const write = () => {
    const address = addressOf();
    if (address !== location.hash) history[step ? "pushState" : "replaceState"](null, "", address);
  };
  if (step) write();
  else pendingAddress = setTimeout(write, 200);
}

// Changes

/** Change the state: a new step for the back button. Where what had the focus is made anew, the focus stays on it. */
function choose(change) {
  Object.assign(state, change);
  const focused = document.activeElement;
  const path = pathTo(focused);
  buildAll();
  if (focused?.isConnected === false) document.querySelector(path)?.focus({ preventScroll: true });
  writeAddress(true);
}

/** A selector by what an element and those around it stand for, up to one that has an id. */
function pathTo(element) {
  if (!element || element.id) return element ? `#${element.id}` : "";
  const marks = [...element.attributes].filter(({ name }) => /^(value|data-(?!chosen).*)$/.test(name));
  const own = marks.map(({ name, value }) => `[${name}="${CSS.escape(value)}"]`).join("");
  return `${pathTo(element.parentElement)} ${element.localName}${own}`;
}

function paintOpacity() {
  $("opacity").value = String(state.opacity);
  $("opacity").setAttribute("aria-valuetext", percent(state.opacity));
}

// Copying

let toastTimer = 0;

function say(words) {
  $("toast").textContent = words;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => ($("toast").textContent = ""), 2500);
}

async function copy(text, shownIn) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch { // a page in a frame may not; the reader may
    if (shownIn) getSelection().selectAllChildren(shownIn);
    say(shownIn ? "Selected; copy it with Ctrl + C" : "The address bar holds the link");
  }
}

/** Names and what they stand for: [[name, words]]. */
function buildFacts(place, facts) {
  place.replaceChildren(...facts.flatMap(([name, words]) => [h("dt", {}, name), h("dd", {}, words)]));
}

/** Texts to copy, each with its button: [[words, name, text]]. */
function buildSources(place, sources) {
  place.replaceChildren(...sources.map(([words, id, text]) => h("div", { class: "source" },
    h("button", { type: "button", "data-copy": `source-${id}` }, words),
    h("pre", { id: `source-${id}`, class: id === "code" ? id : "command", tabindex: "0", role: "group", "aria-label": words }, text))));
}

// Buttons, fields and keys

const SHELL_BUTTONS = {
  theme: nextTheme,
  link: () => {
    history.replaceState(null, "", addressOf());
    copy(location.href, null);
  },
  ask: () => $("help").showModal(),
};
const SHELL_FIELDS = {
  opacity: ({ value }) => {
    state.opacity = Number(value);
    paintOpacity();
    paintMaps();
    writeAddress(false);
  },
  shown: ({ checked, value }) => {
    const others = [...state.hidden].filter((name) => name !== value);
    choose({ hidden: new Set(checked ? others : [...others, value]) });
  },
};
const SHELL_KEYS = [
  ["?", "this help", () => $("help").showModal()],
  ["t", "next theme", nextTheme],
];

function press({ target }) {
  const button = target.closest("button");
  const act = { ...SHELL_BUTTONS, ...BUTTONS }[button?.id];
  const source = button?.dataset.copy;
  if (act) act();
  else if (source) copy($(source).textContent, $(source));
  else onClick(target, button?.dataset ?? {});
}

/** Letters, except where they are typed into something. */
function pressKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  if (event.target.closest("select, textarea, input:not([type=range], [type=checkbox], [type=radio])")) return;
  const found = [...SHELL_KEYS, ...KEYS].find(([key]) => key === (event.key === "=" ? "+" : event.key));
  if (found) {
    event.preventDefault();
    found[2]();
  }
}

// Start

/** Show the page and what its keys do, and listen to it; `onAddress` and `onWidth` follow when those change. */
function openShell(onAddress, onWidth) {
  $("keys").replaceChildren(...[...SHELL_KEYS, ...KEYS].map(([key, what]) => h("tr", {},
    h("th", { scope: "row" }, h("kbd", {}, key)), h("td", {}, what))));
  $("link").hidden = !LINKABLE;
  $("main").hidden = false;
  document.addEventListener("click", press);
  const fields = { ...SHELL_FIELDS, ...FIELDS };
  document.addEventListener("input", ({ target }) => fields[target.id || target.name]?.(target));
  addEventListener("popstate", onAddress); // also where the address was typed
  let width = $("main").clientWidth;
  new ResizeObserver(() => {
    if ($("main").clientWidth === width) return; // it grows and shrinks in height all the time
    width = $("main").clientWidth;
    onWidth();
  }).observe($("main"));
}

/** Start the page; what goes wrong is told on it. */
function begin(start) {
  start().then(() => {
    document.documentElement.dataset.ready = "true";
  }).catch((error) => {
    $("headline").textContent = "This page cannot be shown";
    $("summary").textContent = error.message;
    throw error;
  });
}
