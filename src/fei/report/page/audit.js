// The report of an audit: the recommendation, methods × questions, and what stands behind it.

let found = null;
const state = { theme: "auto", opacity: 0.6, hidden: new Set(), cell: null };

const KEYS = [["Escape", "close the numbers of a mark", () => state.cell && choose({ cell: null })]];
const BUTTONS = { skip: () => $("table-title").focus() };
const FIELDS = {};

const tell = (words) => { if (state.cell) words.set("cell", state.cell.join(",")); };
const paintMaps = () => {};

function readAddress(words) {
  const [method, question] = (words.get("cell") ?? "").split(",");
  const known = found.methods.some(({ name }) => name === method) && found.questions.some(({ name }) => name === question);
  state.cell = known ? [method, question] : null;
}

function onClick(target, { method, question }) {
  if (!method) return;
  const [m, q] = state.cell ?? [];
  choose({ cell: m === method && q === question ? null : [method, question] });
}

const digits = (value) => Number(value.toPrecision(2));
const seconds = (value) => {
  if (value === null) return "–";
  if (value < 0.001) return `${digits(value * 1e6)} µs`; // short enough for a phone on whatever machine it was measured
  if (value < 0.1) return `${digits(value * 1000)} ms`;
  return value < 90 ? `${digits(value)} s` : `${Math.round(value / 60)} min`;
};
const several = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const signed = (value) => value.toFixed(3).replace(/^-(?=0\.000$)/, "").replace("-", "−");
const spread = ({ low, high }) => (low === null ? "–" : `${signed(low)} … ${signed(high)}`);
const words = { pass: "passes", fail: "fails", unknown: "cannot tell", none: "does not apply" };

function buildHead() {
  const [first, second] = found.sentences;
  $("headline").textContent = first;
  $("summary").textContent = second;
  const remarks = found.network.remarks.map(({ sentence }) => h("p", {}, sentence));
  $("remarks").replaceChildren(...remarks);
  $("remarks").hidden = !remarks.length;
}

/** A question as the head of its column; on a narrow screen its name, so that all columns are seen. */
const headed = (title, name, kind) => h("th", { scope: "col", class: kind, title }, h("span", { class: "long" }, title), h("span", { class: "short" }, name));

function buildTable() {
  const { questions, methods, recommended, network, data } = found;
  const right = network.right === null ? "" : ` The network is right on ${network.right} of the ${network.looked_at} that were looked at first.`;
  $("table-about").textContent = `${network.model} on images of ${data.spec} (${several(data.images, "image")}).${right}`;
  const head = h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "method"),
    ...questions.map(({ title, name }) => headed(title, name)), headed("How long per map?", "time", "number")));
  const rows = methods.map((method) => {
    const dropped = found.dropped[method.name];
    const tag = method.name === recommended ? "recommended" : dropped ? "dropped early" : "";
    return h("tr", { class: method.name === recommended ? "best" : null },
      h("th", { scope: "row" }, method.name, h("span", { class: "tag", title: dropped }, `${several(method.images, "image")}${tag ? `, ${tag}` : ""}`)),
      ...questions.map(({ name, title }) => {
        const answer = method.answers[name];
        const chosen = state.cell && state.cell[0] === method.name && state.cell[1] === name;
        return h("td", {}, h("button", { type: "button", class: `mark ${answer.answer}`, "data-method": method.name, "data-question": name,
          "aria-pressed": chosen ? "true" : "false", "aria-label": `${method.name}: ${title} ${words[answer.answer]}` }, answer.mark));
      }),
      h("td", { class: "number" }, seconds(method.seconds)));
  });
  $("verdicts").replaceChildren(head, h("tbody", {}, ...rows));
  $("legend").textContent = `✓ passes, ✗ fails, ? cannot tell with this many images, – does not apply. At most ${percent(found.alpha)} of the ✓ and ✗ are expected to be wrong.`
    + notInTable(Object.entries(found.left_out));
}

/** A few with their reasons; of many only the names, since the reasons stand below. */
function notInTable(left) {
  if (left.length <= 2) return left.map(([name, why]) => ` ${name} is not in the table: ${why}.`).join("");
  return ` ${left.length} methods are not in the table (${left.map(([name]) => name).join(", ")}); “How the time was spent” below says why.`;
}

function buildCell() {
  const place = $("cell");
  if (!state.cell) return place.replaceChildren();
  const [name, asked] = state.cell;
  const method = found.methods.find((each) => each.name === name);
  const question = found.questions.find((each) => each.name === asked);
  const answer = method.answers[asked];
  const said = { pass: question.passes, fail: question.fails }[answer.answer] ?? answer.why;
  const number = answer.mean === null ? "" : `${capital(question.measure)}: ${signed(answer.mean)} (${spread(answer)}), n = ${answer.n}; it passes ${question.below ? "below" : "above"} ${brief(question.limit)}${answer.against ? `; the strongest control is ${answer.against}` : ""}.`;
  place.replaceChildren(h("strong", {}, `${name}: ${question.title} ${answer.mark}`),
    h("p", {}, `${capital(words[answer.answer])}: ${said}.`), number ? h("p", {}, number) : null);
}

