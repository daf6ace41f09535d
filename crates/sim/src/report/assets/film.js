/* The network over time: one drawing per filmed scheme, one slider for all. */

const FILM = { width: 620, height: 300, side: 14 };

/* Where every node stands: hosts in a row; above them each tier, under the middle of what it serves. */
function placeNodes(film) {
  const hosts = film.nodes.filter((node) => node.tier === 0).length;
  const tiers = Math.max(...film.nodes.map((node) => node.tier));
  const x = new Array(film.nodes.length).fill(0);
  const below = film.nodes.map(() => []);
  for (const [from, to] of film.ports) if (film.nodes[to].tier < film.nodes[from].tier) below[from].push(to);
  const spread = (places, from, to) => places.forEach((node, place) => {
    x[node] = from + ((to - from) * (place + 0.5)) / places.length;
  });
  const { width, height, side } = FILM;
  spread([...Array(hosts).keys()], side, width - side);
  for (let tier = 1; tier <= tiers; tier += 1) {
    const groups = new Map();
    film.nodes.forEach((node, place) => {
      if (node.tier !== tier) return;
      const served = below[place].map((child) => x[child]);
      const key = tier === tiers ? "all" : [...new Set(served.map((at) => at.toFixed(1)))].join();
      if (!groups.has(key)) groups.set(key, { nodes: [], from: Infinity, to: -Infinity });
      const group = groups.get(key);
      group.nodes.push(place);
      group.from = Math.min(group.from, ...served);
      group.to = Math.max(group.to, ...served);
    });
    for (const group of groups.values()) {
      if (tier === tiers) spread(group.nodes, width * 0.08, width * 0.92);
      else spread(group.nodes, group.from - 6, group.to + 6);
    }
  }
  const y = film.nodes.map((node) => height - 16 - (node.tier / Math.max(tiers, 1)) * (height - 40));
  return { x, y };
}

/* One link direction as a curve, a little to its right, so that both directions are seen. */
function linkPath(at, from, to) {
  const [x1, y1, x2, y2] = [at.x[from], at.y[from], at.x[to], at.y[to]];
  const shift = y1 > y2 ? 1.3 : -1.3, middle = (y1 + y2) / 2;
  return `M${(x1 + shift).toFixed(1)} ${y1.toFixed(1)}C${(x1 + shift).toFixed(1)} ${middle.toFixed(1)} ${(x2 + shift).toFixed(1)} ${middle.toFixed(1)} ${(x2 + shift).toFixed(1)} ${y2.toFixed(1)}`;
}

const heat = (share) => share < 0.5
  ? `color-mix(in oklab, var(--rule), var(--band) ${Math.round(share * 200)}%)`
  : `color-mix(in oklab, var(--band), var(--queue) ${Math.round((share - 0.5) * 200)}%)`;

function drawNetwork(entry) {
  const { film } = entry, at = placeNodes(film);
  const drawing = chart(FILM.width, FILM.height, `the network over time: ${DATA.schemes[entry.scheme]}`);
  const links = film.ports.map(([from, to]) => {
    const made = svg("path", { class: "link", d: linkPath(at, from, to) });
    drawing.append(made);
    return made;
  });
  const nodes = film.nodes.map((node, place) => {
    const made = node.tier === 0
      ? svg("circle", { class: "node", cx: at.x[place], cy: at.y[place], r: 2.6 })
      : svg("rect", { class: "node", x: at.x[place] - 5, y: at.y[place] - 5, width: 10, height: 10, rx: 2 });
    drawing.append(titled(made, node.name));
    return made;
  });
  let touched = [];
  const showPicture = (place) => {
    for (const mark of touched) mark.removeAttribute("style");
    touched = [];
    const style = (mark, words) => { mark.setAttribute("style", words); touched.push(mark); };
    const picture = film.pictures[Math.min(place, film.pictures.length - 1)];
    const waiting = new Map();
    for (const [port, kb] of picture.queues) {
      const share = Math.min(1, Math.sqrt(kb / (2 * film.full_kb))), node = film.ports[port][0];
      style(links[port], `stroke:${heat(share)};stroke-width:${(0.8 + 2.6 * share).toFixed(2)}`);
      waiting.set(node, (waiting.get(node) || 0) + kb);
    }
    for (const [node, kb] of waiting) {
      style(nodes[node], `fill:${heat(Math.min(1, Math.sqrt(kb / (3 * film.full_kb))))}`);
    }
    for (const port of picture.paused) {
      style(links[port], "stroke:var(--pause);stroke-width:2.4");
      if (film.nodes[film.ports[port][0]].tier === 0) style(nodes[film.ports[port][0]], "fill:var(--pause);stroke:var(--pause)");
    }
    return picture;
  };
  return { drawing, showPicture };
}

