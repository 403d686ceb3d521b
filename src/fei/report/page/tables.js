// How far methods agree, their scores, and how the page was made.

function buildAgreement(image) {
  $("agreement").hidden = image.panels.length < 2;
  const names = image.panels.map((panel) => panel.method);
  $("matrix").replaceChildren(
    h("thead", {}, h("tr", {}, h("td", {}), ...names.map((name) => h("th", { scope: "col" }, h("span", {}, name))))),
    h("tbody", {}, ...names.map((first, i) => h("tr", {}, h("th", { scope: "row" }, first),
      ...names.map((second, j) => matrixCell(first, second, image.agreement[i][j]))))));
  const { a, b } = state;
  $("difference").closest("figure").hidden = b === null;
  if (b === null) return;
  paintDifference($("difference"), image, image.byName.get(a), image.byName.get(b));
  $("difference").setAttribute("role", "img");
  $("difference").setAttribute("aria-label", `Where ${a} and ${b} rank pixels differently`);
  const rho = image.agreement[names.indexOf(a)][names.indexOf(b)];
  $("difference-text").textContent =
    `Blue: ${b} ranks the pixel higher. Red: ${a} does. Grey: they agree. ρ = ${signed(rho)}.`;
}

/** Two decimals; what rounds to nothing has no sign. */
const signed = (number) => (Math.abs(number) < 0.005 ? "0.00" : number.toFixed(2).replace("-", "−"));

function matrixCell(first, second, rho) {
  if (first === second) return h("td", { class: "self" }, "–");
  const pressed = (first === state.a && second === state.b) || (first === state.b && second === state.a);
  return h("td", {}, h("button", {
    type: "button", "data-a": first, "data-b": second, "aria-pressed": String(pressed),
    "aria-label": `${first} and ${second}: ${signed(rho)}`, style: { "--strength": `${Math.round(Math.abs(rho) * 55)}%` },
  }, signed(rho)));
}

// Scores

/** Columns of the table: titles, directions and formats are those that Python declares for the metric. */
const COLUMNS = [
  { name: "insertion", value: (p) => p.insertion?.auc },
  { name: "deletion", value: (p) => p.deletion?.auc },
  { name: "cosine", value: (p) => p.layers?.mean.cosine.at(-1) },
  { name: "relevant_cosine", value: (p) => p.layers?.mean.relevant_cosine?.at(-1) },
  { name: "mse", value: (p) => p.layers?.mean.mse.at(-1) },
  { name: "ties", value: (p) => p.ties },
  { name: "passes", cost: true, value: (p) => p.cost?.forwards, format: (v, p) => `${v} + ${p.cost.backwards}` },
  { name: "seconds", cost: true, value: (p) => p.cost?.seconds },
];

const headOf = ({ name, cost }) => (cost ? capital(data.metrics[name]?.title ?? name) : data.metrics[name].heading);

/** The best value of a column; costs and what has no direction have none. */
function bestValue({ name, cost, value }, panels) {
  const better = cost ? null : data.metrics[name].better;
  return better === null ? undefined : Math[better ? "max" : "min"](...panels.map(value).filter(isThere));
}

const isThere = (value) => value !== null && value !== undefined;

function buildScores(image) {
  const columns = COLUMNS.filter(({ value }) => image.panels.some((panel) => isThere(value(panel))));
  const tested = image.panels.some((panel) => panel.blackImage);
  $("scores").closest("section").hidden = !columns.length && !tested;
  const deepest = image.panels.find((panel) => panel.layers)?.layers.names.at(-1);
  $("scores-about").textContent = `Under ${image.protocol}, seed ${image.seed}.`
    + (deepest ? ` Cosine and MSE are means over the insertion curve at the deepest layer, ${deepest}.` : "")
    + " Ties: pixels whose value another pixel has too. Passes: forward + backward. The best of a column is bold.";
  const best = columns.map((column) => bestValue(column, image.panels));
  $("scores").replaceChildren(
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Method"),
      ...columns.map((column) => h("th", { scope: "col", class: "number" }, headOf(column))),
      tested ? h("th", { scope: "col" }, `Black image ${data.metrics.fired.arrow}`) : null)),
    h("tbody", {}, ...image.panels.map((panel) => h("tr", {}, h("th", { scope: "row" }, panel.method, markOf(panel)),
      ...columns.map(({ name, value, format }, i) => {
        const number = value(panel);
        if (!isThere(number)) return h("td", { class: "number" }, "–");
        return h("td", { class: `number${number === best[i] ? " best" : ""}` },
          format?.(number, panel) ?? written(number, data.metrics[name].format));
      }),
      tested ? h("td", {}, badgeOf(panel.blackImage, true) ?? "–") : null))));
}

// How this was made

function buildHow(image) {
  buildFacts($("facts"), Object.entries(image.provenance));
  const sources = [["Copy as command", "command", image.command], ["Copy as code", "code", image.code]];
  buildSources($("sources"), sources.filter(([, , text]) => text));
  $("options").replaceChildren(...image.panels.map((panel) => h("div", { class: "options" },
    h("h3", {}, panel.method),
    h("p", { class: "faint" }, Object.entries(panel.config).map(([name, value]) => `${name} = ${value}`).join(", ") || "no options"),
    ...panel.notes.map((note) => h("p", { class: "faint" }, note)))));
}
