/* Each chart can be saved as an SVG file that stands alone, in the colours that are shown. */

const SAVED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "opacity", "stop-color", "stop-opacity"];

function standalone(drawing) {
  const copy = drawing.cloneNode(true), root = getComputedStyle(document.body);
  const marks = [...drawing.querySelectorAll("*")], copies = [...copy.querySelectorAll("*")];
  marks.forEach((mark, place) => {
    const style = getComputedStyle(mark), target = copies[place];
    target.removeAttribute("class");
    for (const { name, value } of [...target.attributes]) if (value.includes("var(--")) target.removeAttribute(name);
    if (["title", "defs", "linearGradient"].includes(mark.tagName)) return;
    const names = mark.tagName === "text" ? ["fill", "font-size", "font-weight", "text-anchor"] : SAVED;
    target.setAttribute("style", names.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
  });
  const [, , width, height] = drawing.getAttribute("viewBox").split(" ").map(Number), margin = 10;
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [key, value] of Object.entries({ x: -margin, y: -margin, width: width + 2 * margin, height: height + 2 * margin, fill: root.getPropertyValue("--card").trim() })) ground.setAttribute(key, value);
  copy.prepend(ground);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("viewBox", `${-margin} ${-margin} ${width + 2 * margin} ${height + 2 * margin}`);
  copy.setAttribute("width", width + 2 * margin);
  copy.setAttribute("height", height + 2 * margin);
  copy.setAttribute("font-family", "system-ui, sans-serif");
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
}

function fileName(drawing) {
  const words = `${DATA.figure || ""} ${drawing.getAttribute("aria-label")}`.toLowerCase();
  return `${words.replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80)}.svg`;
}

function saveButton(drawing) {
  const button = element("button", { type: "button", class: "save", "aria-label": `save as SVG: ${drawing.getAttribute("aria-label")}` }, "SVG");
  button.addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([standalone(drawing)], { type: "image/svg+xml" }));
    element("a", { href: address, download: fileName(drawing) }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
  return button;
}

/* A button behind every chart of the page. */
function addSaving() {
  for (const drawing of document.querySelectorAll("main svg")) drawing.after(saveButton(drawing));
  /* For tests: how many charts can be saved, and how many of those files still refer to the page. */
  if (location.hash === "#check-svg") {
    const files = [...document.querySelectorAll("main svg")].map(standalone);
    const isWhole = (file) => new DOMParser().parseFromString(file, "image/svg+xml").querySelector("parsererror") === null;
    document.documentElement.dataset.saved = files.filter((file) => isWhole(file) && !file.includes("var(--")).length;
  }
}
