"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
/* What has been drawn: tests read it from the document's element. */
const DRAWN = { charts: 0, marks: 0, errors: 0 };
window.addEventListener("error", () => { DRAWN.errors += 1; document.documentElement.dataset.errors = DRAWN.errors; });

const colour = (scheme) => `var(--c${scheme % 8})`;

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/* Chart marks (bars, lines, dots, bands, links) are counted; text and ticks are not. */
const MARKS = new Set(["rect", "path", "circle", "polyline"]);
function svg(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  if (MARKS.has(name)) DRAWN.marks += 1;
  return made;
}

function chart(width, height, label) {
  DRAWN.charts += 1;
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

const text = (x, y, words, attributes) => svg("text", { x, y, ...attributes }, words);
const line = (x1, y1, x2, y2, kind) => svg("line", { x1, y1, x2, y2, class: kind });
const titled = (mark, words) => { mark.append(svg("title", {}, words)); return mark; };

function linear(low, high, from, to) {
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

function logarithmic(low, high, from, to) {
  const scale = linear(Math.log(low), Math.log(high), from, to);
  return (value) => scale(Math.log(Math.max(value, low)));
}

/* Round steps that cover a range: 1, 2 or 5 times a power of ten. */
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9) + 1e-12; at += 1) found.push(at * step);
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  return found;
}

const trim = (value) => Number(value.toPrecision(3)).toString();

/* A value as its metric is read; names carry units. */
function show(metric, value) {
  if (metric.endsWith("_s")) {
    if (value === 0) return "0";
    if (Math.abs(value) < 0.9995e-3) return `${trim(value * 1e6)} µs`;
    return Math.abs(value) < 0.9995 ? `${trim(value * 1e3)} ms` : `${trim(value)} s`;
  }
  if (metric.endsWith("_percent")) return `${trim(value)} %`;
  if (Math.abs(value) >= 1e6) return `${trim(value / 1e6)} M`;
  if (Math.abs(value) >= 1e4) return `${trim(value / 1e3)} k`;
  return trim(value);
}

function showBytes(bytes) {
  if (bytes >= 2 ** 20) return `${trim(bytes / 2 ** 20)} MB`;
  return bytes >= 1024 ? `${trim(bytes / 1024)} KB` : `${bytes} B`;
}

const metricPlace = (name) => DATA.metrics.findIndex((metric) => metric.name === name);

function schemeKey(schemes) {
  return element("ul", { class: "key" }, schemes.map((scheme) =>
    element("li", {}, element("i", { style: `background:${colour(scheme)}` }), DATA.schemes[scheme])));
}

/* Text in which `this` is code. */
const prose = (words) => words.split("`").map((part, place) => (place % 2 ? element("code", {}, part) : part));

function card(title, note, ...content) {
  return element("section", { class: "card" }, element("h3", {}, title),
    note ? element("p", { class: "faint" }, note) : null, content);
}
