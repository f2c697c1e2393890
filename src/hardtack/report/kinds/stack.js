// Every run a bar: what still stands, what fell to which attack, what was wrong to begin with.

function partColour(role) { return `fill:var(--part-${role})`; }

function paintStack(chart, { plot, width, hidden, chosen }) {
  const view = chart.views[chosen];
  const bars = view.bars.filter((bar) => !hidden.has(bar.run));
  if (!bars.length) return null;
  const keys = view.parts.map((part) => ({ name: part.name, style: partColour(part.role) }));
  const scratch = element("svg", {});
  const top = drawKey(scratch, keys, 2, width - 16, 2) + 4;
  const box = rowFrame(plot, {
    width, rows: bars.map((bar) => bar.name), lanes: 1, lane: 26, low: 0, high: 1, top, axis: chart.x,
    tick: (value) => Math.round(100 * value) + "%",
  });
  drawKey(box.svg, keys, 2, width - 16, 2);
  bars.forEach((bar, row) => {
    const parent = group(box.svg, bar.run);
    let before = 0;
    bar.counts.forEach((count, i) => {
      const [from, to] = [box.x(before / bar.n), box.x((before + count) / bar.n)];
      before += count;
      if (!count) return;
      const role = view.parts[i].role;
      element("rect", { class: "part", x: from, y: box.y(row, 0) - 11, width: Math.max(0.5, to - from - 1), height: 22, rx: 2, style: partColour(role) }, parent);
      const share = (100 * count) / bar.n;
      const said = share < 10 ? share.toFixed(1) : Math.round(share).toString();
      if (to - from > textWidth(said) + 8) label(parent, (from + to) / 2, box.y(row, 0) + 4, said, { "text-anchor": "middle", class: `on-part-${role}` });
    });
  });
  return rowState(box, bars.map((bar) => bar.name), (row) => bars[row].counts.map((count, i) => ({
    style: partColour(view.parts[i].role), name: view.parts[i].name, value: percent(count / bars[row].n), range: imageCount(count),
  })));
}

kinds.stack = paintStack;
