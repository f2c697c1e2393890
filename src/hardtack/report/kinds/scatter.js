// One number of every run against another: a dot for each, named where there is room.

function scatterScale(values, from, to, count, log) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (log) {
    const share = shareOf(true, low / 1.2, high * 1.2);
    return { at: (value) => from + share(value) * (to - from), ticks: high > 10 * low ? powers(low, high) : ticks(low, high, count) };
  }
  const room = 0.08 * (high - low) || 0.1 * Math.abs(high) || 1;
  let [start, end] = rounded(low - room, high + room, count);
  if (low >= 0 && start < 0) start = 0;
  return { at: (value) => from + ((value - start) / (end - start)) * (to - from), ticks: ticks(start, end, count) };
}

function scatterText(axis, value) { return axis.kind === "percent" ? percent(value) : written(value); }
function scatterTick(axis, value) { return axis.kind === "percent" ? `${written(Number((100 * value).toPrecision(6)))}%` : written(value); }

function paintScatter(chart, { plot, width, hidden, chosen }) {
  const view = chart.views[chosen];
  const series = view.series.filter((one) => !hidden.has(one.run));
  if (!series.length) return null;
  const height = Math.round(Math.min(420, Math.max(240, width * 0.5)));
  const [left, right, top, bottom] = [56, 18, 26, height - 42];
  const x = scatterScale(series.map((one) => one.x), left, width - right, Math.max(3, Math.floor(width / 110)), view.x.log);
  const y = scatterScale(series.flatMap((one) => [one.y, one.low, one.high].filter((value) => value !== null)), bottom, top, 5);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}` }, plot);
  label(svg, left - 48, 12, view.y.label);
  for (const value of y.ticks) {
    element("line", { class: "grid", x1: left, x2: width - right, y1: y.at(value), y2: y.at(value) }, svg);
    label(svg, left - 8, y.at(value) + 4, scatterTick(view.y, value), { "text-anchor": "end" });
  }
  element("line", { class: "axis", x1: left, x2: width - right, y1: bottom, y2: bottom }, svg);
  for (const value of x.ticks) {
    element("line", { class: "axis", x1: x.at(value), x2: x.at(value), y1: bottom, y2: bottom + 5 }, svg);
    label(svg, x.at(value), bottom + 19, scatterTick(view.x, value), { "text-anchor": "middle" });
  }
  label(svg, (left + width - right) / 2, height - 4, view.x.label, { "text-anchor": "middle" });
  const stops = [...series].sort((a, b) => a.x - b.x).map((one) => ({ one, x: x.at(one.x), y: y.at(one.y) }));
  const measured = new Set(series.filter((one) => !one.open).map((one) => one.name));  // named once
  const taken = stops.map((stop) => ({ left: stop.x - 7, right: stop.x + 7, y: stop.y }));
  for (const stop of [...stops].sort((a, b) => faded(b.one.run) - faded(a.one.run))) {
    const { one } = stop;
    const parent = group(svg, one.run);
    if (one.low !== null && one.high !== null) element("line", { class: "whisker", x1: stop.x, x2: stop.x, y1: y.at(one.low), y2: y.at(one.high) }, parent);
    const look = one.open ? { class: "open", style: `stroke:${colour(one.run)}` } : { style: `fill:${colour(one.run)}` };
    if (squared(one.run)) element("rect", { x: stop.x - 5, y: stop.y - 5, width: 10, height: 10, ...look }, parent);
    else element("circle", { cx: stop.x, cy: stop.y, r: faded(one.run) ? 4 : 6, ...look }, parent);
    if (!faded(one.run) && !(one.open && measured.has(one.name))) scatterName(parent, stop, taken, width - right);
  }
  const read = (index) => {
    const { one, ...place } = stops[index];
    return {
      ...place,
      title: one.open ? `${one.name}, paper` : one.name,
      lines: [
        { run: one.run, name: view.x.label, value: scatterText(view.x, one.x), range: "" },
        { run: one.run, name: view.y.label, value: scatterText(view.y, one.y), range: one.low === null ? "" : `${scatterText(view.y, one.low)}–${scatterText(view.y, one.high)}` },
      ],
      mark: (cursor) => element("circle", { class: "picked", cx: place.x, cy: place.y, r: 10 }, cursor),
    };
  };
  return { svg, width, height, count: stops.length, columns: 1, near: nearestStop(stops), read };
}

// Beside its dot, at the right or at the left, unless another dot or name is there already.
function scatterName(svg, stop, taken, end) {
  const wide = textWidth(stop.one.name);
  for (const from of [stop.x + 11, stop.x - 11 - wide]) {
    const box = { left: from, right: from + wide, y: stop.y };
    const free = from > 60 && box.right < end && !taken.some((other) => other.left < box.right && box.left < other.right && Math.abs(other.y - box.y) < 13);
    if (!free) continue;
    taken.push(box);
    label(svg, from, stop.y + 4, stop.one.name, { class: "row" });
    return;
  }
}

kinds.scatter = paintScatter;
