// Inserted and deleted pictures, and the curves.

const PARTS = {
  insertion: (share) => `${percent(1 - share, 1)} most important left`,
  deletion: (share) => `${percent(share, 1)} most important gone`,
};

function buildScrubber(image) {
  $("scrub-about").textContent =
    "The very pictures that the scores come from. Insertion paints over the least important pixels and should keep the "
    + "class; deletion paints over as many of the most important and should lose it.";
  $("slots").replaceChildren(...chosenOf(image).map(({ slot, panel }) => h("div", { class: `slot ${slot}` },
    h("h3", {}, h("span", { class: "key" }, slot.toUpperCase()), panel.method),
    h("div", { class: "pair" }, ...Object.keys(PARTS).map((curve) => {
      const title = capital(data.metrics[curve].title);
      const canvas = h("canvas", { role: "img", id: `${curve}-${slot}`, "aria-label": `${title} picture of ${panel.method}` });
      return h("figure", {}, viewOf(canvas), h("figcaption", {},
        h("span", { class: "caption" }, h("span", {}, title), h("strong", { id: `${curve}-${slot}-score` })),
        h("span", { class: "faint", id: `${curve}-${slot}-what` }),
        h("ol", { class: "guesses", id: `${curve}-${slot}-guesses` })));
    })))));
}

function paintScrubber(image) {
  const count = roundHalfEven(state.fraction * image.pixels);
  const words = `${percent(state.fraction, 1)} replaced, ${count.toLocaleString("en")} of ${image.pixels.toLocaleString("en")} pixels`;
  $("fraction").value = String(state.fraction);
  $("fraction").setAttribute("aria-valuetext", words);
  $("fraction-text").textContent = percent(state.fraction, 1);
  $("fraction-text").title = words;
  for (const { slot, panel } of chosenOf(image)) {
    for (const curve of Object.keys(PARTS)) {
      const id = `${curve}-${slot}`;
      paintPerturbed($(id), image, panel, curve, state.fraction);
      $(`${id}-what`).textContent = PARTS[curve](count / image.pixels);
      const course = panel[curve];
      const here = course ? valueAt(course.fractions, course.scores, state.fraction, image.pixels) : null;
      $(`${id}-score`).textContent = course ? told(here, isShare(image) ? (value) => percent(value, 1) : brief) : "";
      paintGuesses($(`${id}-guesses`), image, panel, curve);
    }
  }
}

function paintGuesses(list, image, panel, curve) {
  const points = panel.top[curve];
  if (!points || !panel[curve]) return;
  const near = nearest(panel[curve].fractions, state.fraction);
  list.replaceChildren(...points[near].map((guess) =>
    h("li", { class: guess.index === image.target.index ? "target" : null }, ...guessParts(guess))));
  const at = percent(panel[curve].fractions[near]);
  list.setAttribute("aria-label", `Best classes at ${at} replaced`);
}

function paintCurves(image) {
  const chosen = chosenOf(image).filter(({ panel }) => panel.insertion);
  $("curves").hidden = $("curve-note").hidden = !chosen.length;
  if (!chosen.length) return;
  const width = columnWidth($("curves"));
  const elsewhere = [state.a, state.b, ...state.hidden];
  const others = image.panels.filter(({ method, insertion }) => insertion && !elsewhere.includes(method));
  $("curves").replaceChildren(...Object.keys(PARTS).map((curve) => h("figure", { class: "chart", "data-curve": curve },
    h("figcaption", {}, h("strong", {}, data.metrics[curve].heading),
      ...chosen.map(({ slot, panel }) => h("span", { class: `series ${slot}` },
        `${panel.method} ${written(panel[curve].auc, data.metrics[curve].format)}`)),
      otherSeries(others.map(({ method }) => method))),
    curveChart(width, image, curve, chosen, others))));
  $("curve-note").textContent =
    `${image.score === "softmax" ? "Probability" : image.score} of ${image.target.label} under ${image.protocol}; beside `
    + "each name, the score of the whole curve. A full marker is a measured point; a hollow one, and a number with ≈, is "
    + "interpolated between two. Drag on a curve to scrub. Best classes are those at the nearest measured point.";
}
