/* Lines: a measure along an axis, the tail of single packets, slowdown by size, flows under way over time. */

const PLOT = { width: 460, height: 294, left: 58, right: 14, top: 24, bottom: 40 };

/* Axes with their ticks and labels; the vertical axis has its label above it. */
function frame(drawing, xs, ys, xLabel, yLabel) {
  const { width, height, left, right, top, bottom } = PLOT;
  for (const [at, words] of ys) {
    drawing.append(line(left, at, width - right, at, "tick"));
    drawing.append(text(left - 8, at + 4, words, { class: "soft", "text-anchor": "end" }));
  }
  for (const [at, words] of xs) {
    drawing.append(line(at, top, at, height - bottom, "tick"));
    drawing.append(text(at, height - bottom + 17, words, { class: "soft", "text-anchor": "middle" }));
  }
  drawing.append(line(left, height - bottom, width - right, height - bottom, "axis"));
  if (yLabel) drawing.append(text(0, 11, yLabel, { class: "soft" }));
  drawing.append(text((left + width - right) / 2, height - 4, xLabel, { class: "soft", "text-anchor": "middle" }));
}

const path = (points) => points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/* Ticks that do not run into each other. */
function thinned(values, scale, gap) {
  let last = -Infinity;
  return values.filter((value) => {
    const at = scale(value), keeps = Math.abs(at - last) >= gap;
    if (keeps) last = at;
    return keeps;
  });
}

/* Points that are numbers in order are joined by a line; names are not, and get bars. */
const isScale = () => DATA.points.every((point) => /^[0-9.]/.test(point));

/* The interval of confidence, upright. */
function whisker(drawing, x, y, [, low, high]) {
  if (!(high > low)) return;
  drawing.append(line(x, y(Math.max(low, 0)), x, y(high), "whisker"));
  for (const edge of [low, high].filter((edge) => edge >= 0)) drawing.append(line(x - 3.5, y(edge), x + 3.5, y(edge), "whisker"));
}

function drawSweep(name) {
  const place = metricPlace(name), { width, height, left, right, top, bottom } = PLOT;
  const present = DATA.cells.filter((cell) => cell.values[place]);
  const high = Math.max(...present.map((cell) => cell.values[place][2])) * 1.05 || 1;
  const isLine = isScale(), slot = (width - left - right) / DATA.points.length;
  const x = isLine ? linear(0, Math.max(DATA.points.length - 1, 1), left + 14, width - right - 14)
    : (point) => left + slot * (point + 0.5);
  const y = linear(0, high, height - bottom, top);
  const drawing = chart(width, height, `${DATA.metrics[place].title} by ${DATA.axis}`);
  const every = Math.ceil(DATA.points.length / 7);
  frame(drawing, DATA.points.map((point, index) => [x(index), index % every ? "" : point]),
    ticks(0, high, 5).map((tick) => [y(tick), show(name, tick)]), DATA.axis, DATA.metrics[place].title);
  DATA.schemes.forEach((scheme, index) => {
    const cells = present.filter((cell) => cell.scheme === index).sort((a, b) => a.point - b.point);
    if (!cells.length) return;
    const points = cells.map((cell) => [x(cell.point), y(cell.values[place][0])]);
    if (!isLine) {
      const wide = Math.min(26, (slot * 0.8) / DATA.schemes.length);
      cells.forEach((cell, at) => {
        const from = points[at][0] + wide * (index - DATA.schemes.length / 2), height = Math.max(y(0) - points[at][1], 1);
        const bar = svg("rect", { x: from + 1, y: y(0) - height, width: wide - 2, height, rx: 2, fill: colour(index) });
        drawing.append(titled(bar, `${scheme}, ${DATA.points[cell.point]}: ${cell.values[place][3]}`));
        whisker(drawing, from + wide / 2, y, cell.values[place]);
      });
      return;
    }
    drawing.append(svg("path", { class: "line", d: path(points), stroke: colour(index) }));
    cells.forEach((cell, at) => {
      whisker(drawing, points[at][0], y, cell.values[place]);
      const dot = svg("circle", { cx: points[at][0], cy: points[at][1], r: 3.5, fill: colour(index) });
      drawing.append(titled(dot, `${scheme}, ${DATA.points[cell.point]}: ${cell.values[place][3]}`));
    });
  });
  return card(DATA.metrics[place].title, null, drawing);
}

