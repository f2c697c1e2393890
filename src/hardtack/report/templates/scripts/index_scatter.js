// The chart: a dot for each number of one way, and the front of those that no other beats in both directions.

const LABELS = 8;  // names beside dots of the front
const MODELS = 6;  // architectures with a colour of their own

// The architectures with most dots have a colour; a number of reported results on the same data is drawn beside.
function modelColours(rows) {
  const counts = new Map();
  for (const row of rows) counts.set(row.model, (counts.get(row.model) || 0) + 1);
  const names = [...counts.keys()].filter(Boolean).sort((a, b) => counts.get(b) - counts.get(a) || a.localeCompare(b));
  return new Map(names.slice(0, MODELS).map((name, place) => [name, place]));
}

function quotedBeside(way) {
  const about = site.ways[way];
  if (about.reported) return [];
  const same = (other) => other.reported && about.beside.every((part, place) => part === other.beside[place]);
  return numbers.filter((row) => same(site.ways[row.way]));
}

function axisOf(values, from, to, count, log) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (log) {
    [low, high] = [low / 1.3, high * 1.3];
    const share = shareOf(true, low, high);
    return { at: (value) => from + share(value) * (to - from), ticks: high > 10 * low ? powers(low, high) : ticks(low, high, count) };
  }
  const room = 0.06 * (high - low) || 0.05 * Math.abs(high) || 0.05;
  [low, high] = rounded(Math.max(low >= 0 ? 0 : -Infinity, low - room), high + room, count);
  return { at: (value) => from + ((value - low) / (high - low)) * (to - from), ticks: ticks(low, high, count) };
}

function percentTick(value) { return `${written(Number((100 * value).toPrecision(6)))}%`; }
function countTick(value) {
  for (const [size, unit] of [[1e9, " B"], [1e6, " M"], [1e3, " k"]]) if (value >= size) return `${written(value / size)}${unit}`;
  return written(value);
}

function dotOf(svg, place, row, look) {
  const link = element("a", { href: row.page, class: look.kind, tabindex: look.front ? 0 : -1, "data-row": numbers.indexOf(row) }, svg);
  link.setAttribute("aria-label", `${row.name}: ${row.text}${row.cleanText ? `, clean ${row.cleanText}` : ""}${row.red ? ", flagged" : ""}`);
  const size = look.front ? 6.5 : 4.5;
  const [x, y] = [place.x, place.y];
  if (row.red) element("path", { class: "dot-mark", d: `M${x},${y - 6}L${x + 6},${y + 5}H${x - 6}Z` }, link);
  else if (look.kind === "quoted") element("rect", { class: "dot-mark", x: x - 4, y: y - 4, width: 8, height: 8 }, link);
  else element("circle", { class: "dot-mark", cx: x, cy: y, r: size, style: row.bare ? `fill:var(--surface);stroke:${look.colour}` : `fill:${look.colour}` }, link);
  return link;
}

function frontPath(front, x, y, field) {
  const places = front.map((row) => [x.at(row[field]), y.at(row.value)]);
  return places.map(([px, py], i) => (i ? `H${px}V${py}` : `M${px},${py}`)).join("");
}

function frontNames(svg, front, place, width, taken) {
  let named = 0;
  for (const row of [...front].sort((a, b) => b.value - a.value)) {
    const at = place(row);
    const text = fitted(row.name, 170);
    const wide = textWidth(text);
    for (const from of [at.x + 10, at.x - 10 - wide]) {
      const box = { left: from, right: from + wide, y: at.y - 6 };
      const free = from > 60 && box.right < width - 8 && !taken.some((other) => other.left < box.right && box.left < other.right && Math.abs(other.y - box.y) < 13);
      if (!free || named >= LABELS) continue;
      taken.push(box);
      named += 1;
      label(svg, from, at.y - 3, text, { class: "name" });
      break;
    }
  }
}

