/* Bars beside the paper's band, and bars of a measure by scheme. */

function panelRange(panel) {
  const values = panel.rows.flatMap((row) => [row.value, row.low, row.high]).concat(panel.band, [panel.neutral, 0]);
  const known = values.filter((value) => value !== null && value !== undefined);
  const low = Math.min(...known), high = Math.max(...known), margin = (high - low || 1) * 0.08;
  return [low < 0 ? low - margin : 0, high + margin];
}

/* The paper's band behind the rows; a side without a limit fades out. */
function drawBand(panel, scale, range, top, bottom, identity) {
  const [low, high] = panel.band;
  const from = scale(low === null ? range[0] : low), to = scale(high === null ? range[1] : high);
  const open = low === null ? "low" : high === null ? "high" : null;
  const marks = [];
  let fill = null;
  if (open) {
    const stops = open === "low" ? [0.0, 0.9] : [0.9, 0.0];
    marks.push(svg("defs", {}, svg("linearGradient", { id: identity }, stops.map((opacity, place) =>
      svg("stop", { offset: place, "stop-color": "var(--band)", "stop-opacity": opacity })))));
    fill = `fill:url(#${identity})`;
  }
  const band = svg("rect", { class: "band", x: from, y: top, width: Math.max(to - from, 2), height: bottom - top, style: fill });
  marks.push(titled(band, `the paper: ${panel.paper}`));
  if (low !== null) marks.push(line(from, top, from, bottom, "band-edge"));
  if (high !== null) marks.push(line(to, top, to, bottom, "band-edge"));
  return marks;
}

function drawPanel(panel, place) {
  const hasPoints = new Set(panel.rows.map((row) => row.point)).size > 1;
  const width = 490, labels = hasPoints ? 216 : 140, values = 66, row = 28, top = 6;
  const bottom = top + panel.rows.length * row, range = panelRange(panel);
  const scale = linear(range[0], range[1], labels, width - values);
  const drawing = chart(width, bottom + 38, `${panel.claim}: the paper says ${panel.paper}`);
  for (const tick of ticks(range[0], range[1], 5)) {
    drawing.append(line(scale(tick), top, scale(tick), bottom, "tick"));
    drawing.append(text(scale(tick), bottom + 16, trim(tick), { class: "soft", "text-anchor": "middle" }));
  }
  drawing.append(text((labels + width - values) / 2, bottom + 33, panel.unit, { class: "soft", "text-anchor": "middle" }));
  drawing.append(...drawBand(panel, scale, range, top, bottom, `fade${place}`));
  if (panel.neutral !== null) drawing.append(line(scale(panel.neutral), top, scale(panel.neutral), bottom, "neutral"));
  panel.rows.forEach((entry, index) => {
    const y = top + index * row;
    const label = hasPoints ? `${entry.metric}, ${entry.point}` : entry.metric;
    drawing.append(text(0, y + 18, label.length > 34 ? `${label.slice(0, 33)}…` : label, {}));
    if (entry.value === null) return;
    const origin = scale(Math.max(range[0], Math.min(0, range[1]))), end = scale(entry.value);
    const tone = entry.standing === "outside" ? "var(--bad)" : "var(--c0)";
    const bar = svg("rect", { x: Math.min(origin, end), y: y + 7, width: Math.max(Math.abs(end - origin), 1), height: 14, rx: 2, fill: tone });
    drawing.append(titled(bar, `${label}: ${entry.text}, the paper: ${panel.paper}`));
    if (entry.low !== null && entry.high > entry.low) {
      drawing.append(line(scale(entry.low), y + 14, scale(entry.high), y + 14, "whisker"));
      for (const edge of [entry.low, entry.high]) drawing.append(line(scale(edge), y + 10, scale(edge), y + 18, "whisker"));
    }
    drawing.append(text(width, y + 18, entry.text, { "text-anchor": "end", "font-weight": 600 }));
  });
  const count = (standing) => panel.rows.filter((entry) => entry.standing === standing).length;
  const inside = count("inside"), outside = count("outside"), all = panel.rows.length;
  const [tone, words] = all > 0 && inside === all ? ["good", "inside the band"]
    : outside === all ? ["bad", "outside"]
    : outside === 0 ? ["mixed", "undecided: more seeds would tell"] : ["mixed", `${inside} of ${all} inside, ${outside} outside`];
  const made = card(panel.claim, `the paper: ${panel.paper}`, drawing);
  const badge = element("span", { class: `badge ${tone}` }, words);
  made.firstChild.replaceWith(element("div", { class: "head" }, element("h3", {}, panel.claim), badge));
  return made;
}

/* One measure, a bar per scheme, with its interval of confidence. */
function drawBars(name, cells) {
  const place = metricPlace(name);
  const present = cells.filter((cell) => cell.values[place]);
  const width = 320, labels = 122, values = 76, row = 26;
  const high = Math.max(...present.map((cell) => cell.values[place][2]), 1e-12);
  const scale = linear(0, high, labels, width - values);
  const bottom = present.length * row + 4;
  const drawing = chart(width, bottom + 20, DATA.metrics[place].title);
  for (const tick of ticks(0, high, 3)) {
    drawing.append(line(scale(tick), 0, scale(tick), bottom, "tick"));
    drawing.append(text(scale(tick), bottom + 15, show(name, tick), { class: "soft", "text-anchor": "middle" }));
  }
  present.forEach((cell, index) => {
    const y = index * row, [mean, low, most, words] = cell.values[place], scheme = DATA.schemes[cell.scheme];
    drawing.append(text(0, y + 18, scheme.length > 19 ? `${scheme.slice(0, 18)}…` : scheme, {}));
    const bar = svg("rect", { x: labels, y: y + 5, width: Math.max(scale(mean) - labels, 1), height: 17, rx: 2, fill: colour(cell.scheme) });
    drawing.append(titled(bar, `${scheme}: ${words}`));
    /* No measure is negative, wherever its interval reaches. */
    if (most > low) {
      drawing.append(line(scale(Math.max(low, 0)), y + 13.5, scale(most), y + 13.5, "whisker"));
      for (const edge of [low, most].filter((edge) => edge >= 0)) drawing.append(line(scale(edge), y + 9, scale(edge), y + 18, "whisker"));
    }
    drawing.append(text(width, y + 18, words, { "text-anchor": "end" }));
  });
  return card(DATA.metrics[place].title, null, drawing);
}
