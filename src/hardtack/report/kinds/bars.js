// Bars with intervals, as they are or as the difference to a baseline.

function paintBars(chart, { plot, width, hidden, chosen }) {
  const base = chart.choose ? chosen - 1 : -1;
  const bars = chart.series
    .map((one, i) => ({ run: one.run, name: one.name, look: one.look, values: base < 0 ? one.values : chart.differences[base][i], i }))
    .filter((one) => one.i !== base);
  const shown = visible(bars, hidden);
  if (!shown.length) return null;
  const mean = (row) => {
    const values = shown.map((one) => one.values[row]).filter(Boolean).map((value) => value[0]);
    return values.length ? values.reduce((a, b) => a + b, 0) / values.length : -Infinity;
  };
  const places = chart.rows.map((_, row) => row);
  const last = chart.total ? places.pop() : undefined;
  if (!chart.in_order) places.sort((a, b) => mean(b) - mean(a));
  if (last !== undefined) places.push(last);
  const bounds = shown.flatMap((one) => one.values.filter(Boolean).flatMap((value) => value.filter((bound) => bound !== null)));
  const ends = [Math.min(0, ...bounds), Math.max(0, ...bounds)];
  const count = width < 420 ? 3 : 5;
  let [low, high] = rounded(...ends, count);
  const shares = chart.unit !== "number";
  if (base < 0 && shares) [low, high] = [0, high > 0.5 ? 1 : high];
  if (low === high) high = low + 0.01;
  // The steps that the ends were rounded to: a scale that reaches to a side has a mark there.
  const marks = base < 0 ? undefined : multiples(niceStep(ends[1] - ends[0] || 1, count), low, high);
  const baseline = base < 0 ? "" : chart.series[base].name;
  const box = rowFrame(plot, {
    width, rows: places.map((row) => chart.rows[row]), lanes: shown.length, lane: shown.length > 1 ? 11 : 15, low, high, top: 4, separate: chart.total, marks,
    axis: base < 0 ? chart.x : `points above ${fitted(baseline, width * 0.4)}`,
    tick: (value) => (base < 0 ? (shares ? Math.round(1000 * value) / 10 + "%" : written(value)) : Math.abs(value) < 1e-9 ? "0" : signed(value).replace(".0", "")),
  });
  shown.forEach((one, lane) => {
    const parent = group(box.svg, one.run);
    places.forEach((row, at) => {
      if (one.values[row]) drawBar(parent, box, one, box.y(at, lane), one.values[row]);
    });
  });
  return rowState(box, places.map((row) => chart.rows[row]), (at) => shown.filter((one) => one.values[places[at]]).map((one) => {
    const [value, from, to] = one.values[places[at]];
    if (base < 0 && !shares) return { run: one.run, name: one.name, value: written(value), range: from === null ? "" : `${written(from)} to ${written(to)}` };
    const between = base < 0 ? range(from === null ? null : Math.max(0, from), Math.min(1, to)) : from === null ? "" : `${signed(from)} to ${signed(to)}`;
    return { run: one.run, name: one.name, value: base < 0 ? percent(value) : signed(value), range: between };
  }));
}

function drawBar(parent, box, { run, look }, y, [value, low, high]) {
  const [zero, end, thick] = [box.x(0), box.x(value), box.lane - 3];
  element("rect", { x: Math.min(zero, end), y: y - thick / 2, width: Math.max(1, Math.abs(end - zero)), height: thick, rx: 2, ...(look === "open" ? { class: "open", style: `stroke:${colour(run)}` } : { style: `fill:${colour(run)}` }) }, parent);
  if (low === null || low === undefined) return;
  const [from, to] = [box.x(low), box.x(high)];
  element("line", { class: "whisker-under", x1: from, x2: to, y1: y, y2: y }, parent);
  element("line", { class: "whisker", x1: from, x2: to, y1: y, y2: y }, parent);
}

kinds.bars = paintBars;
