// Charts that lie on their side: rows with a name at the left, lanes for the runs in each, one scale below.

// The runs that have lanes: a lane for every one of twenty would be a chart nobody scrolls through.
function visible(series, hidden) {
  const left = series.filter((one) => !hidden.has(one.run));
  const best = left.filter((one) => !faded(one.run));
  return best.length ? best : left;
}

// A key inside the drawing, where colours are not those of the runs; returns its height.
function drawKey(svg, entries, left, width, top) {
  let [x, y] = [left, top];
  for (const { name, style, square, look } of entries) {
    const needed = Math.min(width - left, textWidth(name) + 22);
    if (x > left && x + needed > width) [x, y] = [left, y + 20];
    if (look === "dashed") element("line", { x1: x, x2: x + 13, y1: y + 6, y2: y + 6, "stroke-width": 2.2, "stroke-dasharray": "5 3", style }, svg);
    else element("rect", { class: look === "open" ? "open" : "", x, y, width: 11, height: 11, rx: square === false ? 5.5 : 2, style }, svg);
    label(svg, x + 17, y + 10, fitted(name, width - left - 22), { class: "row" });
    x += needed + 14;
  }
  return y + 26 - top;
}

// The frame: `box.y(row, lane)` is the middle of a lane, `box.x(value)` a place on the scale.
function rowFrame(plot, { width, rows, lanes, lane, low, high, top, axis, tick, separate, marks }) {
  const left = Math.min(0.36 * width, 1.06 * Math.max(...rows.map((name) => textWidth(name))) + 14);
  const pad = lanes > 1 ? 6 : 4;
  const rowHeight = Math.max(22, lanes * lane + 2 * pad);
  const extra = separate ? 8 : 0;
  const bottom = top + rows.length * rowHeight + extra;
  const box = { width, left, right: 16, top, bottom, height: bottom + 42, rowHeight, lane };
  box.svg = element("svg", { viewBox: `0 0 ${width} ${box.height}` }, plot);
  box.x = (value) => left + ((value - low) / (high - low)) * (width - left - box.right);
  box.rowTop = (row) => top + row * rowHeight + (separate && row === rows.length - 1 ? extra : 0);
  box.y = (row, at) => box.rowTop(row) + rowHeight / 2 + (at - (lanes - 1) / 2) * lane;
  for (const value of marks || ticks(low, high, Math.max(2, Math.floor((width - left) / 90)))) {
    element("line", { class: Math.abs(value) < 1e-9 ? "axis" : "grid", x1: box.x(value), x2: box.x(value), y1: top, y2: bottom }, box.svg);
    label(box.svg, box.x(value), bottom + 17, tick(value), { "text-anchor": "middle" });
  }
  rows.forEach((name, row) => {
    const y = box.rowTop(row);
    if (lanes > 1 && row) element("line", { class: "grid", x1: 0, x2: width - box.right, y1: y, y2: y }, box.svg);
    const last = separate && row === rows.length - 1;
    label(box.svg, left - 10, y + rowHeight / 2 + 4, fitted(name, left - 10), { "text-anchor": "end", class: last ? "strong" : "row" });
  });
  label(box.svg, (left + width - box.right) / 2, box.height - 4, axis, { "text-anchor": "middle" });
  return box;
}

// What the pointer reads: one row at a time.
function rowState(box, rows, lines) {
  const stops = rows.map((_, row) => ({ x: box.left, y: box.rowTop(row) + box.rowHeight / 2 }));
  return {
    svg: box.svg, width: box.width, height: box.height, count: rows.length, columns: 1,
    near: (x, y) => stops.reduce((best, stop, i) => (Math.abs(stop.y - y) < Math.abs(stops[best].y - y) ? i : best), 0),
    read: (row) => ({
      x: (box.left + box.width) / 2,
      y: box.rowTop(row) + box.rowHeight,
      title: rows[row],
      lines: lines(row),
      mark: (cursor) => element("rect", { class: "picked", x: 1, y: box.rowTop(row) + 1, width: box.width - 2, height: box.rowHeight - 2, rx: 6 }, cursor),
    }),
  };
}

function group(svg, run) {
  return element("g", { class: faded(run) ? "one faded" : "one", "data-run": run }, svg);
}
