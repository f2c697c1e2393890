// Class by class: an open dot for clean accuracy, a filled one under attack, a line for what the attack costs.

function paintDots(chart, { plot, width, hidden, chosen }) {
  const view = chart.views[chosen];
  const shown = visible(view.series, hidden);
  if (!shown.length) return null;
  const box = rowFrame(plot, {
    width, rows: view.rows, lanes: shown.length, lane: shown.length > 1 ? 10 : 16, low: 0, high: 1, top: 4, axis: chart.x,
    tick: (value) => Math.round(100 * value) + "%",
  });
  shown.forEach((one, lane) => {
    const parent = group(box.svg, one.run);
    view.rows.forEach((_, row) => {
      const y = box.y(row, lane);
      const [clean, robust] = [one.clean && one.clean[row], one.robust && one.robust[row]];
      const stroke = `stroke:${colour(one.run)}`;
      if (clean && robust) element("line", { class: "cost", x1: box.x(robust[0]), x2: box.x(clean[0]), y1: y, y2: y, style: stroke }, parent);
      if (clean) element("circle", { class: "open", cx: box.x(clean[0]), cy: y, r: 3.4, style: stroke }, parent);
      if (robust) element("circle", { cx: box.x(robust[0]), cy: y, r: 4, style: `fill:${colour(one.run)}` }, parent);
    });
  });
  const state = rowState(box, view.rows, (row) => shown.flatMap((one) => ["robust", "clean"].filter((kind) => one[kind] && one[kind][row]).map((kind) => {
    const [value, low, high] = one[kind][row];
    return { run: one.run, name: `${one.name}, ${kind}`, value: percent(value), range: range(low, high) };
  })));
  const read = state.read;
  state.read = (row) => ({ ...read(row), title: `${view.rows[row]}: ${imageCount(view.counts[row])}` });
  return state;
}

kinds.dots = paintDots;
