// "Save as SVG": the chart as it is set, drawn anew in daylight and at the width of a page, with title, key and caption.

const SAVED_WIDTH = 720;
const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "font-size", "font-weight", "font-variant-numeric"];
const USUAL = { fill: "rgb(0, 0, 0)", stroke: "none", "stroke-width": "1px", "stroke-dasharray": "none", "stroke-linecap": "butt", "stroke-linejoin": "miter", opacity: "1", "fill-opacity": "1", "font-weight": "400", "font-variant-numeric": "normal" };

// A file has no style sheet: what the page's would say is written into every element.
function ownLooks(drawn) {
  for (const one of drawn.querySelectorAll("*")) {
    const style = getComputedStyle(one);
    for (const look of LOOKS) {
      const text = one.tagName === "text";
      const value = style.getPropertyValue(look);
      if (look.startsWith("font") && !text) continue;
      if (value && value !== USUAL[look]) one.setAttribute(look, value);
    }
    if (one.tagName === "text") one.setAttribute("font-family", "Helvetica, Arial, sans-serif");
  }
  for (const one of drawn.querySelectorAll("*")) for (const name of ["class", "style", "data-run"]) one.removeAttribute(name);
}

function wrapped(text, width, size) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines[lines.length - 1]} ${word}`.trim();
    if (textWidth(longer, size) > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

// The runs whose colours the chart uses; a stack and a heat map explain themselves.
function runsShown(chart, plot) {
  const hidden = plot.hiddenRuns || new Set();
  const chosen = plot.chosen ?? (chart.choose ? chart.choose.chosen : 0);
  const named = (chart.views && chart.views[chosen].series) || chart.series || [];
  const base = chart.kind === "bars" && chart.choose ? chosen - 1 : -1;
  return named.filter((one, i) => i !== base && !hidden.has(one.run) && !faded(one.run));
}

function standalone(plot) {
  const chart = charts[plot.dataset.chart];
  const stage = html("div", "plot by-day stage", undefined, document.body);
  Object.assign(stage, { hiddenRuns: plot.hiddenRuns, chosen: plot.chosen });
  stage.dataset.chart = plot.dataset.chart;
  const state = paint(stage);
  const sheet = element("svg", {}, stage);
  element("rect", { width: "100%", height: "100%", style: "fill:#ffffff" }, sheet);
  const choice = chart.choose && chart.kind !== "bars" ? `: ${chart.choose.options[plot.chosen ?? chart.choose.chosen]}` : "";
  let y = 24;
  for (const line of wrapped(chart.title + choice, SAVED_WIDTH - 32, 16)) {
    label(sheet, 16, y, line, { class: "title" });
    y += 20;
  }
  const entries = chart.key || runsShown(chart, plot);
  if (entries.length > 1) y += drawKey(sheet, entries.map((one) => ({ name: one.name, style: one.look && one.look !== "solid" ? `stroke:${colour(one.run)}` : `fill:${colour(one.run)}`, square: squared(one.run), look: one.look })), 16, SAVED_WIDTH - 16, y);
  const body = element("g", { transform: `translate(16 ${y})` }, sheet);
  if (state) body.append(...state.svg.childNodes);
  y += (state ? state.height : 0) + 22;
  const figure = plot.closest("figure");
  const caption = figure && figure.querySelector("figcaption");
  for (const line of caption ? wrapped(caption.textContent, SAVED_WIDTH - 32, 12) : []) {
    label(sheet, 16, y, line);
    y += 16;
  }
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${SAVED_WIDTH} ${y}`, width: SAVED_WIDTH, height: y })) sheet.setAttribute(name, value);
  ownLooks(sheet);
  const text = new XMLSerializer().serializeToString(sheet);
  stage.remove();
  return text;
}

for (const button of document.querySelectorAll("button.save")) {
  const plot = button.closest("figure").querySelector(".plot");
  button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([standalone(plot)], { type: "image/svg+xml" }));
    link.download = `${plot.dataset.chart}.svg`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}