/** A photograph with the maps of the methods. */
function strip({ item, photograph, maps, label, probability, correct }, about) {
  const verdict = correct === false ? ", wrong" : "";
  return h("div", { class: "case" }, h("h3", {}, about),
    h("div", { class: "strip" },
      h("figure", {}, h("img", { src: photograph, alt: `photograph ${item}` }),
        h("figcaption", {}, item, h("span", { class: "faint" }, `${label ?? ""} ${probability === null ? "" : percent(probability)}${verdict}`))),
      ...maps.map(({ method, picture, gain }) => h("figure", {}, h("img", { src: picture, alt: `map of ${method}` }),
        h("figcaption", {}, method, gain === null ? null : h("span", { class: "faint" }, `insertion − deletion ${signed(gain)}`))))));
}

const toExplorer = () => (found.explorer ? [" ", h("a", { href: found.explorer }, "Look into them in the explorer"), "."] : []);

function buildPictures() {
  const apart = found.pictures.filter(({ why }) => why === "disagree");
  const worst = found.pictures.filter(({ why }) => why === "worst");
  $("apart").hidden = !apart.length;
  $("worst").hidden = !worst.length;
  $("apart-about").replaceChildren("Bright marks what a method ranks first. Where maps differ this much, only the table says which to believe.", ...toExplorer());
  $("apart-pictures").replaceChildren(...apart.map((each) => strip(each, `Apart by ${each.value.toFixed(2)} (0: alike, 1: unrelated)`)));
  $("worst-title").textContent = `The worst case of ${found.recommended}`;
  $("worst-about").textContent = "The photograph on which its first pixels carry least of the score.";
  $("worst-pictures").replaceChildren(...worst.map((each) => strip(each, `insertion − deletion is ${percent(each.value)} of the score`)));
}

function buildFolded() {
  buildFacts($("by-question"), found.questions.map(({ name, title }) => {
    const best = found.by_question[name];
    return [title, best ? `${best.method} (${signed(best.mean)})` : "none that passes it without failing another"];
  }));
  const head = ["method", "question", "", "mean", "interval", "n", ""];
  const rows = found.methods.flatMap((method) => found.questions.filter(({ name }) => method.answers[name].answer !== "none").map(({ name, measure }) => {
    const answer = method.answers[name];
    const note = answer.why || (answer.against ? `against ${answer.against}` : "");
    return h("tr", {}, h("th", { scope: "row" }, method.name), h("td", { title: measure }, name), h("td", {}, answer.mark),
      h("td", { class: "number" }, answer.mean === null ? "–" : signed(answer.mean)), h("td", { class: "number" }, spread(answer)),
      h("td", { class: "number" }, String(answer.n)), h("td", { class: "words" }, note));
  }));
  $("numbers").replaceChildren(h("thead", {}, h("tr", {}, ...head.map((word) => h("th", { scope: "col" }, word)))), h("tbody", {}, ...rows));
  $("schedule-about").textContent = `${seconds(found.seconds)} of ${seconds(found.budget)}, ${several(found.computed, "step")} computed now. Methods begin in the order of their cost, each on the same first images; those that can still be recommended go on to more images with the questions that are open.`;
  buildFacts($("schedule-facts"), [...Object.entries(found.dropped).map(([name, why]) => [name, `dropped early: ${why}`]), ...Object.entries(found.left_out)]);
  buildFacts($("limits"), found.questions.map(({ title, measure, limit, reason, below }) => [title, `${capital(measure)} ${below ? "below" : "above"} ${brief(limit)}. Why: ${reason}.`]));
  buildFacts($("facts"), [["network", found.network.model], ["fingerprint", found.network.fingerprint], ["images", found.data.spec],
    ["seed", String(found.seed)], ["protocol", found.protocol], ["intervals", "Student's t over images; exact binomial for black images; level by Benjamini and Hochberg over the whole table"],
    ["folder", found.folder], ["finished", found.finished], ["this page", `fei ${found.fei}`]]);
  buildSources($("sources"), [["Copy as command", "command", found.command]]);
}

function buildAll() {
  paintTheme();
  buildTable();
  buildCell();
}

async function start() {
  found = readPayload();
  buildHead();
  buildPictures();
  buildFolded();
  openShell(restore, buildAll);
  document.addEventListener("keydown", pressKey);
  restore();
}
