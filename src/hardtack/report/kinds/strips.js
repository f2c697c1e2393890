// How accuracy scatters over masks: a dot for each, a box for the middle half, the worst case and the clean accuracy.

// Spreads dots over the lane without chance, so that the same numbers give the same picture.
function spread(i, height) { return (((i * 0.618034) % 1) - 0.5) * height; }

function paintStrips(chart, { plot, width, hidden }) {
  const shown = visible(chart.series, hidden);
  if (!shown.length) return null;
  const values = shown.flatMap((one) => [
    ...(one.clean ? [one.clean[0]] : []),
    ...one.values.filter(Boolean).flatMap((found) => [...found.points, found.mean[0], ...(found.worst ? [found.worst[0]] : [])]),
  ]);
  const [low] = rounded(Math.min(...values), 1, 5);
  const box = rowFrame(plot, {
    width, rows: chart.rows, lanes: shown.length, lane: 20, low: Math.max(0, low), high: 1, top: 4, axis: chart.x,
    tick: (value) => Math.round(100 * value) + "%",
  });
  shown.forEach((one, lane) => {
    const parent = group(box.svg, one.run);
    one.values.forEach((found, row) => { if (found) drawStrip(parent, box, one, found, box.y(row, lane)); });
  });
  return rowState(box, chart.rows, (row) => shown.filter((one) => one.values[row]).map((one) => {
    const { mean, worst, points } = one.values[row];
    const parts = [points.length > 1 ? `masks ${range(Math.min(...points), Math.max(...points))}` : "", worst ? `all ${percent(worst[0])}` : "", one.clean ? `clean ${percent(one.clean[0])}` : ""];
    return { run: one.run, name: one.name, value: percent(mean[0]), range: parts.filter(Boolean).join(" · ") };
  }));
}

function drawStrip(parent, box, one, found, y) {
  const style = `fill:${colour(one.run)}`;
  const stroke = `stroke:${colour(one.run)}`;
  found.points.forEach((point, i) => element("circle", { class: "mask", cx: box.x(point).toFixed(1), cy: (y + spread(i, 11)).toFixed(1), r: 1.8, style }, parent));
  if (found.quartiles) {
    const [from, middle, to] = found.quartiles.map(box.x);
    element("rect", { class: "quartiles", x: from, y: y - 6, width: Math.max(1, to - from), height: 12, rx: 2 }, parent);
    element("line", { class: "median", x1: middle, x2: middle, y1: y - 6, y2: y + 6 }, parent);
  }
  if (found.worst) {
    const x = box.x(found.worst[0]);
    element("path", { class: "worst", d: `M${x - 4} ${y - 4}L${x + 4} ${y + 4}M${x - 4} ${y + 4}L${x + 4} ${y - 4}`, style: stroke }, parent);
  }
  if (one.clean) element("line", { class: "clean-mark", x1: box.x(one.clean[0]), x2: box.x(one.clean[0]), y1: y - 8, y2: y + 8, style: stroke }, parent);
}

kinds.strips = paintStrips;
