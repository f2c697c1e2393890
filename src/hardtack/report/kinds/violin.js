// How one number is distributed, row by row: an outline for every run, a box for the middle half, its median and mean.

function paintViolin(chart, { plot, width, hidden, chosen }) {
  const view = chart.views[chosen];
  const shown = visible(view.series, hidden);
  if (!shown.length) return null;
  const known = shown.flatMap((one) => one.values.filter(Boolean));
  const { place, marks } = violinScale(view.log, Math.min(...known.map((found) => found.low)), Math.max(...known.map((found) => found.high)));
  const box = rowFrame(plot, {
    width, rows: view.rows, lanes: shown.length, lane: view.rows.length * shown.length > 30 ? 17 : shown.length > 3 ? 20 : 26, low: 0, high: 1, top: 4, axis: view.x, marks: marks.map(place),
    tick: (share) => written(marks.reduce((best, value) => (Math.abs(place(value) - share) < Math.abs(place(best) - share) ? value : best))),
  });
  const x = (value) => box.x(place(value));
  shown.forEach((one, lane) => {
    const parent = group(box.svg, one.run);
    one.values.forEach((found, row) => { if (found) drawViolin(parent, x, one.run, found, box.y(row, lane), box.lane / 2 - 1.5); });
  });
  return rowState(box, view.rows, (row) => shown.filter((one) => one.values[row]).map((one) => {
    const { mean, quartiles, low, high, n } = one.values[row];
    return { run: one.run, name: one.name, value: written(mean), range: `median ${written(quartiles[1])} · ${written(low)}–${written(high)} · n ${n}` };
  }));
}

// Where a value lies on the scale, 0 … 1, and which values are marked.
function violinScale(log, low, high) {
  if (log) {
    const share = shareOf(true, low, high);
    const tens = powers(low, high);
    return { place: share, marks: tens.length > 2 ? tens : violinMarks(low, high) };
  }
  const [from, to] = rounded(low > 0 && low < 0.6 * high ? 0 : low, high, 6);
  const end = to > from ? to : from + 1;
  return { place: shareOf(false, from, end), marks: ticks(from, end, 6) };
}

function violinMarks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
    for (const lead of [1, 2, 5]) if (lead * 10 ** power >= low && lead * 10 ** power <= high) found.push(lead * 10 ** power);
  }
  return found.length ? found : [low, high];
}

function drawViolin(parent, x, run, found, y, half) {
  const style = `fill:${colour(run)}`;
  if (found.points) {
    for (const point of found.points) element("circle", { class: "mask", cx: x(point).toFixed(1), cy: y, r: 2.6, style }, parent);
  } else {
    const side = (sign) => found.at.map((value, i) => `${x(value).toFixed(1)},${(y + sign * half * found.density[i]).toFixed(1)}`);
    element("polygon", { class: "violin", points: [...side(-1), ...side(1).reverse()].join(" "), style: `${style};stroke:${colour(run)}` }, parent);
    const [from, middle, to] = found.quartiles.map(x);
    element("rect", { class: "quartiles", x: from, y: y - 3, width: Math.max(1, to - from), height: 6, rx: 1.5 }, parent);
    element("line", { class: "median", x1: middle, x2: middle, y1: y - 3, y2: y + 3 }, parent);
  }
  element("circle", { class: "violin-mean", cx: x(found.mean), cy: y, r: 2.6 }, parent);
}

kinds.violin = paintViolin;
