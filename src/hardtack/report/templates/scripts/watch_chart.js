// A small chart of one or more curves over the epochs of a training.

function watchChart(plot, title, curves, { percent: inPercent, epochs }) {
  const shown = curves.filter((curve) => curve.points.length);
  plot.replaceChildren();
  if (!shown.length) return;
  const width = Math.max(220, plot.clientWidth || 300);
  const height = Math.round(Math.min(210, Math.max(150, width * 0.5)));
  const [left, right, top, bottom] = [44, 12, 22, height - 24];
  const values = shown.flatMap((curve) => curve.points.map((point) => point[1]));
  const ends = shown.flatMap((curve) => curve.points.map((point) => point[0]));
  let [low, high] = inPercent ? [0, Math.max(0.1, ...values)] : [Math.min(...values), Math.max(...values)];
  if (low > 0 && low < 0.6 * high) low = 0;
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  [low, high] = rounded(low, high, 4);
  if (inPercent) high = Math.min(1, high);
  const last = Math.max(epochs || 0, ...ends) || 1;
  const x = (value) => left + (value / last) * (width - left - right);
  const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" }, plot);
  svg.setAttribute("aria-label", `${title}: ${shown.map((curve) => `${curve.name} ${format(curve.points[curve.points.length - 1][1], inPercent)}`).join(", ")}`);
  label(svg, 2, 12, title);
  for (const value of ticks(low, high, 4)) {
    element("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }, svg);
    label(svg, left - 6, y(value) + 4, inPercent ? `${Math.round(100 * value)}%` : written(value), { "text-anchor": "end" });
  }
  for (const value of ticks(0, last, Math.max(2, Math.floor(width / 90)))) label(svg, x(value), height - 6, written(value), { "text-anchor": "middle" });
  for (const curve of shown) {
    const points = curve.points.map(([epoch, value]) => `${x(epoch).toFixed(1)},${y(value).toFixed(1)}`);
    const style = `stroke:${curve.colour}`;
    if (points.length > 1) element("polyline", { class: curve.dashed ? "curve dashed" : "curve", points: points.join(" "), style }, svg);
    const [cx, cy] = points[points.length - 1].split(",");
    element("circle", { class: "end", cx, cy, r: 3.5, style: `fill:${curve.colour}` }, svg);
  }
}

function format(value, inPercent) { return inPercent ? percent(value) : written(value); }
