// Elements, and the axes of small charts. All words go in as text, never as markup.

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

const laneWords = ({ logarithmic }) => (logarithmic ? "logarithmic" : "0 … 1");

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

/** How wide a chart is: half of its place where two stand side by side. */
function columnWidth(element) {
  const whole = Math.max(280, element.clientWidth || document.documentElement.clientWidth - 32);
  return Math.floor(matchMedia("(min-width: 800px)").matches ? (whole - 32) / 2 : whole);
}
