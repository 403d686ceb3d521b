// The filters, and the table of methods.

const withDigits = (value, column) => value.toFixed(column.digits);

/** A heading that sorts: a button in it, so that Enter does as well. */
function sortHead(words, name, chosen, ascending, number = true) {
  const arrow = chosen ? (ascending ? "▴" : "▾") : "";
  return h("th", { scope: "col", class: number ? "number" : null, "aria-sort": chosen ? (ascending ? "ascending" : "descending") : null },
    h("button", { type: "button", class: "sort", "data-sort": name }, words,
      h("span", { class: "arrow", "aria-hidden": "true" }, arrow)));
}

const headWords = (column) => {
  const own = column.protocol && !run.protocols.includes(column.protocol) ? ` ${column.protocol.split("/")[0]}` : "";
  return `${column.heading}${own}${column.layered ? " ᴸ" : ""}`;
};

// Filters

function buildFilters() {
  const pairs = run.pairs.map((pair) => [String(pair.number), pair.name]);
  options($("pair"), [["", `all ${pairs.length}`], ...pairs], state.pair === null ? "" : String(state.pair));
  $("pair-control").hidden = pairs.length < 2;
  options($("protocol"), run.protocols.map((one) => [one, one]), state.protocol);
  $("protocol-control").hidden = run.protocols.length < 2;
  const known = run.pairs.some((pair) => pair.correct?.some((one) => one < 2));
  $("truth-control").hidden = !known;
  document.querySelector(`input[name=truth][value=${state.truth}]`).checked = true;
  const counts = new Map();
  for (const pair of shownPairs()) {
    for (const one of pair.class ?? []) counts.set(pair.classes[one], (counts.get(pair.classes[one]) ?? 0) + 1);
  }
  const classes = [...counts].sort(([one], [other]) => (one < other ? -1 : 1));
  options($("class"), [["", `all ${counts.size}`], ...classes.map(([name, count]) => [`=${name}`, `${name} (${count})`])],
    state.class === null ? "" : `=${state.class}`);
  $("class-control").hidden = counts.size < 2;
  $("chips").replaceChildren(...run.methods.map(({ label }) => pick("checkbox", "shown", label, !state.hidden.has(label))));
  $("chips-control").hidden = run.methods.length < 2;
  $("clear").disabled = !filtered() && state.pair === null && !state.hidden.size;
}

// Rows

/** The rows of the table with what stands in their cells: { mean, low, high, images } by column, or null. */
function tableRows(columns) {
  return shownPairs().flatMap((pair) => {
    const items = shownItems(pair);
    const tested = Object.keys(pair.fired).map(Number).filter((method) => !pair.rows.includes(method));
    return [...pair.rows, ...tested].filter((method) => !state.hidden.has(run.methods[method].label)).map((method) => {
      const row = pair.rows.indexOf(method);
      const cells = columns.map(({ number }) => cellOf(pair, row, number, items));
      const [rate, low, high, images] = pair.fired[method] ?? [];
      return {
        pair, method, row, cells, fired: rate === undefined ? null : { mean: rate, low, high, images },
        images: Math.max(0, ...cells.map((cell) => cell?.images ?? 0)),
      };
    });
  });
}

function cellOf(pair, row, column, items) {
  const quantity = pair.columns[column] ?? null;
  if (row < 0 || quantity === null) return null;
  if (filtered()) return meanOver(pair, quantity, row, items);
  const stored = pair.estimates[row][column];
  return stored && { mean: stored[0], low: stored[1], high: stored[2], images: stored[3] };
}

/** Sorted by the chosen column; best first or, where neither end is better, highest; what is missing comes last. */
function sortRows(rows, columns) {
  const { sort, down } = state;
  if (!sort) return rows;
  const place = columns.findIndex(({ name }) => name === sort);
  const value = {
    method: ({ method }) => run.methods[method].label, pair: ({ pair }) => pair.name,
    images: ({ images }) => images, fired: ({ fired }) => fired?.mean,
  }[sort] ?? (({ cells }) => cells[place]?.mean);
  return sortedBy(rows, value, isAscending(sort, columns, down));
}

/** Whether low numbers come first. */
function isAscending(name, columns, bestFirst) {
  if (["method", "pair", "image", "class"].includes(name)) return bestFirst;
  const better = name === "fired" ? run.metrics.fired.better : columns.find((column) => column.name === name)?.better ?? true;
  return better !== bestFirst;
}

