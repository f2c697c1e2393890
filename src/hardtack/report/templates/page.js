// Sorting and charts. Text reaches the page through textContent only, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const { charts, settings } = JSON.parse(document.getElementById("data").textContent);

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (parent) parent.append(made);
  return made;
}

function html(name, className, text, parent) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// ---------------------------------------------------------------- sorting

function sortTable(table, column, head) {
  const descending = head.getAttribute("aria-sort") !== "descending" && (column > 0 || head.getAttribute("aria-sort") === "ascending");
  for (const other of table.tHead.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const value = (row) => row.cells[column].dataset.value;
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === "");  // what was not measured stays last
    const order = column === 0 ? x.localeCompare(y, undefined, { numeric: true }) : Number(x) - Number(y);
    return descending ? -order : order;
  });
  body.append(...rows);
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = head.querySelector("button");
    if (button) button.addEventListener("click", () => sortTable(table, column, head));
  });
}

// ---------------------------------------------------------------- tables wider than the screen

for (const area of document.querySelectorAll(".scroll")) {
  const hint = html("p", "hint", "more columns: scroll sideways →");
  hint.setAttribute("aria-hidden", "true");  // a screen reader reads the whole table anyway
  area.before(hint);
  const look = () => {
    const cut = area.scrollWidth - area.clientWidth > 1;
    const left = area.scrollLeft + area.clientWidth < area.scrollWidth - 1;
    hint.hidden = !cut;
    hint.classList.toggle("seen", !left);
    area.classList.toggle("cut", left);
  };
  area.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(area);
}

// ---------------------------------------------------------------- scales

function niceStep(span, count) {
  const raw = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const lead = raw / power;
  return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 2.5 ? 2.5 : lead <= 5 ? 5 : 10);
}

function ticks(low, high, count) {
  const step = niceStep(high - low || 1, count);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function apart(values, place, distance) {
  const kept = [];
  for (const value of values) if (!kept.length || place(value) - place(kept[kept.length - 1]) >= distance) kept.push(value);
  return kept;
}

function written(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 10000 || size < 0.001) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
  return String(Number(value.toPrecision(3)));
}

function yText(chart, value) {
  return chart.y.kind === "percent" ? (100 * value).toFixed(1) + "%" : written(value);
}

function yDomain(chart, series) {
  if (chart.y.kind === "percent") return [0, 1];
  const values = series.flatMap((one) => one.points.map((point) => point[1]));
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low > 0 && low < 0.5 * high) low = 0;
  if (low === high) [low, high] = [low - 1, high + 1];
  const step = niceStep(high - low, 5);
  return [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
}

// ---------------------------------------------------------------- drawing

const { coloured, solid } = settings;
function faded(run) { return run >= coloured; }
function colour(run) { return `var(--run-${faded(run) ? "faded" : run})`; }

// Runs past the first few are dashed too, except where a dash tells robust curves from clean ones.
function strokes(chart, one) {
  if (chart.series.some((other) => other.dash)) return one.dash ? "5 4" : "";
  return one.run >= solid && !faded(one.run) ? "9 3" : "";
}