function drawScatter(rows, way) {
  const section = document.getElementById("scatter");
  const plot = section.querySelector(".plot");
  const key = section.querySelector(".key");
  const caption = section.querySelector("figcaption");
  plot.replaceChildren();
  key.replaceChildren();
  const about = site.ways[way];
  const field = about && (chosen.against === "parameters" || about.clean) ? "parameters" : "clean";
  const own = rows.filter((row) => row.way === way && row[field] !== null);
  const quoted = about ? quotedBeside(way).filter((row) => row[field] !== null) : [];
  section.querySelector("h3").textContent = about ? about.name : "";
  section.querySelector("h2").textContent = about ? `${about.title} against ${field === "clean" ? "clean accuracy" : "parameters"}` : "Chart";
  caption.textContent = own.length ? "" : `None of these numbers has ${field === "clean" ? "a clean accuracy" : "a known number of parameters"} beside it.`;
  if (!own.length) return;

  const width = Math.max(260, plot.clientWidth);
  const height = Math.round(Math.min(460, Math.max(280, width * 0.5)));
  const [left, right, top, bottom] = [52, 14, 26, height - 42];
  const all = [...own, ...quoted];
  const x = axisOf(all.map((row) => row[field]), left, width - right, Math.max(3, Math.floor(width / 110)), field === "parameters");
  const y = axisOf(all.map((row) => row.value), bottom, top, 5, false);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}` }, plot);
  label(svg, 4, 12, about.title);
  for (const value of y.ticks) {
    element("line", { class: "grid", x1: left, x2: width - right, y1: y.at(value), y2: y.at(value) }, svg);
    label(svg, left - 8, y.at(value) + 4, about.percent ? percentTick(value) : written(value), { "text-anchor": "end" });
  }
  element("line", { class: "axis", x1: left, x2: width - right, y1: bottom, y2: bottom }, svg);
  for (const value of x.ticks) {
    element("line", { class: "axis", x1: x.at(value), x2: x.at(value), y1: bottom, y2: bottom + 5 }, svg);
    label(svg, x.at(value), bottom + 19, field === "clean" ? percentTick(value) : countTick(value), { "text-anchor": "middle" });
  }
  label(svg, (left + width - right) / 2, height - 4, field === "clean" ? "clean accuracy" : "parameters", { "text-anchor": "middle" });

  const front = paretoFront(own, field, about.lower);
  const colours = modelColours(own);
  const place = (row) => ({ x: x.at(row[field]), y: y.at(row.value) });
  if (front.length > 1) element("path", { class: "front", d: frontPath(front, x, y, field) }, svg);
  for (const row of quoted) dotOf(svg, place(row), row, { kind: row.red ? "flagged" : "quoted", front: false });
  const inFront = new Set(front);
  for (const row of [...own].sort((a, b) => inFront.has(a) - inFront.has(b))) {
    const colour = colours.has(row.model) ? `var(--run-${colours.get(row.model)})` : "var(--run-faded)";
    dotOf(svg, place(row), row, { kind: row.red ? "flagged" : inFront.has(row) ? "best" : "behind", front: inFront.has(row), colour });
  }
  frontNames(svg, front, place, width, front.map((row) => ({ left: place(row).x - 7, right: place(row).x + 7, y: place(row).y })));
  drawKey(key, own, quoted, colours, front);
  const flagged = own.filter((row) => row.red).length;
  const bare = own.filter((row) => row.bare && !row.red).length;
  const apart = (count, why) => (count ? ` ${count} ${why} ${count === 1 ? "is" : "are"} no part of the front.` : "");
  const least = own.length < rows.filter((row) => row.way === way).length ? " Numbers without both values are only in the table." : "";
  const alone = own.length > 1 && front.length ? `; no other beats ${front[0].name} in either` : "";
  const line = front.length > 1 ? `; the dashed line joins the ${front.length} that no other beats in both` : alone;
  caption.textContent = `${own.length.toLocaleString("en")} ${own.length === 1 ? "number" : "numbers"}${line}.${apart(flagged, "with a red flag")}${apart(bare, "without evidence")}${least}`;
}

function drawKey(key, own, quoted, colours, front) {
  const entry = (look, text, style) => {
    const name = html("span", "name", undefined, key);
    const swatch = html("span", `swatch ${look}`, undefined, name);
    if (style) swatch.style.cssText = style;
    swatch.setAttribute("aria-hidden", "true");
    name.append(text);
  };
  for (const [name, place] of colours) entry("", name, `--run:var(--run-${place})`);
  if (own.some((row) => !row.red && !colours.has(row.model))) entry("", "other architectures", "--run:var(--run-faded)");
  if (front.length > 1) entry("line", "Pareto front", "--run:var(--accent)");
  if (own.some((row) => row.red)) entry("triangle", "red flag");
  if (own.some((row) => row.bare && !row.red)) entry("hollow", "no evidence", "--run:var(--ink-3)");
  if (quoted.length) entry("quoted", "reported by others, not measured here", "--run:var(--ink-3)");
}
