// The frame of a chart with two axes: `box.x(value)` and `box.y(value)` are places in the drawing.

function yDomain(chart, series) {
  if (chart.y.kind === "percent") return [0, 1];
  const known = (one, point) => (one.band ? point.slice(1).filter((value) => value !== null) : [point[1]]);
  const values = series.flatMap((one) => one.points.flatMap((point) => known(one, point)));
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (chart.y.log) return [10 ** Math.floor(Math.log10(low) + 1e-9), 10 ** Math.ceil(Math.log10(high) - 1e-9)];
  if (chart.y.kind === "points") [low, high] = [Math.min(low, -0.01), Math.max(high, 0.01)];
  if (low > 0 && low < 0.5 * high) low = 0;
  if (low === high) [low, high] = [low - 1, high + 1];
  return rounded(low, high, chart.small ? 3 : 5);
}

function lineFrame(width, chart, series) {
  const height = Math.round(chart.small ? Math.min(220, Math.max(170, width * 0.5)) : Math.min(400, Math.max(230, width * 0.46)));
  const box = { left: 46, right: 14, top: 8, bottom: 42, width, height };
  const xs = series.flatMap((one) => one.points.map((point) => point[0]));
  let [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  if (x0 === x1) [x0, x1] = chart.x.log ? [x0 / 2, x1 * 2] : [x0 - 1, x1 + 1];
  const [y0, y1] = yDomain(chart, series);
  const [xShare, yShare] = [shareOf(chart.x.log, x0, x1), shareOf(chart.y.log, y0, y1)];
  box.x = (value) => box.left + xShare(value) * (width - box.left - box.right);
  box.y = (value) => height - box.bottom - yShare(value) * (height - box.top - box.bottom);
  box.xTicks = chart.x.ticks ? apart(chart.x.ticks, box.x, 30) : chart.x.log ? powers(x0, x1) : ticks(x0, x1, Math.max(3, Math.floor(width / 80)));
  box.yTicks = chart.y.log ? powers(y0, y1) : ticks(y0, y1, chart.small ? 3 : 5);
  return box;
}
