// Pictures in a grid with a few words below each; on a narrow page the pictures of a row take several lines.

const PICTURE = { most: 132, least: 64, gap: 10, words: 18 };

function galleryShown(view, hidden) {
  const kept = (one) => one.run === undefined || !hidden.has(one.run);
  const places = view.columns.map((_, i) => i).filter((i) => kept(view.columns[i]));
  return { columns: places.map((i) => view.columns[i]), rows: view.rows.filter(kept).map((row) => ({ ...row, cells: places.map((i) => row.cells[i]) })) };
}

function wrapWords(text, width, most) {
  const lines = wrapped(text, width, 12).filter(Boolean);
  const kept = lines.length <= most ? lines : [...lines.slice(0, most - 1), lines.slice(most - 1).join(" ")];
  return kept.map((line) => fitted(line, width));
}

// Where everything goes: names at the left if there is room for them and the pictures, else above each row.
function galleryFrame(width, { columns, rows }) {
  const { most, least, gap, words } = PICTURE;
  const names = Math.max(0, ...rows.map((row) => textWidth(row.name)));
  const aside = Math.min(0.24 * width, 1.08 * names + 14);
  const roomy = (width - aside) / columns.length >= least + gap;
  const left = roomy ? aside : 0;
  const across = roomy ? columns.length : Math.max(1, Math.min(columns.length, Math.floor(width / (least + gap))));
  const cell = Math.min(most + gap, (width - left) / across);
  const heads = columns.map((column) => wrapWords(column.name, 0.93 * (cell - gap), 3));
  const texts = rows.some((row) => row.cells.some((found) => found && found.text));
  const wraps = across < columns.length;
  const head = 16 * Math.max(0, ...heads.map((lines) => lines.length)) + 6;
  return { left, across, cell, side: cell - gap, heads, head, wraps, lines: Math.ceil(columns.length / across), under: texts ? words : 0, name: roomy || !names ? 0 : 20 };
}

function paintGallery(chart, { plot, width, hidden, chosen }) {
  const shown = galleryShown(chart.views[chosen], hidden);
  if (!shown.columns.length || !shown.rows.length) return null;
  const frame = galleryFrame(width, shown);
  const svg = element("svg", {}, plot);
  const stops = [];
  let y = frame.wraps ? 0 : drawHeads(svg, shown.columns, frame, 0, shown.columns.length, 0);
  for (const row of shown.rows) {
    const parent = row.run === undefined ? svg : group(svg, row.run);
    const look = row.run === undefined || faded(row.run) ? {} : { style: `fill:${colour(row.run)}` };
    if (frame.name) label(parent, 0, y + 13, fitted(row.name, width), { class: "strong", ...look });
    else wrapWords(row.name, frame.left - 12, 3).forEach((line, i) => label(parent, 0, y + frame.side / 2 + 4 + 15 * i, line, { class: "row", ...look }));
    y += frame.name;
    for (let line = 0; line < frame.lines; line++) {
      const [from, to] = [line * frame.across, Math.min(shown.columns.length, (line + 1) * frame.across)];
      if (frame.wraps) y = drawHeads(svg, shown.columns, frame, from, to, y);
      for (let i = from; i < to; i++) stops.push(drawPicture(parent, row, shown.columns[i], row.cells[i], frame, frame.left + (i - from) * frame.cell, y));
      y += frame.side + frame.under + 10;
    }
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${y}`);
  const read = (index) => {
    const { row, column, found, rect } = stops[index];
    const who = row.run ?? column.run;
    const line = { run: who, name: column.name, value: found ? found.text : "no picture", range: found && found.about };
    return {
      x: rect.x + rect.width / 2, y: rect.y + rect.height, title: row.name || column.name, lines: [who === undefined ? { ...line, style: "fill:transparent" } : line],
      mark: (cursor) => element("rect", { class: "picked", ...rect, rx: 4 }, cursor),
    };
  };
  return { svg, width, height: y, count: stops.length, columns: shown.columns.length, near: nearestStop(stops), read };
}

function drawHeads(svg, columns, frame, from, to, top) {
  for (let i = from; i < to; i++) {
    const x = frame.left + (i - from) * frame.cell;
    const { run } = columns[i];
    const parent = run === undefined ? svg : group(svg, run);
    frame.heads[i].forEach((line, at) => label(parent, x, top + frame.head - 9 - 16 * (frame.heads[i].length - 1 - at), line, { class: "strong", ...(run !== undefined && !faded(run) && { style: `fill:${colour(run)}` }) }));
  }
  return top + frame.head;
}

function drawPicture(parent, row, column, found, frame, x, y) {
  const into = row.run === undefined && column.run !== undefined ? group(parent, column.run) : parent;
  const rect = { x, y, width: frame.side, height: frame.side };
  if (found) {
    element("image", { href: found.source, ...rect, "image-rendering": "pixelated", preserveAspectRatio: "xMidYMid meet" }, into);
    if (found.text) label(into, x, y + frame.side + 14, fitted(found.text, frame.cell - 4, 12));
  } else label(into, x + frame.side / 2, y + frame.side / 2 + 4, "—", { "text-anchor": "middle" });
  return { row, column, found, rect, x: x + frame.side / 2, y: y + frame.side / 2 };
}

kinds.gallery = paintGallery;
