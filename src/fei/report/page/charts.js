// Elements and small charts. All words go in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const $ = (id) => document.getElementById(id);

const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;

/** A number in few letters: 0.0123, 4.1e-5, 1234. */
function brief(number) {
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size < 1e-3 || size >= 1e5) return number.toExponential(1);
  return size >= 100 ? number.toFixed(0) : Number(number.toPrecision(3)).toString();
}

const scaleOf = ([low, high], [from, to]) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

function polyline(xs, ys, x, y, kind) {
  const points = xs.map((value, i) => `${x(value).toFixed(2)},${y(ys[i]).toFixed(2)}`).join(" ");
  return s("polyline", { points, class: `line ${kind}` });
}

function ticksOf([low, high], count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + 1e-9 * step; tick += step) ticks.push(tick);
  return ticks;
}

/** Axes of a chart: `frame.x` and `frame.y` place values, `frame.svg` takes lines. */
function axes({ width, height, xDomain, yDomain, xLabel, xFormat, yFormat, label }) {
  const left = 42, right = 22, top = 10, bottom = 34;
  const x = scaleOf(xDomain, [left, width - right]);
  const y = scaleOf(yDomain, [height - bottom, top]);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  for (const tick of ticksOf(yDomain, 4)) {
    svg.append(s("line", { class: "rule", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
    svg.append(s("text", { class: "tick end", x: left - 6, y: y(tick) + 4 }, yFormat(tick)));
  }
  for (const tick of ticksOf(xDomain, 4)) {
    svg.append(s("text", { class: "tick middle", x: x(tick), y: height - bottom + 15 }, xFormat(tick)));
  }
  svg.append(s("text", { class: "tick end", x: width - 2, y: height - 4 }, xLabel));
  return { svg, x, y, top, bottom: height - bottom };
}

/** Scores over replaced fractions: the two chosen methods in front of the others, and where the scrubber is. */
function curveChart(width, image, curve, chosen, others) {
  const all = [...chosen.map((one) => one.panel), ...others].map((panel) => panel[curve]).filter(Boolean);
  const scores = all.flatMap((one) => one.scores);
  const isShare = image.score === "softmax" || image.score === "sigmoid";
  const low = Math.min(0, ...scores), high = Math.max(isShare ? 1 : -Infinity, ...scores);
  const frame = axes({
    width, height: Math.round(Math.min(280, Math.max(200, width * 0.52))), xDomain: [0, 1], yDomain: [low, high],
    xLabel: "pixels replaced", xFormat: (share) => percent(share), yFormat: brief,
    label: `${curve} curve: ${image.score} of ${image.target.label} over the share of pixels replaced`,
  });
  for (const panel of others) {
    if (!panel[curve]) continue;
    const line = polyline(panel[curve].fractions, panel[curve].scores, frame.x, frame.y, "other");
    line.append(s("title", {}, panel.method));
    frame.svg.append(line);
  }
  const at = frame.x(state.fraction);
  frame.svg.append(s("line", { class: "cursor", x1: at, x2: at, y1: frame.top, y2: frame.bottom }));
  for (const { slot, panel } of [...chosen].reverse()) {
    const course = panel[curve];
    if (!course) continue;
    frame.svg.append(polyline(course.fractions, course.scores, frame.x, frame.y, slot));
    const here = valueAt(course.fractions, course.scores, state.fraction, image.pixels);
    if (here) {
      frame.svg.append(s("circle", {
        class: `marker ${slot}${here.measured ? " measured" : ""}`, cx: at, cy: frame.y(here.value), r: 5.5,
      }));
    }
  }
  frame.svg.classList.add("draggable");
  frame.svg.dataset.from = frame.x(0);
  frame.svg.dataset.to = frame.x(1);
  return frame.svg;
}

/** Courses of an optimisation, one line a mask; the marked one in front. */
function courseChart(width, courses, marked, names, slot, yDomain, label) {
  const steps = Math.max(1, ...courses.map((course) => course.length - 1));
  const frame = axes({
    width, height: 150, xDomain: [0, steps], yDomain, xLabel: "step", xFormat: brief, yFormat: brief, label,
  });
  const order = courses.map((_, i) => i).filter((i) => i !== marked);
  for (const i of marked === null ? order : [...order, marked]) {
    const line = polyline(courses[i].map((_, step) => step), courses[i], frame.x, frame.y, i === marked ? slot : "other");
    line.append(s("title", {}, names[i]));
    frame.svg.append(line);
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
    const column = s("rect", {
      class: `column ${slot}`, x: frame.x(i) + step * 0.12, width: Math.max(0.5, step * 0.76),
      y: frame.y(shares[i]), height: Math.max(0, frame.bottom - frame.y(shares[i])),
    }, s("title", {}, `${name}: ${percent(shares[i], 1)}`));
    frame.svg.append(column);
  });
  return frame.svg;
}
