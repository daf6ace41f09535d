/* The page from top to bottom. */

function results() {
  const shown = ["slowdown_mean", "fct_mean_s", "fct_p99_s", "single_p999_s", "rct_s", "dropped_percent", "retransmitted_percent", "timeouts", "paused_percent", "queue_bytes_max"]
    .filter((name) => DATA.cells.some((cell) => cell.values[metricPlace(name)]));
  const head = [DATA.axis, "scheme", ...shown.map((name) => DATA.metrics[metricPlace(name)].title)].filter((cell) => cell !== null);
  const rows = DATA.cells.map((cell) => element("tr", {},
    DATA.axis === null ? null : element("td", {}, DATA.points[cell.point]),
    element("td", { style: "text-align:left" }, element("i", { style: `display:inline-block;width:.7rem;height:.7rem;border-radius:.2rem;margin-right:.45rem;background:${colour(cell.scheme)}` }), DATA.schemes[cell.scheme]),
    shown.map((name) => element("td", {}, (cell.values[metricPlace(name)] || [0, 0, 0, "–"])[3]))));
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, head.map((words) => element("th", words === "scheme" ? { style: "text-align:left" } : {}, words)))), element("tbody", {}, rows)));
}

function measures() {
  const isPresent = (name) => DATA.cells.some((cell) => cell.values[metricPlace(name)]);
  const main = ["slowdown_mean", "fct_mean_s", "fct_p99_s", "rct_s"].filter(isPresent);
  if (DATA.points.length > 1) {
    return [element("div", { class: "grid" }, main.concat(["dropped_percent"]).filter(isPresent).map(drawSweep)),
      schemeKey(DATA.schemes.map((_, place) => place))];
  }
  const isSeen = (name) => DATA.cells.some((cell) => (cell.values[metricPlace(name)] || [0])[0] > 0);
  const extra = ["dropped_percent", "paused_percent"].filter((name) => isPresent(name) && isSeen(name));
  return [element("div", { class: "grid" }, main.concat(extra).map((name) => drawBars(name, DATA.cells)))];
}

function build() {
  const page = document.getElementById("page");
  page.append(element("header", {},
    element("p", { class: "figure" }, DATA.figure), element("h1", {}, DATA.title), element("p", { class: "lead" }, DATA.claim),
    element("ul", { class: "facts" }, DATA.facts.map((fact) => element("li", {}, fact)))));
  if (DATA.failures.length) {
    page.append(element("h2", {}, "Runs without a result"),
      element("p", { class: "faint" }, "Nothing on this page has them in its means."),
      element("ul", { class: "failures" }, DATA.failures.map((failure) => element("li", {}, failure))));
  }
  if (DATA.panels.length) {
    page.append(element("h2", {}, "Against the paper"),
      element("p", { class: "faint" }, "Bars are means over the seeds. Thin lines are intervals of confidence of 95 %, which one seed does not have. The shaded band is the paper's."),
      element("div", { class: "grid wide" }, DATA.panels.map(drawPanel)));
  }
  const film = drawFilms(), storms = drawStorms();
  if (film) page.append(element("h2", {}, "The network over time"), film);
  if (storms) page.append(element("h2", {}, "Pauses, link by link"), storms);
  page.append(element("h2", {}, "What was measured"), ...measures());
  const tails = DATA.points.slice(0, 4).flatMap((_, point) => [drawTail(point), drawSizes(point), drawHistory(point)]).filter((made) => made !== null);
  if (tails.length) page.append(element("h2", {}, "Not only the average"), element("div", { class: "grid wide" }, tails));
  page.append(element("h2", {}, "All numbers"), results());
  if (DATA.choices.length) {
    page.append(element("h2", {}, "What the paper leaves open"),
      element("dl", {}, DATA.choices.flatMap(([question, answer]) => [element("dt", {}, prose(question)), element("dd", {}, prose(answer))])));
  }
  page.append(element("h2", {}, "To repeat it"), element("pre", {}, `$ ${DATA.command}`),
    element("details", {}, element("summary", {}, "the plan in words"), element("pre", {}, DATA.explanation)));
}

try {
  build();
  addSaving();
} catch (error) {
  DRAWN.errors += 1;
  document.getElementById("page").append(element("pre", {}, String(error.stack || error)));
}
/* For tests: whether the page is wider than the window. */
const beyond = document.documentElement.scrollWidth - document.documentElement.clientWidth;
Object.assign(document.documentElement.dataset, { beyond: Math.max(beyond, 0), state: "drawn", charts: DRAWN.charts, marks: DRAWN.marks, errors: DRAWN.errors });
