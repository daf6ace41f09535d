/* The nanoPU's experiments: a table of claims, and a chart per figure. */

/* Claims and figures are words: they may take several lines, and begin where their column begins. */
const WORDS = "white-space: normal; text-align: left";
const MARK = { true: ["yes", "good"], false: ["no", "bad"], null: ["", ""] };

function claims(rows) {
  const head = ["claim", "paper [band]", "here", "inside?"];
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, head.map((words) => element("th", { style: WORDS }, words)))),
    element("tbody", {}, rows.map((row) => {
      const [words, kind] = MARK[row.inside];
      return element("tr", {}, element("td", { style: WORDS }, row.claim), element("td", { style: WORDS }, row.paper), element("td", { style: WORDS }, row.here),
        element("td", {}, words ? element("span", { class: `badge ${kind}` }, words) : ""));
    }))));
}

/* What stands for a line in the key: dashed like itself, if it is published. */
function swatch(tint, isPaper) {
  if (!isPaper) return `background:${tint}`;
  return `width:1.4rem;height:0;border-radius:0;border-top:2px dashed ${tint};vertical-align:.25em`;
}

function drawChart(spec) {
  const all = spec.series.flatMap((series) => series.points);
  if (!all.length) return null;
  const { width, height, left, right, top, bottom } = PLOT;
  const least = (place) => Math.min(...all.map((point) => point[place]));
  const most = (place) => Math.max(...all.map((point) => point[place]));
  // Sizes are powers of two.
  const isSize = spec.across === "bytes" && least(0) > 0;
  const x = (isSize ? logarithmic : linear)(least(0), most(0), left, width - right);
  const sizes = [...Array(24).keys()].map((power) => 2 ** power).filter((size) => size >= least(0) && size <= most(0));
  const marks = isSize ? sizes : ticks(least(0), most(0), 6);
  const low = spec.is_log ? least(1) * 0.9 : 0, high = most(1) * 1.05;
  const y = (spec.is_log ? logarithmic : linear)(low, high, height - bottom, top);
  const drawing = chart(width, height, spec.title);
  frame(drawing, thinned(marks, x, 40).map((tick) => [x(tick), isSize ? String(tick) : trim(tick)]),
    (spec.is_log ? thinned(logTicks(low, high), y, 18) : ticks(low, high, 5)).map((tick) => [y(tick), trim(tick)]), spec.across);
  let shade = -1;
  const key = [];
  for (const series of spec.series) {
    if (!series.is_paper || shade < 0) shade += 1;
    const points = series.points.map(([across, up]) => [x(across), y(up)]);
    drawing.append(titled(svg("path", { class: "line", d: path(points), stroke: colour(shade),
      "stroke-dasharray": series.is_paper ? "4 4" : null }), series.name));
    series.points.forEach(([across, up], at) => {
      if (series.is_paper) return;
      const dot = svg("circle", { cx: points[at][0], cy: points[at][1], r: 3, fill: colour(shade) });
      drawing.append(titled(dot, `${series.name}: ${trim(across)} ${spec.across}, ${trim(up)} ${spec.up}`));
    });
    key.push(element("li", {}, element("i", { style: swatch(colour(shade), series.is_paper) }), series.name));
  }
  return card(spec.title, spec.up, drawing, element("ul", { class: "key" }, key));
}

function build() {
  const page = document.getElementById("page");
  const rows = DATA.experiments.flatMap((experiment) => experiment.rows), judged = rows.filter((row) => row.inside !== null);
  page.append(element("header", {}, element("p", { class: "figure" }, "nanoPU"), element("h1", {}, "The paper's experiments"),
    element("p", { class: "lead" }, `${judged.filter((row) => row.inside).length} of ${judged.length} figures lie inside their bands.`),
    element("p", { class: "faint" }, "Everything is simulated, cycle by cycle; dashed lines are published figures.")));
  for (const experiment of DATA.experiments) {
    page.append(element("h2", { id: experiment.name }, experiment.title), claims(experiment.rows),
      element("div", { class: "grid wide" }, experiment.charts.map(drawChart).filter((made) => made !== null)));
  }
}

try {
  build();
} catch (error) {
  DRAWN.errors += 1;
  document.getElementById("page").append(element("pre", {}, String(error.stack || error)));
}
Object.assign(document.documentElement.dataset, { state: "drawn", charts: DRAWN.charts, marks: DRAWN.marks, errors: DRAWN.errors });
