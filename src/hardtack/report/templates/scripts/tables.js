// Tables: sorting by their heads, and a hint where one is wider than the screen.

function cellValue(row, column) {
  const cell = row.cells[column];
  if (cell.dataset.value !== undefined) return cell.dataset.value;
  const text = cell.textContent.trim();
  return column === 0 ? text : text === "—" ? "" : text.replace(/[,%]/g, "");
}

function sortTable(table, column, head) {
  const descending = head.getAttribute("aria-sort") !== "descending" && (column > 0 || head.getAttribute("aria-sort") === "ascending");
  for (const other of table.tHead.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [cellValue(a, column), cellValue(b, column)];
    if (x === "" || y === "") return (x === "") - (y === "");  // what was not measured stays last
    const order = column === 0 ? x.localeCompare(y, undefined, { numeric: true }) : Number(x) - Number(y);
    return descending ? -order : order;
  });
  body.append(...rows);
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = head.querySelector("button");
    if (button) button.addEventListener("click", () => sortTable(table, column, head));
  });
}

for (const area of document.querySelectorAll(".scroll")) {
  const hint = html("p", "hint", "more columns: scroll sideways →");
  hint.setAttribute("aria-hidden", "true");  // a screen reader reads the whole table anyway
  area.before(hint);
  const look = () => {
    const cut = area.scrollWidth - area.clientWidth > 1;
    const left = area.scrollLeft + area.clientWidth < area.scrollWidth - 1;
    hint.hidden = !cut;
    hint.classList.toggle("seen", !left);
    area.classList.toggle("cut", left);
  };
  area.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(area);
}