/* 90 % to 99.9 %, each nine as high as the one before. */
function drawTail(point) {
  const cells = DATA.cells.filter((cell) => cell.point === point && cell.tail.length);
  if (!cells.length) return null;
  const { width, height, left, right, top, bottom } = PLOT;
  const all = cells.flatMap((cell) => cell.tail), low = Math.min(...all) * 0.95, high = Math.max(...all) * 1.05;
  const x = logarithmic(low, high, left, width - right);
  const y = logarithmic(0.0008, 0.1, top, height - bottom);
  const drawing = chart(width, height, "completion times of single packets, 90 % to 99.9 %");
  frame(drawing, thinned(logTicks(low, high), x, 52).map((tick) => [x(tick), show("_s", tick)]),
    [0.9, 0.95, 0.99, 0.995, 0.999].map((share) => [y(1 - share), `${trim(share * 100)} %`]), "completion time", "share of single packets");
  for (const cell of cells) {
    const points = cell.tail.map((value, place) => [x(value), y(1 - DATA.shares[place])]);
    const curve = svg("path", { class: "line", d: path(points), stroke: colour(cell.scheme) });
    drawing.append(titled(curve, DATA.schemes[cell.scheme]));
  }
  const at = DATA.points[point] ? `${DATA.axis} ${DATA.points[point]}: ` : "";
  return card("Single packets, the slowest tenth", `${at}share of them done within a time; further left is better`, drawing,
    schemeKey(cells.map((cell) => cell.scheme)));
}

function drawSizes(point) {
  const cells = DATA.cells.filter((cell) => cell.point === point && cell.sizes.length > 1);
  if (!cells.length) return null;
  const { width, height, left, right, top, bottom } = PLOT;
  const sizes = [...new Set(cells.flatMap((cell) => cell.sizes.map((entry) => entry[0])))].sort((a, b) => a - b);
  const high = Math.max(...cells.flatMap((cell) => cell.sizes.map((entry) => entry[2]))) * 1.1;
  const x = linear(0, Math.max(sizes.length - 1, 1), left + 16, width - right - 16);
  const y = logarithmic(1, Math.max(high, 2), height - bottom, top);
  const drawing = chart(width, height, "slowdown by size of the flow");
  const words = (size) => size > 2 ** 40 ? "more" : `≤ ${showBytes(size)}`;
  frame(drawing, sizes.map((size, place) => [x(place), place % 2 ? "" : words(size)]),
    thinned(logTicks(1, Math.max(high, 2)), y, 18).map((tick) => [y(tick), `${trim(tick)}×`]), "size of the flow", "slowdown");
  for (const cell of cells) {
    for (const [column, dash] of [[2, null], [1, "3 4"]]) {
      const points = cell.sizes.map((entry) => [x(sizes.indexOf(entry[0])), y(entry[column])]);
      const curve = svg("path", { class: "line", d: path(points), stroke: colour(cell.scheme), "stroke-dasharray": dash });
      drawing.append(titled(curve, `${DATA.schemes[cell.scheme]}, ${column === 2 ? "99 %" : "median"}`));
    }
  }
  const at = DATA.points[point] ? `${DATA.axis} ${DATA.points[point]}; ` : "";
  return card("Slowdown by size", `${at}solid: 99 %, dashed: median`, drawing, schemeKey(cells.map((cell) => cell.scheme)));
}

/* A line that goes on rising says that the run is shorter than the network takes to settle, or that it never settles. */
function drawHistory(point) {
  const cells = DATA.cells.filter((cell) => cell.point === point && cell.history.length);
  if (!cells.length) return null;
  const { width, height, left, right, top, bottom } = PLOT;
  const end = Math.max(...cells.map((cell) => cell.history.at(-1)[0]));
  const high = Math.max(...cells.flatMap((cell) => cell.history.map((entry) => entry[1]))) * 1.05 || 1;
  const x = linear(0, end, left, width - right), y = linear(0, high, height - bottom, top);
  const drawing = chart(width, height, "flows under way over time");
  frame(drawing, ticks(0, end, 6).map((tick) => [x(tick), `${trim(tick)} ms`]),
    ticks(0, high, 5).map((tick) => [y(tick), show("flows", tick)]), "time, while flows arrive", "flows under way");
  for (const cell of cells) {
    const points = [[x(0), y(0)], ...cell.history.map((entry) => [x(entry[0]), y(entry[1])])];
    const curve = svg("path", { class: "line", d: path(points), stroke: colour(cell.scheme) });
    drawing.append(titled(curve, DATA.schemes[cell.scheme]));
  }
  const at = DATA.points[point] ? `${DATA.axis} ${DATA.points[point]}; ` : "";
  return card("Flows under way", `${at}flat: the network has settled; rising: a longer run would show more`, drawing,
    schemeKey(cells.map((cell) => cell.scheme)));
}
