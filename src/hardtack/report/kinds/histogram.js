// How one number is distributed: an outline of steps for every run over its own bins, its mean as a mark below.

function histogramPoints(one, height) {
  return one.density.flatMap((value, i) => [[one.edges[i], height(value)], [one.edges[i + 1], height(value)]]);
}

// Powers of ten reach down to the smallest bin that holds anything.
function histogramHeights(view, series) {
  if (!view.log) return { height: (value) => value, floor: 0 };
  const filled = series.flatMap((one) => one.density.filter((value) => value > 0));
  const floor = Math.floor(Math.log10(Math.min(...filled)) - 1e-9);
  return { height: (value) => (value > 0 ? Math.log10(value) : floor), floor };
}

function paintHistogram(chart, { plot, width, hidden, chosen }) {
  const view = chart.views[chosen];
  const series = view.series.filter((one) => !hidden.has(one.run));
  if (!series.length) return null;
  const { height, floor } = histogramHeights(view, series);
  const drawn = series.map((one) => ({ ...one, points: histogramPoints(one, height) }));
  const box = lineFrame(width, { x: { label: view.x }, y: { kind: "number" } }, [...drawn, { points: [[drawn[0].edges[0], floor]] }]);
  const svg = element("svg", { viewBox: `0 0 ${box.width} ${box.height}` }, plot);
  drawHistogramAxes(svg, view, box);
  const at = ([x, y]) => `${box.x(x).toFixed(1)},${box.y(y).toFixed(1)}`;
  for (const one of [...drawn].sort((a, b) => faded(b.run) - faded(a.run))) {
    const parent = group(svg, one.run);
    const ends = [[one.edges[0], floor], [one.edges[one.edges.length - 1], floor]];
    const line = [ends[0], ...one.points, ends[1]].map(at).join(" ");
    if (!faded(one.run)) element("polygon", { class: "band", points: line, style: `fill:${colour(one.run)}` }, parent);
    element("polyline", { class: "curve", points: line, style: `stroke:${colour(one.run)}`, ...(squared(one.run) && { "stroke-dasharray": "9 3" }) }, parent);
    if (one.mean !== undefined && !faded(one.run)) {
      const [x, y] = [box.x(one.mean), box.height - box.bottom];
      element("path", { class: "mean", d: `M${x} ${y - 1}L${x - 5} ${y - 10}L${x + 5} ${y - 10}z`, style: `fill:${colour(one.run)}` }, parent);
    }
  }
  const middles = [...new Set(series.flatMap((one) => one.density.map((_, i) => (one.edges[i] + one.edges[i + 1]) / 2)))].sort((a, b) => a - b);
  const read = (index) => {
    const x = middles[index];
    const found = series.map((one) => ({ one, bin: one.density.findIndex((_, i) => one.edges[i] <= x && x < one.edges[i + 1]) })).filter(({ bin }) => bin >= 0);
    return {
      x: box.x(x),
      title: `${view.x} ${written(x)}`,
      lines: found.slice(0, 12).map(({ one, bin }) => ({
        run: one.run, name: one.name, value: written(one.density[bin]), range: one.mean === undefined ? "" : `mean ${written(one.mean)}`,
      })),
      mark: (cursor) => {
        element("line", { class: "cursor", x1: box.x(x), x2: box.x(x), y1: box.top, y2: box.height - box.bottom }, cursor);
        for (const { one, bin } of found) element("circle", { cx: box.x(x), cy: box.y(height(one.density[bin])), r: 5, style: `fill:${colour(one.run)}` }, cursor);
      },
    };
  };
  const near = (x) => middles.reduce((best, stop, i) => (Math.abs(box.x(stop) - x) < Math.abs(box.x(middles[best]) - x) ? i : best), 0);
  return { svg, width, height: box.height, count: middles.length, columns: 1, near, read };
}

function drawHistogramAxes(svg, view, box) {
  const marks = view.log ? box.yTicks.filter((value) => Number.isInteger(value)) : box.yTicks;
  const [aside, below] = [writtenApart(marks.map((value) => (view.log ? 10 ** value : value))), writtenApart(box.xTicks)];
  for (const [i, value] of marks.entries()) {
    const y = box.y(value);
    element("line", { class: "grid", x1: box.left, x2: box.width - box.right, y1: y, y2: y }, svg);
    label(svg, box.left - 8, y + 4, aside[i], { "text-anchor": "end" });
  }
  const bottom = box.height - box.bottom;
  element("line", { class: "axis", x1: box.left, x2: box.width - box.right, y1: bottom, y2: bottom }, svg);
  for (const [i, value] of box.xTicks.entries()) {
    element("line", { class: "axis", x1: box.x(value), x2: box.x(value), y1: bottom, y2: bottom + 5 }, svg);
    label(svg, box.x(value), bottom + 19, below[i], { "text-anchor": "middle" });
  }
  const [middle, full] = [(box.left + box.width - box.right) / 2, `${view.x} (height: ${view.y})`];
  const fits = textWidth(full) < box.width - box.left ? full : fitted(view.x, box.width - box.left);
  label(svg, middle, box.height - 4, fits, { "text-anchor": "middle" });
}

kinds.histogram = paintHistogram;
