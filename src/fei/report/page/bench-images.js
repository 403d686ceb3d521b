// The images of one method on one pair.

const chosenPair = () => run.pairs[state.row.pair];
const chosenRow = () => chosenPair().rows.indexOf(state.row.method);

/** What images are in order of, if nothing was chosen: the first score of the table. */
const firstScore = (columns) => columns.find(({ better, cost }) => better !== null && !cost)?.name ?? "image";

/** The chosen method's images that pass the filters, in their order: [{ item, values }]. */
function orderedImages() {
  const pair = chosenPair(), row = chosenRow(), columns = shownColumns();
  const images = shownItems(pair).map((item) => ({
    item, values: columns.map(({ number }) => (pair.columns[number] === null ? NaN : imageMean(pair, pair.columns[number], row, item))),
  }));
  const order = state.order || firstScore(columns);
  const ascending = imagesAscending(order, columns);
  const place = columns.findIndex(({ name }) => name === order);
  const value = {
    image: ({ item }) => pair.items[item], class: ({ item }) => pair.classes[pair.class[item]],
    probability: ({ item }) => pair.probability[item], truth: ({ item }) => (pair.correct[item] < 2 ? pair.correct[item] : NaN),
  }[order] ?? (({ values }) => values[place]);
  return sortedBy(images, value, ascending);
}

/** Worst first: low numbers where high ones are better. Names begin with the first letter. */
function imagesAscending(order, columns) {
  if (["image", "class", "probability", "truth"].includes(order)) return state.worst;
  return isAscending(order, columns, !state.worst);
}

function truthBadge(pair, item) {
  const known = pair.correct[item];
  return known > 1 ? "–" : h("span", { class: `badge ${known ? "good" : "bad"}` }, known ? "right" : "wrong");
}

/** Why a unit of an image has no numbers, if one has none. */
function troubleOf(pair, row, item) {
  return pair.seeds.map((_, seed) => stateOf(pair, unitAt(pair, row, item, seed))).find((words) => words !== "done");
}

/** The name of the file, to choose it, and below it its folder. */
function imageName(path) {
  const cut = path.lastIndexOf("/");
  return [h("button", { type: "button", class: "open" }, path.slice(cut + 1)),
    cut > 0 ? h("span", { class: "where" }, path.slice(0, cut)) : null];
}

function buildImages() {
  $("images").hidden = !state.row;
  if (!state.row) return;
  const pair = chosenPair(), row = chosenRow(), columns = shownColumns(), images = orderedImages();
  const order = state.order || firstScore(columns);
  const truths = pair.correct.some((one) => one < 2);
  $("images-title").textContent = `Images of ${run.methods[state.row.method].label}`;
  $("images-about").textContent = `${run.pairs.length > 1 ? `${pair.name}. ` : ""}${images.length}${filtered() ? ` of ${pair.images}` : ""} images`
    + `${run.seeds.length > 1 ? `, means over ${run.seeds.length} seeds` : ""}. Choose one to see its map, curves and layers.`;
  const head = (words, name, number) => sortHead(words, name, order === name, imagesAscending(name, columns), number);
  $("image-table").replaceChildren(
    h("thead", {}, h("tr", {}, head("Image", "image", false), head("Explained class", "class", false),
      head("Probability", "probability", true), truths ? head("Prediction", "truth", false) : null,
      ...columns.map((column) => head(headWords(column), column.name, true)))),
    h("tbody", {}, ...images.slice(0, state.most).map(({ item, values }) => {
      const trouble = troubleOf(pair, row, item);
      return h("tr", { class: "link", "data-item": item, "data-chosen": item === state.image },
        h("th", { scope: "row" }, ...imageName(pair.items[item]),
          trouble ? h("span", { class: "where failure" }, trouble) : null),
        h("td", { class: "words" }, pair.classes[pair.class[item]]),
        h("td", { class: "number" }, Number.isNaN(pair.probability[item]) ? "–" : percent(pair.probability[item], 1)),
        truths ? h("td", {}, truthBadge(pair, item)) : null,
        ...values.map((value, i) => h("td", { class: "number" }, Number.isNaN(value) ? "–" : withDigits(value, columns[i]))));
    })));
  const left = images.length - state.most;
  $("more").hidden = left <= 0;
  $("more").textContent = `Show ${Math.min(left, 100)} more`;
  $("images-note").textContent = left > 0 ? `The first ${state.most} of ${images.length} are shown.` : "";
}
