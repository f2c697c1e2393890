// Scales: round steps, and numbers short enough for an axis.

function niceStep(span, count) {
  const raw = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const lead = raw / power;
  return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 2.5 ? 2.5 : lead <= 5 ? 5 : 10);
}

function ticks(low, high, count) {
  return multiples(niceStep(high - low || 1, count), low, high);
}

function multiples(step, low, high) {
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

// The smallest round interval around the values.
function rounded(low, high, count) {
  const step = niceStep(high - low || 1, count);
  return [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
}

// Where a value lies between two others, 0 … 1; `log`: by its ratio to them.
function shareOf(log, low, high) {
  const of = log ? Math.log : (value) => value;
  return (value) => (of(value) - of(low)) / (of(high) - of(low));
}

function powers(low, high) {
  const [from, to] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const step = Math.max(1, Math.ceil((to - from) / 6));
  const found = [];
  for (let power = from; power <= to; power += step) found.push(10 ** power);
  return found;
}

function apart(values, place, distance) {
  const kept = [];
  for (const value of values) if (!kept.length || place(value) - place(kept[kept.length - 1]) >= distance) kept.push(value);
  return kept;
}

function written(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 10000 || size < 0.001) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
  return String(Number(value.toPrecision(3)));
}

// The marks of a scale, with as many digits as tell them apart.
function writtenApart(values) {
  for (let digits = 3; digits < 10; digits++) {
    const texts = values.map((value) => (digits === 3 ? written(value) : String(Number(value.toPrecision(digits)))));
    if (new Set(texts).size === values.length) return texts;
  }
  return values.map(String);
}

// Where the pointer is nearest to: of the stops, by their distance in both directions.
function nearestStop(stops) {
  return (x, y) => {
    let best = 0;
    const away = (stop) => Math.hypot(stop.x - x, 1.5 * (stop.y - y));
    stops.forEach((stop, i) => { if (away(stop) < away(stops[best])) best = i; });
    return best;
  };
}
