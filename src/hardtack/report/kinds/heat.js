// A heat map: colour and number in every cell, means at the right and below.

// Black or white, whichever reads better: at least 4.5 to 1 on any colour.
function readableOn(rgb) {
  const [r, g, b] = rgb.map((channel) => (channel / 255 <= 0.03928 ? channel / 255 / 12.92 : ((channel / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

function heatLegend(svg, plot, x, y, width, [low, high]) {
  for (let i = 0; i < 40; i++) {
    element("rect", { x: x + (i * width) / 40, y, width: width / 40 + 0.5, height: 8, fill: `rgb(${heatColour(plot, i / 39)})` }, svg);
  }
  for (const [share, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
    label(svg, x + share * width, y + 22, `${Number((100 * (low + share * (high - low))).toFixed(1))}%`, { "text-anchor": anchor });
  }
}

function paintHeat(chart, { plot, width, chosen }) {
  const view = chart.views[chosen];
  const scale = chart.scale || [0, 1];
  const [heads, rows] = [view.columns || chart.columns, view.rows || chart.rows];
  const whole = [...(view.row_means || []), ...(view.column_means || [])].some((mean) => mean !== null);
  const names = [...rows, ...(whole ? ["mean"] : [])];
  const left = Math.min(0.36 * width, Math.max(...[...names, chart.y || ""].map((name) => textWidth(name))) + 12);
  const [rowHeight, gap, top] = [26, 2, 40];
  const columns = heads.length;
  const cell = (width - left - 8) / (columns + (whole ? 1 : 0));
  const height = top + names.length * rowHeight + (whole ? 6 : 0) + 40;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}` }, plot);
  const xOf = (column) => left + column * cell + (column === columns ? 8 : 0);
  const yOf = (row) => top + row * rowHeight + (row === rows.length ? 6 : 0);
  label(svg, left + (columns * cell) / 2, 13, chart.x, { "text-anchor": "middle" });
  if (chart.y) label(svg, left - 10, 31, chart.y, { "text-anchor": "end" });
  const [roomy, every] = [cell >= 28, Math.ceil(18 / cell)];  // where cells are narrow, colours speak, and the tip says the number
  heads.forEach((name, i) => i % every === 0 && label(svg, xOf(i) + cell / 2, 31, roomy ? fitted(name, cell - 4) : name, { "text-anchor": "middle", class: "strong" }));
  if (whole) label(svg, xOf(columns) + cell / 2, 31, "mean", { "text-anchor": "middle", class: "strong" });
  const stops = [];
  const place = (row, column, value, interval) => {
    const [x, y] = [xOf(column), yOf(row)];
    stops.push({ x: x + cell / 2, y: y + rowHeight / 2, row, column, value, interval });
    if (value === null || value === undefined) {
      if (roomy) label(svg, x + cell / 2, y + 17, "—", { "text-anchor": "middle" });
      return;
    }
    const rgb = heatColour(plot, (value - scale[0]) / (scale[1] - scale[0]));
    element("rect", { class: "cell", x: x + gap / 2, y: y + gap / 2, width: cell - gap, height: rowHeight - gap, rx: 4, fill: `rgb(${rgb})` }, svg);
    const bold = row === rows.length || column === columns ? "600" : "400";
    if (roomy) label(svg, x + cell / 2, y + 17, (100 * value).toFixed(1), { "text-anchor": "middle", class: "on-cell", style: `fill:${readableOn(rgb)};font-weight:${bold}` });
  };
  names.forEach((name, row) => {
    label(svg, left - 10, yOf(row) + 17, fitted(name, left - 12), { "text-anchor": "end", class: row === rows.length ? "strong" : "row" });
    const mean = row === rows.length;
    for (let column = 0; column < columns; column++) {
      const found = mean ? [view.column_means[column]] : view.cells[row][column] || [null];
      place(row, column, found[0], found);
    }
    if (whole) place(row, columns, mean ? view.mean : view.row_means[row], []);
  });
  const legendWidth = Math.min(220, width - left - 8);
  heatLegend(svg, plot, left, height - 26, legendWidth, scale);
  const read = (index) => {
    const stop = stops[index];
    const where = stop.column === columns ? "mean" : `${chart.x} ${heads[stop.column]}`;
    const [, low, high] = stop.interval;
    const line = { run: view.run, name: view.name, value: stop.value === null || stop.value === undefined ? "—" : percent(stop.value), range: range(low, high) };
    return {
      x: stop.x,
      title: `${names[stop.row]}, ${where}`,
      lines: [view.run === undefined ? { ...line, style: "fill:transparent" } : line],
      mark: (cursor) => element("rect", { class: "picked", x: stop.x - cell / 2, y: stop.y - rowHeight / 2, width: cell, height: rowHeight, rx: 5 }, cursor),
    };
  };
  return { svg, width, height, count: stops.length, columns: columns + (whole ? 1 : 0), near: nearestStop(stops), read };
}

kinds.heat = paintHeat;