/* Under each network: ports that are paused, and what waits, with a cursor at the present. */
function drawStory(entry, highest) {
  const { film } = entry, width = FILM.width, height = 64, base = 46, end = highest.end || 1;
  const x = linear(0, end, FILM.side, width - FILM.side);
  const drawing = chart(width, height, `paused ports and queued bytes over time: ${DATA.schemes[entry.scheme]}`);
  const kb = (picture) => picture.queues.reduce((sum, queue) => sum + queue[1], 0);
  const area = (of, most) => film.pictures.map((picture) => [x(picture.at_us), base - (of(picture) / (most || 1)) * (base - 6)]);
  const queued = area(kb, highest.kb), paused = area((picture) => picture.paused.length, highest.paused);
  const closed = `${path(queued)}L${queued.at(-1)[0].toFixed(1)} ${base}L${queued[0][0].toFixed(1)} ${base}Z`;
  drawing.append(titled(svg("path", { d: closed, fill: "var(--queue)", opacity: 0.35 }), "bytes that wait in switches"));
  drawing.append(titled(svg("path", { class: "line", d: path(paused), stroke: "var(--pause)", "stroke-width": 1.5 }), "ports that are paused"));
  drawing.append(line(FILM.side, base, width - FILM.side, base, "axis"));
  for (const tick of ticks(0, end, 6)) drawing.append(text(x(tick), height - 2, `${trim(tick / 1000)} ms`, { class: "soft", "text-anchor": "middle" }));
  drawing.append(text(0, 9, `paused ports, up to ${highest.paused}`, { style: "fill:var(--pause);font-size:10px" }));
  drawing.append(text(width, 9, `waiting, up to ${Math.round(highest.kb)} KB`, { style: "fill:var(--queue);font-size:10px", "text-anchor": "end" }));
  const cursor = line(x(0), 0, x(0), base, "cursor");
  drawing.append(cursor);
  return { drawing, move: (at) => { cursor.setAttribute("x1", x(at)); cursor.setAttribute("x2", x(at)); } };
}

function drawFilms() {
  if (!DATA.films.length) return null;
  const kb = (picture) => picture.queues.reduce((sum, queue) => sum + queue[1], 0);
  const pictures = DATA.films.flatMap((entry) => entry.film.pictures);
  const highest = {
    kb: Math.max(...pictures.map(kb)),
    paused: Math.max(...pictures.map((picture) => picture.paused.length)),
    end: Math.max(...pictures.map((picture) => picture.at_us)),
  };
  const count = Math.max(...DATA.films.map((entry) => entry.film.pictures.length));
  const longest = DATA.films.reduce((a, b) => (b.film.pictures.length > a.film.pictures.length ? b : a)).film;
  const shown = DATA.films.map((entry) => {
    const network = drawNetwork(entry), story = drawStory(entry, highest), words = element("p", { class: "faint" });
    const made = element("section", { class: "card" }, element("h3", {}, DATA.schemes[entry.scheme]), words, network.drawing, story.drawing);
    return { entry, network, story, words, made };
  });
  const slider = element("input", { type: "range", min: 0, max: count - 1, value: 0, "aria-label": "time" });
  const clock = element("output", {}), button = element("button", { type: "button" }, "Play");
  const go = (place) => {
    slider.value = place;
    clock.textContent = `${(longest.pictures[place].at_us / 1000).toFixed(2)} ms`;
    for (const { entry, network, story, words } of shown) {
      const picture = network.showPicture(place);
      const isOver = place >= entry.film.pictures.length;
      words.textContent = isOver ? "over" : `${picture.paused.length} ports paused, ${Math.round(kb(picture))} KB wait`;
      story.move(picture.at_us);
    }
  };
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; button.textContent = "Play"; };
  button.addEventListener("click", () => {
    if (timer) return stop();
    button.textContent = "Pause";
    timer = setInterval(() => (Number(slider.value) + 1 < count ? go(Number(slider.value) + 1) : stop()), 90);
    if (Number(slider.value) + 1 >= count) go(0);
  });
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  /* Begins where most is to be seen. */
  const fullness = longest.pictures.map((_, place) => DATA.films.reduce((sum, entry) => {
    const picture = entry.film.pictures[place];
    return sum + (picture ? picture.paused.length * 200 + kb(picture) : 0);
  }, 0));
  go(fullness.indexOf(Math.max(...fullness)));
  return element("div", {},
    element("p", {}, "Hosts below, switches above; every link has two strands, one per direction. ",
      element("span", { class: "faint" }, "queue behind a port:", element("span", { class: "scale" }), "paused: ",
        element("b", { style: "color:var(--pause)" }, "violet"))),
    element("div", { class: "player" }, button, slider, clock),
    element("div", { class: "grid wide" }, shown.map((part) => part.made)));
}
