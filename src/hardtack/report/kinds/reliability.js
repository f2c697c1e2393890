// Reliability diagrams beside each other: accuracy in bins of confidence, and below how many images are how sure.

function paintReliability(chart, { plot, width, hidden }) {
  const panels = chart.panels.filter((panel) => !hidden.has(panel.run));
  if (!panels.length) return null;
  const columns = Math.max(1, Math.min(panels.length, 4, Math.floor(width / 220)));
  const cell = width / columns;
  const side = Math.min(300, cell - 62);
  const [top, histogram] = [42, 46];
  const cellHeight = top + side + histogram + 52;
  const height = Math.ceil(panels.length / columns) * cellHeight;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}` }, plot);
  const stops = panels.flatMap((panel, i) => {
    const [left, up] = [(i % columns) * cell + 42, Math.floor(i / columns) * cellHeight];
    return drawPanel(group(svg, panel.run), chart, panel, { left, top: up + top, side, histogram });
  });
  const read = (index) => {
    const { panel, bin, x, rect } = stops[index];
    const [low, high, count, confidence, accuracy] = bin;
    return {
      x,
      title: `${panel.name}, ${chart.x} ${percent(low)}–${percent(high)}`,
      lines: [
        { run: panel.run, name: "accuracy", value: percent(accuracy), range: "" },
        { style: "fill:var(--ink-3)", name: "mean confidence", value: percent(confidence), range: imageCount(count) },
      ],
      mark: (cursor) => element("rect", { class: "picked", ...rect, rx: 2 }, cursor),
    };
  };
  return { svg, width, height, count: stops.length, columns: 1, near: nearestStop(stops), read };
}

// Strokes at 45 degrees inside a box: a gap must be seen on a bar of any colour.
function hatching({ x, y, width, height }) {
  const strokes = [];
  for (let at = 5; at < width + height; at += 5) {
    const [from, to] = [Math.max(0, at - height), Math.min(width, at)];
    strokes.push(`M${x + from} ${y + at - from}L${x + to} ${y + at - to}`);
  }
  return strokes.join("");
}

function drawPanel(svg, chart, panel, { left, top, side, histogram }) {
  const x = (value) => left + value * side;
  const y = (value) => top + side - value * side;
  label(svg, left, top - 24, fitted(panel.name, side, 13), { class: "strong" });
  label(svg, left, top - 8, `calibration error ${panel.error}`);
  for (const value of [0, 0.25, 0.5, 0.75, 1]) {
    element("line", { class: "grid", x1: left, x2: left + side, y1: y(value), y2: y(value) }, svg);
    if (value * 2 === Math.round(value * 2)) {
      label(svg, left - 6, y(value) + 4, `${100 * value}%`, { "text-anchor": "end" });
      label(svg, x(value), top + side + histogram + 20, `${100 * value}%`, { "text-anchor": value === 1 ? "end" : value ? "middle" : "start" });
    }
  }
  const most = Math.max(...panel.bins.map((bin) => bin[2]));
  const under = top + side + histogram + 4;
  const stops = panel.bins.map((bin) => {
    const [low, high, count, confidence, accuracy] = bin;
    const width = Math.max(1, x(high) - x(low) - 1);
    element("rect", { class: "accuracy", x: x(low), y: y(accuracy), width, height: Math.max(0.5, y(0) - y(accuracy)), style: `fill:${colour(panel.run)}` }, svg);
    const [upper, lower] = [Math.max(accuracy, confidence), Math.min(accuracy, confidence)];
    const gap = { x: x(low), y: y(upper), width, height: Math.max(0.5, y(lower) - y(upper)) };
    element("rect", { class: "gap", ...gap }, svg);
    element("path", { class: "hatch", d: hatching(gap) }, svg);
    const tall = (count / most) * (histogram - 8);
    element("rect", { class: "count", x: x(low), y: under - tall, width, height: tall, style: `fill:${colour(panel.run)}` }, svg);
    return { panel, bin, x: x((low + high) / 2), y: top + side / 2, rect: { x: x(low), y: top, width, height: under - top } };
  });
  element("line", { class: "diagonal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }, svg);
  element("line", { class: "axis", x1: left, x2: left + side, y1: under, y2: under }, svg);
  label(svg, left + side / 2, under + 34, chart.x, { "text-anchor": "middle" });
  return stops;
}

kinds.reliability = paintReliability;
