// The table of runs: columns that may be sorted, as many rows as one looks at.

const PAGE = 200;  // rows that are written at once
let shownRows = PAGE;

function tableColumns(way) {
  const single = way === null ? null : site.ways[way];
  const value = single ? single.title : "Value";
  return [
    { key: "name", head: "Run", text: true },
    { key: "model", head: "Architecture", text: true, wide: true },
    { key: "parameters", head: "Parameters", wide: true },
    ...(single ? [] : [{ key: "way", head: "Measured as", wide: true }]),
    ...(single && single.clean ? [] : [{ key: "clean", head: "Clean accuracy" }]),
    { key: "value", head: value },
    { key: "evidence", head: "Evidence", text: true, wide: true },
  ];
}

function sorting(way) {
  const [key, direction] = chosen.sort.split(" ");
  const lower = way !== null && way >= 0 && site.ways[way].lower;
  if (tableColumns(way).some((column) => column.key === key)) return { key, up: direction === "up" };
  return way === null ? { key: "way", up: true } : { key: "value", up: lower };
}

function sorted(rows, way) {
  const { key, up } = sorting(way);
  return [...rows].sort((a, b) => {
    const [x, y] = [a[key], b[key]];
    if (x === null || y === null || x === "" || y === "") return (x === null || x === "") - (y === null || y === "");
    const order = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
    return (up ? order : -order) || b.value - a.value || a.name.localeCompare(b.name);
  });
}

function badgeOf(text, colour, about, parent) {
  const made = html("span", `badge ${colour}`, text, parent);
  made.title = about;
  return made;
}

function badgesOf(row, parent) {
  const [text, colour] = site.badges[row.evidence];
  badgeOf(text, colour, row.about, parent);
  for (const [level, code, message] of row.flags) {
    parent.append(" ");
    badgeOf(`▲ ${code}`, level, message, parent);
  }
}

function cellOf(row, column, columns, line) {
  if (column.key === "name") {
    const head = html("th", "", undefined, line);
    head.scope = "row";
    const link = html("a", "", row.name, head);
    link.href = row.page;
    if (row.checkpoint) html("small", "", row.checkpoint, head);
    const under = html("div", "under", undefined, head);
    html("small", "", [row.model, row.size].filter(Boolean).join(" · "), under);
    if (columns.some((other) => other.key === "way")) html("small", "", site.ways[row.way].name, under);
    badgesOf(row, under);
    return;
  }
  const cell = html("td", column.text || column.key === "way" ? "" : "num", undefined, line);
  if (column.key === "evidence") badgesOf(row, cell);
  else if (column.key === "way") html("small", "", site.ways[row.way].name, cell);
  else if (column.key === "value") {
    html("span", row.red ? "value doubt" : "value", row.text, cell);
    html("span", "range", row.interval, cell);
  } else cell.append({ model: row.model, parameters: row.size, clean: row.cleanText }[column.key] || "—");
  if (column.wide) cell.classList.add("wide-only");
}

function drawTable(rows, way, changed) {
  const table = document.querySelector("#table table");
  const columns = tableColumns(way);
  const { key, up } = sorting(way);
  const heads = html("tr");
  for (const column of columns) {
    const head = html("th", [column.text || column.key === "way" ? "" : "num", column.wide ? "wide-only" : ""].join(" ").trim(), undefined, heads);
    head.scope = "col";
    head.setAttribute("aria-sort", column.key !== key ? "none" : up ? "ascending" : "descending");
    const button = html("button", "", column.head, head);
    button.type = "button";
    button.dataset.key = column.key;
    button.addEventListener("click", () => {
      const text = column.text || column.key === "way";
      changed({ sort: `${column.key} ${column.key === key ? (up ? "down" : "up") : text ? "up" : "down"}` });
      document.querySelector(`#table [data-key=${column.key}]`).focus();
    });
  }
  table.tHead.replaceChildren(heads);
  const body = document.createDocumentFragment();
  for (const row of sorted(rows, way).slice(0, shownRows)) {
    const line = html("tr", "", undefined, body);
    line.dataset.row = numbers.indexOf(row);
    for (const column of columns) cellOf(row, column, columns, line);
  }
  table.tBodies[0].replaceChildren(body);
  table.hidden = !rows.length;
  document.querySelector("#table .empty").hidden = rows.length > 0;
  const more = document.querySelector("#table .more");
  more.hidden = rows.length <= shownRows;
  more.firstElementChild.textContent = `Show ${Math.min(PAGE, rows.length - shownRows)} more of ${rows.length.toLocaleString("en")}`;
}
