// The charts of the explorer.

/**
 * Scores over the share of pixels shown (insertion, which rises) or removed (deletion, which falls): the two chosen
 * methods in front of the others, and where the scrubber is.
 */
function curveChart(width, image, curve, chosen, others) {
  const scores = [...chosen.map(({ panel }) => panel), ...others].flatMap((panel) => panel[curve].scores);
  const low = Math.min(0, ...scores), high = Math.max(isShare(image) ? 1 : -Infinity, ...scores);
  const place = (share) => (curve === "insertion" ? 1 - share : share);
  const axis = curve === "insertion" ? "pixels shown" : "pixels removed";
  const frame = axes({
    width, height: Math.round(Math.min(280, Math.max(200, width * 0.52))), xDomain: [0, 1], yDomain: [low, high],
    xLabel: axis, xFormat: (share) => percent(share), yFormat: brief,
    label: `${curve} curve: ${image.score} of ${image.target.label} over the share of ${axis}`,
  });
  for (const panel of others) frame.draw(panel[curve].fractions.map(place), panel[curve].scores, "other", panel.method);
  const at = frame.x(place(state.fraction));
  frame.svg.append(s("line", { class: "cursor", x1: at, x2: at, y1: frame.top, y2: frame.bottom }));
  for (const { slot, panel } of [...chosen].reverse()) {
    const { fractions, scores: course } = panel[curve];
    frame.draw(fractions.map(place), course, slot);
    const here = valueAt(fractions, course, state.fraction, image.pixels);
    if (here) {
      frame.svg.append(s("circle", {
        class: `marker ${slot}${here.measured ? " measured" : ""}`, cx: at, cy: frame.y(here.value), r: 5.5,
      }));
    }
  }
  frame.svg.classList.add("draggable");
  frame.svg.dataset.from = frame.x(place(0));
  frame.svg.dataset.to = frame.x(place(1));
  return frame.svg;
}

/** Courses of an optimisation, one line a mask; the marked one in front. */
function courseChart(width, courses, marked, names, slot, yDomain, label) {
  const steps = Math.max(1, ...courses.map((course) => course.length - 1));
  const frame = axes({
    width, height: 150, xDomain: [0, steps], yDomain, xLabel: "step", xFormat: brief, yFormat: brief, label,
  });
  const order = [...courses.keys()].filter((i) => i !== marked);
  for (const i of marked === null ? order : [...order, marked]) {
    frame.draw([...courses[i].keys()], courses[i], i === marked ? slot : "other", names[i]);
  }
  return frame.svg;
}

/** Shares from 0 to 1 as columns, one a clip site, in the order of the network. */
function columnChart(width, names, shares, slot, label) {
  const frame = axes({
    width, height: 130, xDomain: [0, names.length], yDomain: [0, 1], xLabel: "clip site, from shallow to deep",
    xFormat: brief, yFormat: (share) => percent(share), label,
  });
  const step = frame.x(1) - frame.x(0);
  names.forEach((name, i) => {
    frame.svg.append(s("rect", {
      class: `column ${slot}`, x: frame.x(i) + step * 0.12, width: Math.max(0.5, step * 0.76),
      y: frame.y(shares[i]), height: Math.max(0, frame.bottom - frame.y(shares[i])),
    }, s("title", {}, `${name}: ${percent(shares[i], 1)}`)));
  });
  return frame.svg;
}

/** Numbers of blocks, the mean over heads before a band from the least to the greatest; a block's points tell all of them. */
function blockChart(width, about, found) {
  const spans = found.map(({ mean, heads }) => mean.map((value, i) => [value, ...["min", "max"].map((end) => Math[end](...(heads?.[i] ?? [value])))]));
  const all = spans.flat(2);
  const frame = axes({
    width, height: 190, xDomain: [0, Math.max(1, spans[0].length - 1)], yDomain: [Math.min(0, ...all), about.better ? 1 : Math.max(0.01, ...all)],
    xLabel: "block, from shallow to deep", xFormat: (block) => (Number.isInteger(block) ? block : ""), yFormat: brief,
    label: `${about.title} block by block: ${found.map(({ method }) => method).join(", ")}`,
  });
  const words = found[0].names.map((name, i) => [name, ...found.map(({ method, heads }, which) => {
    const [mean, low, high] = spans[which][i].map((value) => written(value, about.format));
    return `${method}: ${mean}${heads ? `, heads ${low} to ${high}` : ""}`;
  })].join("\n"));
  for (const which of [...found.keys()].reverse()) {
    const { slot, method, mean, heads } = found[which];
    const edge = (end) => spans[which].map((span, i) => `${frame.x(i).toFixed(2)},${frame.y(span[end]).toFixed(2)}`);
    if (heads) frame.svg.append(s("polygon", { class: `band ${slot}`, points: [...edge(1), ...edge(2).reverse()].join(" ") }));
    frame.draw([...mean.keys()], mean, slot, method);
    frame.svg.append(...mean.map((value, i) =>
      s("circle", { class: `point ${slot}`, cx: frame.x(i), cy: frame.y(value), r: 3 }, s("title", {}, words[i]))));
  }
  return frame.svg;
}
