// What the page does: from the state to the page, and back.

let run = null;

const KEYS = [
  ["j", "next image", () => stepImage(1)],
  ["k", "previous image", () => stepImage(-1)],
  ["m", "next method on the same image", () => stepMethod()],
  ["Escape", "close the image, then the list", () => state.row && go(state.image === null ? { row: null } : { image: null })],
];

function buildAll() {
  paintTheme();
  buildFilters();
  buildTable();
  buildImages();
  buildUnit();
}

/** Change the state: a new step for the back button. Where the changed thing was made anew, the focus stays on it. */
function go(change) {
  Object.assign(state, change);
  const focused = document.activeElement;
  const { sort } = focused?.dataset ?? {};
  const table = focused?.closest("table")?.id;
  const row = focused?.closest("tr");
  buildAll();
  if (focused && !focused.isConnected && table) {
    const marks = row ? Object.entries(row.dataset).filter(([name]) => name !== "chosen") : [];
    const within = sort ? `[data-sort="${CSS.escape(sort)}"]`
      : `tr${marks.map(([name, value]) => `[data-${name}="${CSS.escape(value)}"]`).join("")} .open`;
    document.querySelector(`#${table} ${within}`)?.focus({ preventScroll: true });
  }
  writeAddress(true);
}

/** Open a part of the page and go there. */
function open(change, title) {
  go(change);
  $(title).scrollIntoView({ block: "start" });
  $(title).focus({ preventScroll: true });
}

function sortBy(table, name) {
  if (table === "scores") go({ sort: name, down: state.sort === name ? !state.down : true });
  else {
    const now = state.order || firstScore(shownColumns());
    go({ order: name, worst: now === name ? !state.worst : true, most: 50 });
  }
}

function stepImage(step) {
  if (!state.row) return;
  const order = orderedImages().map(({ item }) => item);
  const next = order[state.image === null ? 0 : order.indexOf(state.image) + step];
  if (next !== undefined) go({ image: next });
}

function stepMethod() {
  if (state.row) go({ row: { ...state.row, method: cycle(chosenPair().rows, state.row.method) } });
}

function onClick(event) {
  const button = event.target.closest("button");
  if (button) {
    if (pressTool(button)) return;
    const plain = {
      skip: () => $("table-title").focus(),
      clear: () => go({ pair: null, truth: "all", class: null, hidden: new Set() }),
      more: () => { state.most += 100; buildImages(); },
      previous: () => stepImage(-1),
      next: () => stepImage(1),
    }[button.id];
    if (plain) return plain();
    if (button.dataset.sort) return sortBy(button.closest("table").id, button.dataset.sort);
    if (button.dataset.switch) return go({ row: { ...state.row, method: Number(button.dataset.switch) } });
  }
  const row = event.target.closest("tr.link");
  if (!row || getSelection().toString()) return;
  if (row.dataset.item !== undefined) open({ image: Number(row.dataset.item) }, "unit-title");
  else open({ row: { pair: Number(row.dataset.pair), method: Number(row.dataset.method) }, image: null, most: 50 }, "images-title");
}

function listen() {
  document.addEventListener("click", onClick);
  document.addEventListener("keydown", pressKey);
  const number = (text) => (text === "" ? null : Number(text));
  $("pair").addEventListener("change", () => go({ pair: number($("pair").value) }));
  $("protocol").addEventListener("change", () => go({ protocol: $("protocol").value }));
  $("class").addEventListener("change", () => go({ class: $("class").value === "" ? null : $("class").value.slice(1) }));
  $("unit-method").addEventListener("change", () => go({ row: { ...state.row, method: Number($("unit-method").value) } }));
  $("seed").addEventListener("change", () => go({ seed: Number($("seed").value) }));
  for (const radio of document.querySelectorAll("input[name=truth]")) {
    radio.addEventListener("change", () => go({ truth: radio.value }));
  }
  $("chips").addEventListener("change", (event) => {
    go({ hidden: hiddenAfter(event.target) });
    $("chips").querySelector(`input[value="${CSS.escape(event.target.value)}"]`)?.focus();
  });
  $("opacity").addEventListener("input", () => {
    state.opacity = Number($("opacity").value);
    paintOpacity();
    writeAddress(false);
  });
  listenToShell(() => { readAddress(); buildAll(); }, buildUnit);
}

function buildHead() {
  const { done, failed, waiting } = run.counts;
  const images = run.pairs.reduce((most, pair) => Math.max(most, pair.images), 0);
  $("headline").textContent = run.name;
  const several = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
  const parts = [several(run.methods.length, "method"), several(run.pairs.length, "network and data pair")];
  if (images) parts.push(`${run.pairs.length > 1 ? "up to " : ""}${several(images, "image")}`);
  parts.push(several(run.seeds.length, "seed"));
  $("summary").textContent = `${parts.join(", ")}. ${several(done, "unit")} done, ${failed} failed, ${waiting} not computed yet.`;
}

function buildHow() {
  const explained = run.target === "predicted" ? "the predicted class" : "the class that the data set names";
  const pictures = run.pairs.map(({ name, pictures: { left_out: left, word } }) => [left, word].filter(Boolean).join(" ")
    && `${name}: ${[left, word].filter(Boolean).join(" ")}`).filter(Boolean);
  const facts = [
    ["run", run.run], ["begun", run.created ?? "–"], ["plan key", run.planKey], ["explained", explained],
    ["protocols", run.protocols.join(", ") || "–"], ["seeds", run.seeds.join(", ")],
    ["versions", Object.entries(run.versions).map((one) => one.join(" ")).join(", ")], ["this page", `fei ${run.fei}`],
    ...(pictures.length ? [["pictures", pictures.join(" ")]] : []),
    ...run.failures.map((words) => ["failed", words.replace(/^Failed: /, "")]),
  ];
  $("facts").replaceChildren(...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  buildSources($("sources"), [["Copy as command", "page", `fei bench report ${quoted(run.run)} --html`]]);
  $("plan").textContent = run.plan;
}

async function start() {
  run = await readRun();
  readAddress();
  openShell();
  buildHead();
  buildHow();
  listen();
  buildAll();
}
