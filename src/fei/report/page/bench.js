// What the page does: from the state to the page, and back.

let run = null;

const KEYS = [
  ["j", "next image", () => stepImage(1)],
  ["k", "previous image", () => stepImage(-1)],
  ["m", "next method on the same image", () => state.row && toMethod(cycle(chosenPair().rows, state.row.method))],
  ["Escape", "close the image, then the list", () => state.row && choose(state.image === null ? { row: null } : { image: null })],
];
const BUTTONS = {
  skip: () => $("table-title").focus(),
  clear: () => choose({ pair: null, truth: "all", class: null, hidden: new Set() }),
  more: () => { state.most += 100; buildImages(); },
  previous: () => stepImage(-1),
  next: () => stepImage(1),
};
const FIELDS = {
  pair: ({ value }) => choose({ pair: value === "" ? null : Number(value) }),
  protocol: ({ value }) => choose({ protocol: value }),
  truth: ({ value }) => choose({ truth: value }),
  class: ({ value }) => choose({ class: value === "" ? null : value.slice(1) }),
  "unit-method": ({ value }) => toMethod(value),
  seed: ({ value }) => choose({ seed: Number(value) }),
};

function buildAll() {
  paintTheme();
  buildFilters();
  buildTable();
  buildImages();
  buildUnit();
}

/** Open a part of the page and go there. */
function open(change, title) {
  choose(change);
  $(title).scrollIntoView({ block: "start" });
  $(title).focus({ preventScroll: true });
}

function sortBy(table, name) {
  if (table === "scores") choose({ sort: name, down: state.sort === name ? !state.down : true });
  else {
    const now = state.order || firstScore(shownColumns());
    choose({ order: name, worst: now === name ? !state.worst : true, most: 50 });
  }
}

function stepImage(step) {
  if (!state.row) return;
  const order = orderedImages().map(({ item }) => item);
  const next = order[state.image === null ? 0 : order.indexOf(state.image) + step];
  if (next !== undefined) choose({ image: next });
}

const toMethod = (method) => choose({ row: { ...state.row, method: Number(method) } });

function onClick(target, { sort, switch: method }) {
  if (sort) return sortBy(target.closest("table").id, sort);
  if (method) return toMethod(method);
  const row = target.closest("tr.link");
  if (!row || getSelection().toString()) return;
  if (row.dataset.item !== undefined) open({ image: Number(row.dataset.item) }, "unit-title");
  else open({ row: { pair: Number(row.dataset.pair), method: Number(row.dataset.method) }, image: null, most: 50 }, "images-title");
}

function buildHead() {
  const { done, failed, waiting } = run.counts;
  const images = run.pairs.reduce((most, pair) => Math.max(most, pair.images), 0);
  $("headline").textContent = run.name;
  const several = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
  const where = run.pairs.length > 1 ? `${run.pairs.length} pairs of network and data` : run.pairs[0].name;
  const parts = [`${several(run.methods.length, "method")} on ${where}`];
  if (images) parts.push(`${run.pairs.length > 1 ? "up to " : ""}${several(images, "image")}`);
  parts.push(several(run.seeds.length, "seed"));
  $("summary").textContent = `${parts.join(", ")}. ${several(done, "unit")} done, ${failed} failed, ${waiting} not computed yet.`;
}

function buildHow() {
  const explained = run.target === "predicted" ? "the predicted class" : "the class that the data set names";
  const pictures = run.pairs.map(({ name, pictures: { left_out: left, word } }) => [name, [left, word].filter(Boolean).join(" ")])
    .filter(([, words]) => words).map((one) => one.join(": "));
  buildFacts($("facts"), [
    ["run", run.run], ["begun", run.created ?? "–"], ["plan key", run.planKey], ["explained", explained],
    ["protocols", run.protocols.join(", ") || "–"], ["seeds", run.seeds.join(", ")],
    ["versions", Object.entries(run.versions).map((one) => one.join(" ")).join(", ")], ["this page", `fei ${run.fei}`],
    ...(pictures.length ? [["pictures", pictures.join(" ")]] : []),
    ...run.failures.map((words) => ["failed", words.replace(/^Failed: /, "")]),
  ]);
  buildSources($("sources"), [["Copy as command", "page", `fei bench report ${quoted(run.run)} --html`]]);
  $("plan").textContent = run.plan;
}

async function start() {
  run = await readRun();
  buildHead();
  buildHow();
  openShell(restore, buildUnit);
  document.addEventListener("keydown", pressKey);
  restore();
}
