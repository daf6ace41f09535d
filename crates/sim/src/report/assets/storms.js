/* Pauses by link over time, and circles of links that wait for each other. */

const STORM = { width: 620, left: 150, right: 92, row: 15, top: 22, rows: 20, columns: 60 };

const portName = (film, port) => film.ports[port].map((node) => film.nodes[node].name).join(" → ");

/* In how many pictures each port is paused, most first. */
function pausedPorts(film) {
  const counts = new Map();
  for (const picture of film.pictures) for (const port of picture.paused) counts.set(port, (counts.get(port) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
}

/* A circle among paused links: each leads to the node from which the next one leads on, and none turns back. */
function circleOf(film, paused) {
  const leading = new Map();
  for (const port of paused) {
    const from = film.ports[port][0];
    if (!leading.has(from)) leading.set(from, []);
    leading.get(from).push(port);
  }
  const next = (port) => (leading.get(film.ports[port][1]) || []).filter((other) => film.ports[other][1] !== film.ports[port][0]);
  const state = new Map();
  for (const start of paused) {
    if (state.has(start)) continue;
    const way = [[start, next(start)]];
    state.set(start, "open");
    while (way.length) {
      const [port, rest] = way.at(-1), other = rest.pop();
      if (other === undefined) { state.set(port, "done"); way.pop(); continue; }
      if (state.get(other) === "open") {
        const ports = way.map((step) => step[0]);
        return ports.slice(ports.indexOf(other));
      }
      if (!state.has(other)) { state.set(other, "open"); way.push([other, next(other)]); }
    }
  }
  return null;
}

/* Circles and when they were seen; one that is there in the last pictures may be a deadlock. */
function circles(film) {
  const found = new Map();
  film.pictures.forEach((picture, place) => {
    const circle = circleOf(film, picture.paused);
    if (!circle) return;
    const first = circle.indexOf(Math.min(...circle));
    const turned = circle.slice(first).concat(circle.slice(0, first)), key = turned.join();
    const known = found.get(key) || { ports: turned, count: 0, from: picture.at_us };
    found.set(key, Object.assign(known, { count: known.count + 1, to: picture.at_us, isLast: place + 1 === film.pictures.length }));
  });
  return [...found.values()].sort((a, b) => b.isLast - a.isLast || b.count - a.count);
}

function circleWords(film) {
  const all = circles(film);
  if (!all.length) return element("p", { class: "faint" }, "No picture has a circle of paused links, so nothing was near a deadlock.");
  const milliseconds = (at) => `${trim(at / 1000)} ms`;
  const words = (circle) => {
    const nodes = circle.ports.map((port) => film.nodes[film.ports[port][0]].name);
    const when = circle.count === 1 ? `at ${milliseconds(circle.from)}` : `in ${circle.count} pictures, ${milliseconds(circle.from)} to ${milliseconds(circle.to)}`;
    return element("li", circle.isLast ? { class: "bad" } : {}, `${nodes.concat(nodes[0]).join(" → ")}, ${when}${circle.isLast ? ", still in the last picture" : ""}`);
  };
  return element("div", {},
    element("p", { class: "faint" }, "Circles of paused links. Each may wait for the next; one that never opens is a deadlock."),
    element("ul", { class: "circles" }, all.slice(0, 5).map(words)),
    all.length > 5 ? element("p", { class: "faint" }, `and ${all.length - 5} others`) : null);
}

/* A row per link, the most paused first; the darker, the more of the time. */
function drawStorm(entry) {
  const { film } = entry, counts = pausedPorts(film);
  if (!counts.length) return null;
  const { width, left, right, row, top } = STORM, shown = counts.slice(0, STORM.rows);
  const bottom = top + shown.length * row, end = film.pictures.at(-1).at_us || 1;
  const x = linear(0, end, left, width - right), columns = Math.min(STORM.columns, film.pictures.length);
  const drawing = chart(width, bottom + 38, `pauses by link over time: ${DATA.schemes[entry.scheme]}`);
  drawing.append(text(0, 12, "link", { class: "soft" }), text(width, 12, "time paused", { class: "soft", "text-anchor": "end" }));
  for (const tick of ticks(0, end, 6)) {
    drawing.append(line(x(tick), top, x(tick), bottom, "tick"));
    drawing.append(text(x(tick), bottom + 16, trim(tick / 1000), { class: "soft", "text-anchor": "middle" }));
  }
  drawing.append(text((left + width - right) / 2, bottom + 33, "time, ms", { class: "soft", "text-anchor": "middle" }));
  const total = film.pictures.length, column = (place) => Math.floor((place * columns) / total);
  const sizes = new Array(columns).fill(0);
  film.pictures.forEach((_, place) => { sizes[column(place)] += 1; });
  shown.forEach(([port, count], index) => {
    const y = top + index * row, cells = new Array(columns).fill(0), name = portName(film, port);
    film.pictures.forEach((picture, place) => { if (picture.paused.includes(port)) cells[column(place)] += 1; });
    drawing.append(text(0, y + 12, name.length > 24 ? `${name.slice(0, 23)}…` : name, {}));
    cells.forEach((seen, place) => {
      if (!seen) return;
      const from = x((end * place) / columns), to = x((end * (place + 1)) / columns), share = seen / sizes[place];
      const mark = svg("rect", { x: from, y: y + 1, width: Math.max(to - from, 1), height: row - 2, fill: "var(--pause)", opacity: 0.2 + 0.8 * share });
      const when = `${trim((end * place) / columns / 1000)} to ${trim((end * (place + 1)) / columns / 1000)} ms`;
      drawing.append(titled(mark, `${name}, ${when}: paused in ${Math.round(share * 100)} % of the pictures`));
    });
    const time = (end / 1000) * (count / total);
    drawing.append(text(width, y + 12, `${trim(time)} ms, ${Math.round((100 * count) / total)} %`, { "text-anchor": "end" }));
  });
  const others = counts.length > shown.length ? `The ${shown.length} most paused of ${counts.length} links that were ever paused` : "Every link that was ever paused";
  return card(DATA.schemes[entry.scheme], `${others}, by pictures; the darker, the more of the time.`, drawing, circleWords(film));
}

function drawStorms() {
  const made = DATA.films.map(drawStorm).filter((one) => one !== null);
  return made.length ? element("div", { class: "grid wide" }, made) : null;
}
