// Elements, and the axes of small charts. All words go in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name !== "style") element.setAttribute(name, value === true ? "" : String(value));
    else for (const [property, words] of Object.entries(value)) element.style.setProperty(property, words);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const $ = (id) => document.getElementById(id);

/** A box or a radio with its words. */
const pick = (type, name, value, checked, words = value) =>
  h("label", {}, h("input", { type, name, value, checked }), h("span", {}, words));

/** A class, its probability in words, and as a bar. */
const guessParts = ({ label, probability }, digits) => [h("span", { class: "word" }, label),
  h("span", { class: "share" }, percent(probability, digits)),
  h("span", { class: "bar", "aria-hidden": "true", style: { width: `${100 * probability}%` } })];

/** Fill a select: [[value, words]]. */
function options(select, choices, chosen) {
  select.replaceChildren(...choices.map(([value, words]) => h("option", { value }, words)));
  select.value = chosen;
}

const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A number in few letters: 0.0123, 4.1e-5, 1234. */
function brief(number) {
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size < 1e-3 || size >= 1e5) return number.toExponential(1);
  return size >= 100 ? number.toFixed(0) : Number(number.toPrecision(3)).toString();
}

/** A number as its metric writes it; formats are Python's. */
function written(value, format) {
  const digits = Number(format.match(/\d+/)?.[0] ?? 0);
  if (format.endsWith("g")) return brief(value);
  return format.endsWith("%") ? percent(value, digits) : value.toFixed(digits);
}

/** Where a value of a metric lies between the ends of a lane, 0 … 1; `values` are all that share the lane. */
function laneScale({ logarithmic }, values) {
  if (!logarithmic) {
    const low = Math.min(0, ...values);
    return (value) => (value - low) / (1 - low);
  }
  const positive = values.filter((value) => value > 0);
  const low = Math.log(Math.min(...positive)), high = Math.log(Math.max(...positive));
  return (value) => (value > 0 ? Math.max(0, (Math.log(value) - low) / (high - low || 1)) : 0);
}

const scaleOf = ([low, high], [from, to]) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

function ticksOf([low, high], count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + 1e-9 * step; tick += step) ticks.push(tick);
  return ticks;
}

/** Axes of a chart: `x` and `y` place values, `draw` draws a line. */
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
  const draw = (xs, ys, kind, title) => {
    const points = xs.map((value, i) => `${x(value).toFixed(2)},${y(ys[i]).toFixed(2)}`).join(" ");
    svg.append(s("polyline", { points, class: `line ${kind}` }, title ? s("title", {}, title) : null));
  };
  return { svg, x, y, draw, top, bottom: height - bottom };
}

/** The legend of the lines behind the chosen ones. */
function otherSeries(names) {
  if (!names.length) return null;
  return h("span", { class: "series other faint" }, names.length > 1 ? "other methods" : names[0]);
}

/** How wide a chart is: half of its place where two stand side by side. */
function columnWidth(element) {
  const whole = Math.max(280, element.clientWidth || document.documentElement.clientWidth - 32);
  return Math.floor(matchMedia("(min-width: 800px)").matches ? (whole - 32) / 2 : whole);
}

// Layers of a network, each with a lane in which the values of some columns stand

/** A table of layers; columns are { kind, head, title, values, texts }, the first in front. */
function laneTable(metric, about, place, names, columns) {
  return h("table", { class: "lanes", "data-metric": metric },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, about.heading),
      h("th", { scope: "col" }, about.logarithmic ? "logarithmic" : "0 … 1"),
      ...columns.map(({ kind, head, title }) => h("th", { scope: "col", class: `number ${kind}`, title }, head)))),
    h("tbody", {}, ...names.map((name, i) => {
      const dots = columns.filter(({ values }) => Number.isFinite(values[i])).map(({ kind, values }) =>
        h("span", { class: `dot ${kind}`, style: { left: `${100 * place(values[i])}%` } }));
      return h("tr", {}, h("th", { scope: "row" }, name),
        h("td", {}, h("div", { class: "lane", "aria-hidden": "true" }, ...dots.reverse())),
        ...columns.map(({ kind, texts }) => h("td", { class: `number ${kind}` }, texts[i])));
    })));
}
