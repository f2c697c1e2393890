// Surfaces over a square on one scale: as contours, or in 3-D, turned by dragging or by Shift and the arrow keys.

const views3d = {};  // how each chart is turned: also what is saved is
const FLAT = 0, SOLID = 1;

function viewOf(chart) {
  return (views3d[chart.id] = views3d[chart.id] || { azimuth: -0.9, tilt: 0.55 });
}

function surfaceShare(chart, value) {  // 0 … 1, evenly spaced over the rings of a round bowl
  const height = value === null ? 1 : (Math.min(value, chart.high) - chart.low) / (chart.high - chart.low);
  return Math.sqrt(Math.max(0, Math.min(1, height)));
}

function surfaceColour(plot, share) { return `rgb(${heatColour(plot, 1 - share)})`; }

function paintSurface(chart, { plot, width, hidden, chosen }) {
  const panels = chart.panels.filter((panel) => !hidden.has(panel.run));
  if (!panels.length) return null;
  turnable(plot, chart);
  const most = Math.max(1, Math.min(3, Math.floor(width / 250)));
  const columns = Math.ceil(panels.length / Math.ceil(panels.length / most));  // full rows
  const cell = width / columns;
  const side = Math.min(420, cell - 66);
  const [top, below] = [44, 46];
  const cellHeight = top + side + below;
  const height = Math.ceil(panels.length / columns) * cellHeight + 38;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}` }, plot);
  const stops = panels.flatMap((panel, i) => {
    const box = { left: (i % columns) * cell + 44, top: Math.floor(i / columns) * cellHeight + top, side };
    const parent = group(svg, panel.run);
    label(parent, box.left, box.top - 26, fitted(panel.name, side, 13), { class: "strong" });
    label(parent, box.left, box.top - 9, fitted(panel.said, side));
    return (chosen === SOLID ? drawSolid : drawContours)(parent, plot, chart, panel, box);
  });
  surfaceLegend(svg, plot, chart, 44, height - 32, Math.min(320, width - 88));
  if (chosen === SOLID && !plot.classList.contains("stage")) label(svg, width - 8, 12, width < 500 ? "drag to turn" : "drag, or press Shift and arrow keys, to turn", { "text-anchor": "end" });
  const points = panels[0].axis.length;
  const read = (index) => {
    const { panel, x, y, i, j } = stops[index];
    const value = panel.values[i][j];
    return {
      x, y,
      title: `${panel.name} at ${written(panel.axis[i])}, ${written(panel.axis[j])}`,
      lines: [{ run: panel.run, name: chart.z, value: value === null ? "no number" : written(value), range: value > chart.high ? "above the scale" : "" }],
      mark: (cursor) => element("circle", { class: "picked", cx: x, cy: y, r: 5 }, cursor),
    };
  };
  return { svg, width, height, count: stops.length, columns: points, near: nearestStop(stops), read };
}

function surfaceLegend(svg, plot, chart, x, y, width) {
  const place = (value) => x + surfaceShare(chart, value) * width;
  for (let i = 0; i < 48; i++) element("rect", { x: x + (i * width) / 48, y, width: width / 48 + 0.5, height: 8, style: `fill:${surfaceColour(plot, i / 47)}` }, svg);
  const marks = [chart.low, ...ticks(chart.low, chart.high, 6), chart.high].sort((a, b) => a - b);
  for (const value of apart(marks, place, 38)) label(svg, place(value), y + 22, written(value), { "text-anchor": "middle" });
  label(svg, x + width + 26, y + 9, chart.z);
}

// ---------------------------------------------------------------- contours

// What of a triangle of [x, y, z] lies at or above a level.
function above(corners, level) {
  const kept = [];
  corners.forEach((from, i) => {
    const to = corners[(i + 1) % corners.length];
    if (from[2] >= level) kept.push(from);
    if (from[2] >= level !== to[2] >= level) {
      const share = (level - from[2]) / (to[2] - from[2]);
      kept.push([from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1]), level]);
    }
  });
  return kept;
}

function triangles(grid) {
  const found = [];
  for (let i = 0; i + 1 < grid.length; i++) {
    for (let j = 0; j + 1 < grid.length; j++) {
      const corners = [grid[i][j], grid[i + 1][j], grid[i + 1][j + 1], grid[i][j + 1]];
      const middle = [0, 1, 2].map((part) => corners.reduce((sum, corner) => sum + corner[part] / 4, 0));
      corners.forEach((corner, k) => found.push([corner, corners[(k + 1) % 4], middle]));
    }
  }
  return found;
}

function path(points) { return `M${points.map((p) => `${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("L")}`; }

function drawContours(svg, plot, chart, panel, { left, top, side }) {
  const { axis, values } = panel;
  const [first, last] = [axis[0], axis[axis.length - 1]];
  const x = (value) => left + ((value - first) / (last - first)) * side;
  const y = (value) => top + side - ((value - first) / (last - first)) * side;
  const ceiling = chart.high + (chart.high - chart.low);
  const grid = axis.map((a, i) => axis.map((b, j) => [x(a), y(b), Math.min(ceiling, values[i][j] ?? ceiling)]));
  const all = triangles(grid);
  element("rect", { x: left, y: top, width: side, height: side, style: `fill:${surfaceColour(plot, 0)}` }, svg);
  for (const level of [...chart.levels, chart.high]) {
    const parts = all.map((corners) => above(corners, level)).filter((kept) => kept.length > 2);
    const colour = surfaceColour(plot, surfaceShare(chart, level));
    element("path", { d: parts.map((kept) => `${path(kept)}z`).join(""), style: `fill:${colour};stroke:${colour};stroke-width:.7` }, svg);
    const edges = parts.flatMap((kept) => kept.map((from, i) => [from, kept[(i + 1) % kept.length]]).filter(([from, to]) => from[2] === level && to[2] === level));
    element("path", { class: "contour", d: edges.map(path).join("") }, svg);
  }
  for (const value of [first, 0, last]) {
    label(svg, x(value), top + side + 17, written(value), { "text-anchor": "middle" });
    label(svg, left - 7, y(value) + 4, written(value), { "text-anchor": "end" });
  }
  label(svg, left + side / 2, top + side + 33, chart.x, { "text-anchor": "middle" });
  label(svg, 0, 0, chart.y, { "text-anchor": "middle", transform: `translate(${left - 30} ${top + side / 2}) rotate(-90)` });
  const [cx, cy] = [x(0), y(0)];
  element("path", { class: "here", d: `M${cx - 6} ${cy}H${cx + 6}M${cx} ${cy - 6}V${cy + 6}` }, svg);
  const stops = [];
  for (let j = axis.length - 1; j >= 0; j--) for (let i = 0; i < axis.length; i++) stops.push({ panel, i, j, x: grid[i][j][0], y: grid[i][j][1] });
  return stops;
}

// ---------------------------------------------------------------- 3-D

// From −1 … 1 in the plane and 0 … 1 up, seen from afar: place on paper, and how near it is.
function projection({ azimuth, tilt }, { left, top, side }) {
  const [sin, cos, up, over] = [Math.sin(azimuth), Math.cos(azimuth), Math.sin(tilt), Math.cos(tilt)];
  const scale = side / 2.9;
  return (a, b, c) => {
    const [across, deep] = [a * cos - b * sin, a * sin + b * cos];
    return [left + side / 2 + scale * across, top + 0.6 * side + scale * (deep * up - 1.3 * (c - 0.35) * over), deep * over + c * up];
  };
}

function drawSolid(svg, plot, chart, panel, box) {
  const { axis, values } = panel;
  const last = axis[axis.length - 1];
  const place = projection(viewOf(chart), box);
  const height = (value) => (Math.min(value ?? chart.high, chart.high) - chart.low) / (chart.high - chart.low);
  const flat = (a, b, c) => place(a / last, b / last, c);
  drawFloor(svg, chart, axis, flat);
  const grid = axis.map((a, i) => axis.map((b, j) => flat(a, b, height(values[i][j]))));
  const faces = [];
  for (let i = 0; i + 1 < axis.length; i++) {
    for (let j = 0; j + 1 < axis.length; j++) {
      const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
      const at = corners.map(([p, q]) => grid[p][q]);
      const mean = corners.reduce((sum, [p, q]) => sum + surfaceShare(chart, values[p][q]) / 4, 0);
      faces.push({ at, mean, near: at.reduce((sum, corner) => sum + corner[2], 0) });
    }
  }
  faces.sort((a, b) => a.near - b.near);
  for (const { at, mean } of faces) element("path", { class: "face", d: `${path(at)}z`, style: `fill:${surfaceColour(plot, mean)}` }, svg);
  const stops = [];
  for (let j = axis.length - 1; j >= 0; j--) for (let i = 0; i < axis.length; i++) stops.push({ panel, i, j, x: grid[i][j][0], y: grid[i][j][1] });
  return stops;
}

function drawFloor(svg, chart, axis, flat) {
  const [first, last] = [axis[0], axis[axis.length - 1]];
  element("path", { class: "floor", d: `${path([flat(first, first, 0), flat(last, first, 0), flat(last, last, 0), flat(first, last, 0)])}z` }, svg);
  const corners = [[first, first], [first, last], [last, first], [last, last]];
  const [post] = [...corners].sort((a, b) => flat(...a, 0)[0] - flat(...b, 0)[0]);  // the leftmost stands free of the surface
  element("path", { class: "floor", d: path([flat(...post, 0), flat(...post, 1)]) }, svg);
  for (const [value, height] of [[chart.low, 0], [chart.high, 1]]) {
    const [x, y] = flat(...post, height);
    label(svg, x - 6, y + 4, written(value), { "text-anchor": "end" });
  }
  const nearer = (one, other) => (one[2] > other[2] ? one : other);  // in front, where the surface does not hide it
  for (const [name, at] of [
    [chart.x, nearer(flat(0, 1.36 * first, 0), flat(0, 1.36 * last, 0))],
    [chart.y, nearer(flat(1.36 * first, 0, 0), flat(1.36 * last, 0, 0))],
  ]) label(svg, at[0], at[1] + 4, name, { "text-anchor": "middle" });
}

function turnable(plot, chart) {
  if (plot.turnable || plot.classList.contains("stage")) return;
  plot.turnable = true;
  const solid = () => (plot.chosen ?? chart.choose.chosen) === SOLID;
  const turn = (right, up) => {
    const view = viewOf(chart);
    view.azimuth += right;
    view.tilt = Math.max(0.1, Math.min(1.45, view.tilt + up));
    draw(plot);
  };
  let from = null;
  plot.addEventListener("pointerdown", (event) => { from = [event.clientX, event.clientY]; });
  window.addEventListener("pointerup", () => { from = null; });
  plot.addEventListener("pointermove", (event) => {
    if (!from || !solid()) return;
    event.preventDefault();
    turn((event.clientX - from[0]) / -120, (event.clientY - from[1]) / 160);
    from = [event.clientX, event.clientY];
  });
  plot.addEventListener("keydown", (event) => {
    const turns = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
    if (!event.shiftKey || !solid() || !(event.key in turns)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    turn(...turns[event.key]);
  }, true);
}

kinds.surface = paintSurface;