function frame(plot, chart, series) {
  const width = Math.max(240, plot.clientWidth);
  const height = Math.round(Math.min(400, Math.max(230, width * 0.46)));
  const box = { left: 46, right: 14, top: 8, bottom: 42, width, height };
  const xs = series.flatMap((one) => one.points.map((point) => point[0]));
  let [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
  const [y0, y1] = yDomain(chart, series);
  box.x = (value) => box.left + ((value - x0) / (x1 - x0)) * (width - box.left - box.right);
  box.y = (value) => height - box.bottom - ((value - y0) / (y1 - y0)) * (height - box.top - box.bottom);
  box.xTicks = chart.x.ticks ? apart(chart.x.ticks, box.x, 30) : ticks(x0, x1, Math.max(3, Math.floor(width / 80)));
  box.yTicks = ticks(y0, y1, 5);
  return box;
}

function drawAxes(svg, chart, box) {
  for (const value of box.yTicks) {
    const y = box.y(value);
    element("line", { class: "grid", x1: box.left, x2: box.width - box.right, y1: y, y2: y }, svg);
    const text = element("text", { x: box.left - 8, y: y + 4, "text-anchor": "end" }, svg);
    text.textContent = chart.y.kind === "percent" ? Math.round(100 * value) + "%" : written(value);
  }
  const bottom = box.height - box.bottom;
  element("line", { class: "axis", x1: box.left, x2: box.width - box.right, y1: bottom, y2: bottom }, svg);
  for (const value of box.xTicks) {
    element("line", { class: "axis", x1: box.x(value), x2: box.x(value), y1: bottom, y2: bottom + 5 }, svg);
    element("text", { x: box.x(value), y: bottom + 19, "text-anchor": "middle" }, svg).textContent = written(value);
  }
  const middle = (box.left + box.width - box.right) / 2;
  element("text", { x: middle, y: box.height - 4, "text-anchor": "middle" }, svg).textContent = chart.x.label;
}

function drawSeries(svg, chart, box, one) {
  const at = (x, y) => `${box.x(x).toFixed(1)},${box.y(y).toFixed(1)}`;
  const banded = one.points.filter((point) => point[2] !== null && point[3] !== null);
  if (one.band && banded.length > 1 && !faded(one.run)) {
    const outline = [...banded.map((p) => at(p[0], p[3])), ...banded.reverse().map((p) => at(p[0], p[2]))];
    element("polygon", { class: "band", points: outline.join(" "), style: `fill:${colour(one.run)}` }, svg);
  }
  const line = one.points.map((point) => at(point[0], point[1])).join(" ");
  const dash = strokes(chart, one);
  element("polyline", { class: "curve", points: line, style: `stroke:${colour(one.run)}`, ...(dash && { "stroke-dasharray": dash }) }, svg);
  if (one.marks) {
    for (const point of one.points) {
      element("circle", { cx: box.x(point[0]), cy: box.y(point[1]), r: 3, style: `fill:${colour(one.run)}` }, svg);
    }
  }
}

function draw(plot) {
  const chart = charts[plot.dataset.chart];
  const hidden = plot.hiddenRuns || new Set();
  const series = chart.series.filter((one) => !hidden.has(one.run));
  plot.replaceChildren();
  plot.state = null;
  if (!series.length) {
    html("p", "none", "Every run is hidden.", plot);
    return;
  }
  const box = frame(plot, chart, series);
  const svg = element("svg", { viewBox: `0 0 ${box.width} ${box.height}`, "aria-hidden": "true" }, plot);
  drawAxes(svg, chart, box);
  const under = [...series].sort((a, b) => faded(b.run) - faded(a.run));  // faded curves lie below the others
  for (const one of under) drawSeries(element("g", { class: faded(one.run) ? "one faded" : "one", "data-run": one.run }, svg), chart, box, one);
  const cursor = element("g", { class: "cursor-group" }, svg);
  const tip = html("div", "tip", undefined, plot);
  tip.setAttribute("role", "status");
  tip.hidden = true;
  const stops = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
  plot.state = { chart, series, box, cursor, tip, stops, at: -1 };
}

// ---------------------------------------------------------------- reading values

function nearest(points, x) {
  return points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
}

// A long list would hide the chart: keep the curves nearest to the pointer, and the distinctive end of a name.
function readable(plot, lines, height) {
  const most = plot.clientWidth < 500 ? 6 : 12;
  const { box } = plot.state;
  const away = (line) => (height === undefined ? 0 : Math.abs(box.y(line.point[1]) - height));
  return lines.sort((a, b) => away(a) - away(b)).slice(0, most).sort((a, b) => b.point[1] - a.point[1]);
}

function shortened(plot, name) {
  const most = plot.clientWidth < 500 ? 15 : 28;
  return name.length > most ? "…" + name.slice(1 - most) : name;
}

function showAt(plot, index, height) {
  const { chart, series, box, cursor, tip, stops } = plot.state;
  plot.state.at = index;
  const x = stops[index];
  const reach = (stops[stops.length - 1] - stops[0]) / 25 + 1e-9;
  const lines = series
    .map((one) => ({ one, point: nearest(one.points, x) }))
    .filter((line) => Math.abs(line.point[0] - x) <= reach);
  cursor.replaceChildren();
  element("line", { class: "cursor", x1: box.x(x), x2: box.x(x), y1: box.top, y2: box.height - box.bottom }, cursor);
  tip.replaceChildren();
  html("b", "", `${chart.x.word} = ${written(x)}${x ? chart.x.suffix : ""}`, tip);
  for (const { one, point } of readable(plot, lines, height)) {
    element("circle", { cx: box.x(point[0]), cy: box.y(point[1]), r: 5, style: `fill:${colour(one.run)}` }, cursor);
    const row = html("div", "", undefined, tip);
    html("span", one.run >= solid && !faded(one.run) ? "dot square" : "dot", undefined, row).style.setProperty("--run", colour(one.run));
    html("span", "who", shortened(plot, one.name), row);
    html("b", "", yText(chart, point[1]), row);
    if (point.length > 2 && point[2] !== null) html("small", "", `${yText(chart, point[2]).replace("%", "")}–${yText(chart, point[3])}`, row);
  }
  tip.hidden = false;
  const left = (box.x(x) / box.width) * plot.clientWidth;
  const free = plot.clientWidth - tip.offsetWidth;
  tip.style.left = `${Math.max(0, Math.min(free, left < plot.clientWidth / 2 ? left + 16 : left - tip.offsetWidth - 16))}px`;
}

function hide(plot) {
  if (!plot.state) return;
  plot.state.at = -1;
  plot.state.tip.hidden = true;
  plot.state.cursor.replaceChildren();
}

function pointAt(plot, event) {
  if (!plot.state) return;
  const { box, stops } = plot.state;
  const area = plot.getBoundingClientRect();
  const x = ((event.clientX - area.left) / area.width) * box.width;
  let best = 0;
  stops.forEach((stop, i) => { if (Math.abs(box.x(stop) - x) < Math.abs(box.x(stops[best]) - x)) best = i; });
  showAt(plot, best, ((event.clientY - area.top) / area.width) * box.width);
}

function step(plot, event) {
  if (!plot.state) return;
  const last = plot.state.stops.length - 1;
  const jumps = { ArrowRight: plot.state.at + 1, ArrowLeft: plot.state.at < 0 ? last : plot.state.at - 1, Home: 0, End: last };
  if (event.key === "Escape") hide(plot);
  if (!(event.key in jumps)) return;
  event.preventDefault();
  showAt(plot, Math.max(0, Math.min(last, jumps[event.key])));
}

for (const plot of document.querySelectorAll(".plot")) {
  plot.addEventListener("pointermove", (event) => pointAt(plot, event));
  plot.addEventListener("pointerdown", (event) => pointAt(plot, event));
  plot.addEventListener("pointerleave", () => hide(plot));
  plot.addEventListener("keydown", (event) => step(plot, event));
  plot.addEventListener("blur", () => hide(plot));
  let width = 0;
  new ResizeObserver(() => {
    if (plot.clientWidth === width) return;
    width = plot.clientWidth;
    draw(plot);
  }).observe(plot);
}

for (const legend of document.querySelectorAll(".legend")) {
  const plots = legend.parentElement.querySelectorAll(".plot");
  const focus = (run) => {
    for (const plot of plots) {
      plot.classList.toggle("focused", run !== undefined);
      for (const one of plot.querySelectorAll(".one")) one.classList.toggle("on", one.dataset.run === run);
    }
  };
  for (const chip of legend.querySelectorAll("button")) {
    chip.addEventListener("pointerenter", () => { if (chip.getAttribute("aria-pressed") === "true") focus(chip.dataset.run); });
    chip.addEventListener("pointerleave", () => focus(undefined));
  }
  legend.addEventListener("click", (event) => {
    focus(undefined);
    const chip = event.target.closest("button");
    if (!chip) return;
    const shown = chip.getAttribute("aria-pressed") === "true";
    chip.setAttribute("aria-pressed", String(!shown));
    for (const plot of plots) {
      plot.hiddenRuns = plot.hiddenRuns || new Set();
      if (shown) plot.hiddenRuns.add(Number(chip.dataset.run));
      else plot.hiddenRuns.delete(Number(chip.dataset.run));
      draw(plot);
    }
  });
}
