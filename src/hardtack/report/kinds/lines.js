// Curves with their bands; the pointer reads all curves at one place of the x axis.

function yText(chart, value) {
  return chart.y.kind === "percent" ? percent(value) : chart.y.kind === "points" ? signed(value) : written(value);
}

// Runs past the first few are dashed too, except where a dash tells robust curves from clean ones.
function strokes(chart, one) {
  if (chart.series.some((other) => other.dash)) return one.dash ? "5 4" : "";
  return squared(one.run) ? "9 3" : "";
}

function drawAxes(svg, chart, box) {
  const marks = writtenApart(box.yTicks.map((value) => (chart.y.kind === "points" ? 100 * value : value)));
  const below = writtenApart(box.xTicks);
  for (const [i, value] of box.yTicks.entries()) {
    const y = box.y(value);
    element("line", { class: "grid", x1: box.left, x2: box.width - box.right, y1: y, y2: y }, svg);
    label(svg, box.left - 8, y + 4, chart.y.kind === "percent" ? Math.round(100 * value) + "%" : marks[i], { "text-anchor": "end" });
  }
  const bottom = box.height - box.bottom;
  element("line", { class: "axis", x1: box.left, x2: box.width - box.right, y1: bottom, y2: bottom }, svg);
  for (const [i, value] of box.xTicks.entries()) {
    element("line", { class: "axis", x1: box.x(value), x2: box.x(value), y1: bottom, y2: bottom + 5 }, svg);
    label(svg, box.x(value), bottom + 19, below[i], { "text-anchor": "middle" });
  }
  label(svg, (box.left + box.width - box.right) / 2, box.height - 4, chart.x.label, { "text-anchor": "middle" });
}

function drawSeries(svg, chart, box, one) {
  const at = (x, y) => `${box.x(x).toFixed(1)},${box.y(y).toFixed(1)}`;
  const banded = one.points.filter((point) => point[2] !== null && point[3] !== null);
  if (one.band && banded.length > 1 && !faded(one.run)) {
    const outline = [...banded.map((p) => at(p[0], p[3])), ...banded.reverse().map((p) => at(p[0], p[2]))];
    const faint = Math.min(0.15, 0.9 / chart.series.length);  // many lie on each other
    element("polygon", { class: "band", points: outline.join(" "), style: `fill:${colour(one.run)};opacity:${faint}` }, svg);
  }
  if (one.band && banded.length === 1) {  // no area: a line
    const [x, , low, high] = banded[0];
    element("line", { class: "whisker", x1: box.x(x), x2: box.x(x), y1: box.y(low), y2: box.y(high), style: `stroke:${colour(one.run)}` }, svg);
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

// Where training was warned about: a triangle on the curve, whatever else is drawn there.
function drawWarnings(svg, box, one) {
  for (const [x, y] of one.warned || []) {
    const [left, top] = [box.x(x), box.y(y)];
    element("path", { class: "warned", d: `M${left - 7} ${top + 6}L${left} ${top - 7}L${left + 7} ${top + 6}z` }, svg);
  }
}

function warnedAt(one, point) {
  const found = (one.warned || []).find((warning) => warning[0] === point[0]);
  return found ? "▲ warned" : "";
}

function nearestPoint(points, x) {
  return points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
}

// A long list would hide the chart: keep the curves nearest to the pointer.
function readable(lines, box, height) {
  const away = (line) => (height === undefined ? 0 : Math.abs(box.y(line.point[1]) - height));
  return lines.sort((a, b) => away(a) - away(b)).slice(0, box.width < 500 ? 6 : 12).sort((a, b) => b.point[1] - a.point[1]);
}

function paintLines(chart, { plot, width, hidden }) {
  const series = chart.series.filter((one) => !hidden.has(one.run));
  if (!series.length) return null;
  const box = lineFrame(width, chart, series);
  const svg = element("svg", { viewBox: `0 0 ${box.width} ${box.height}` }, plot);
  drawAxes(svg, chart, box);
  const under = [...series].sort((a, b) => faded(b.run) - faded(a.run));  // faded curves lie below the others
  for (const one of under) drawSeries(element("g", { class: faded(one.run) ? "one faded" : "one", "data-run": one.run }, svg), chart, box, one);
  for (const one of under) drawWarnings(element("g", { class: "one", "data-run": one.run }, svg), box, one);
  const stops = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
  const reach = (stops[stops.length - 1] - stops[0]) / 25 + 1e-9;
  const read = (index, height) => {
    const x = stops[index];
    const lines = series
      .map((one) => ({ one, point: nearestPoint(one.points, x) }))
      .filter((line) => Math.abs(line.point[0] - x) <= reach);
    const shown = readable(lines, box, height);
    return {
      x: box.x(x),
      title: `${chart.x.word} = ${written(x)}${x ? chart.x.suffix : ""}`,
      lines: shown.map(({ one, point }) => ({
        run: one.run, name: one.name, value: yText(chart, point[1]),
        range: point.length > 2 && point[2] !== null ? `${yText(chart, point[2]).replace("%", "")}–${yText(chart, point[3])}` : warnedAt(one, point),
      })),
      mark: (cursor) => {
        element("line", { class: "cursor", x1: box.x(x), x2: box.x(x), y1: box.top, y2: box.height - box.bottom }, cursor);
        for (const { one, point } of shown) element("circle", { cx: box.x(point[0]), cy: box.y(point[1]), r: 5, style: `fill:${colour(one.run)}` }, cursor);
      },
    };
  };
  const near = (x) => stops.reduce((best, stop, i) => (Math.abs(box.x(stop) - x) < Math.abs(box.x(stops[best]) - x) ? i : best), 0);
  return { svg, width, height: box.height, count: stops.length, columns: 1, near, read };
}

kinds.lines = paintLines;