function sortedBy(rows, value, ascending) {
  const missing = (number) => number === null || number === undefined || Number.isNaN(number);
  return rows.sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (missing(a) || missing(b)) return Number(missing(a)) - Number(missing(b));
    return (ascending ? 1 : -1) * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
  });
}

/** The best of each column in each pair; what is not ranked takes no place. */
function bestOf(rows, columns) {
  return columns.map((column, i) => new Map(run.pairs.map((pair) => {
    const means = rows.filter((one) => one.pair === pair && run.methods[one.method].ranked)
      .map((one) => one.cells[i]?.mean).filter((mean) => mean !== undefined);
    return [pair, column.better === null || column.cost || !means.length ? null : Math[column.better ? "max" : "min"](...means)];
  })));
}

function numberCell(cell, text, best, images) {
  if (!cell) return h("td", { class: "number" }, "–");
  const spread = isFinite(cell.low ?? NaN) && cell.low < cell.high;
  const short = images !== undefined && cell.images < images;
  return h("td", { class: `number${best ? " best" : ""}`, title: short ? `of ${cell.images} images` : null },
    text(cell.mean), short ? h("sup", {}, "†") : null,
    spread ? h("span", { class: "interval" }, `${text(cell.low)} … ${text(cell.high)}`) : null);
}

function buildTable() {
  const columns = shownColumns();
  const tested = shownPairs().some((pair) => Object.keys(pair.fired).length);
  const rows = sortRows(tableRows(columns), columns);
  const best = bestOf(rows, columns);
  const several = shownPairs().length > 1;
  const head = (words, name, number) => sortHead(words, name, state.sort === name, isAscending(name, columns, state.down), number);
  $("scores").replaceChildren(
    h("thead", {}, h("tr", {}, head("Method", "method", false), several ? head("Network and data", "pair", false) : null,
      ...columns.map((column) => head(headWords(column), column.name, true)),
      tested ? head(`Black image ${run.metrics.fired.arrow}`, "fired", true) : null, head("Images", "images", true))),
    h("tbody", {}, ...rows.map((one) => {
      const chosen = state.row && state.row.pair === one.pair.number && state.row.method === one.method;
      const { label, control } = run.methods[one.method];
      return h("tr", { class: one.row < 0 ? null : "link", "data-pair": one.pair.number, "data-method": one.method, "data-chosen": Boolean(chosen) },
        h("th", { scope: "row" }, one.row < 0 ? label : h("button", { type: "button", class: "open" }, label),
          control ? h("span", { class: "where" }, "control") : null),
        several ? h("td", {}, one.pair.name) : null,
        ...columns.map((column, i) => numberCell(one.cells[i], (value) => withDigits(value, column),
          one.cells[i] && one.cells[i].mean === best[i].get(one.pair), one.images)),
        tested ? numberCell(one.fired, (value) => percent(value, 1), false) : null,
        h("td", { class: "number" }, one.images || "–"));
    })));
  buildNotes(rows, columns, tested);
}

function buildNotes(rows, columns, tested) {
  $("table-about").textContent = rows.length
    ? "Choose a row to see its images. ↑ higher is better, ↓ lower is better; a heading sorts."
    : "Nothing passes the filters.";
  const notes = [];
  const seeds = run.seeds.length > 1 ? `over ${run.seeds.length} seeds of the mean ` : "";
  if (filtered()) {
    const matching = shownPairs().map((pair) => `${shownItems(pair).length} of ${pair.images}`).join(", ");
    notes.push(`${matching} images pass the filters. Means (${seeds}over these images) are recomputed in this page; the `
      + "report’s intervals are of all images, and not shown.");
  } else if (columns.length) {
    notes.push(`Mean ${seeds}over the images and, below it, the 95 % bootstrap interval over the images, as in the report.`);
  }
  if (columns.some((column) => column.better !== null)) notes.push(["The best of a column is bold", ...run.methods.filter(({ ranked }) => !ranked).map(({ label }) => `${label} takes no place`)].join("; ") + ".");
  if (columns.some(({ layered }) => layered)) notes.push("ᴸ: at the last feature layer.");
  if (tested) notes.push("Black image: share of trials in which a class is found, with Wilson’s interval; filters do not touch it.");
  if (rows.some((one) => one.cells.some((cell) => cell && cell.images < one.images))) notes.push("†: of fewer images than others in its row.");
  $("table-note").textContent = notes.join(" ");
}
