// What all pages share: theme, address, keys, copying, and how they begin. A page has `state`, `addressOf`, `KEYS`.

const THEMES = ["auto", "light", "dark"];
// Inside a notebook the page has no address of its own.
const LINKABLE = location.protocol !== "about:";

function cycle(list, value, step = 1) {
  return list[(list.indexOf(value) + step + list.length) % list.length];
}

// Theme

const themeFrom = (words) => (THEMES.includes(words.get("theme")) ? words.get("theme") : "auto");

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

function short(number, digits) {
  return String(Number(number.toFixed(digits)));
}

function numberFrom(text, low, high, otherwise) {
  const number = Number(text);
  return text === null || text === "" || !Number.isFinite(number) ? otherwise : Math.min(high, Math.max(low, number));
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

/** Texts to copy, each with its button: [[words, name, text]]. */
function buildSources(place, sources) {
  place.replaceChildren(...sources.map(([words, id, text]) => h("div", { class: "source" },
    h("button", { type: "button", "data-copy": `source-${id}` }, words),
    h("pre", { id: `source-${id}`, class: id === "code" ? id : "command", tabindex: "0", role: "group", "aria-label": words }, text))));
}

/** The methods that are hidden after the box of one was ticked or cleared. */
function hiddenAfter({ checked, value }) {
  return new Set(checked ? [...state.hidden].filter((name) => name !== value) : [...state.hidden, value]);
}

// Tools and keys

/** The buttons of the head, and those that copy; whether it was one of them. */
function pressTool(button) {
  const tool = {
    theme: nextTheme,
    link: () => {
      history.replaceState(null, "", addressOf());
      copy(location.href, null);
    },
    ask: () => $("help").showModal(),
  }[button.id];
  const source = button.dataset.copy;
  if (tool) tool();
  else if (source) copy($(source).textContent, $(source));
  return Boolean(tool || source);
}

const SHELL_KEYS = [
  ["?", "this help", () => $("help").showModal()],
  ["t", "next theme", nextTheme],
];

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

/** Restore the state when the address changes, and lay the page out anew when its width does. */
function listenToShell(restore, onWidth) {
  addEventListener("popstate", restore);
  addEventListener("hashchange", restore);
  let width = $("main").clientWidth;
  new ResizeObserver(() => {
    if ($("main").clientWidth === width) return; // it grows and shrinks in height all the time
    width = $("main").clientWidth;
    onWidth();
  }).observe($("main"));
}

/** Show the page, and what its keys do. */
function openShell(moreKeys = []) {
  $("keys").replaceChildren(...[...SHELL_KEYS, ...KEYS, ...moreKeys].map(([key, what]) => h("tr", {},
    h("th", { scope: "row" }, h("kbd", {}, key)), h("td", {}, what))));
  $("link").hidden = !LINKABLE;
  $("main").hidden = false;
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
