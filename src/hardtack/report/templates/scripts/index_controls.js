// The controls: they change the filters, and everything is drawn anew.

const form = document.querySelector("form.filters");

function fill(name, entries, value) {
  const select = form.elements[name];
  select.replaceChildren(...entries.map(([key, text]) => new Option(text, key, false, key === value)));
}

function distinct(key, from) {
  return [...new Set(from.map((item) => item[key]).filter(Boolean))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
}

function fillForm(way) {
  const options = allowedWays().map(({ way: about, number }) => [String(number), `${about.name} (${about.count})`]);
  if (options.length > 1 || way === null) options.push([ALL, "all of these; numbers measured in different ways do not compare"]);
  fill("way", options, way === null ? ALL : String(way));
  for (const key of ["data", "threat", "attack"]) {
    const open = site.ways.filter((about) => ["data", "threat", "attack"].every((other) => other === key || !chosen[other] || about[other] === chosen[other]));
    fill(key, [["", "any"], ...distinct(key, open).map((text) => [text, text])], chosen[key]);
  }
  fill("model", [["", "any"], ...distinct("model", numbers).map((text) => [text, text])], chosen.model);
  const states = Object.keys(site.badges).filter((state) => numbers.some((row) => row.evidence === state));
  fill("evidence", [["", "any"], ...states.map((state) => [state, site.badges[state][0]])], chosen.evidence);
  for (const key of ["from", "to", "find"]) if (form.elements[key].value !== chosen[key]) form.elements[key].value = chosen[key];
  for (const key of ["from", "to"]) form.elements[key].setAttribute("aria-invalid", String(Number.isNaN(parameterCount(chosen[key]))));
  document.querySelector("#scatter select").value = chosen.against;
}

function note(rows, way) {
  const line = form.querySelector(".note");
  const runs = new Set(rows.map((row) => row.run)).size;
  const count = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
  line.textContent = `${count(rows.length, "number", "numbers")} of ${count(runs, "run", "runs")}`;
  const ways = new Set(rows.map((row) => row.way)).size;
  if (way === null && ways > 1) {
    line.append(". ");
    html("b", "", `They were measured in ${ways} ways and do not compare with each other; the chart shows the first.`, line);
  }
  if (["from", "to"].some((key) => Number.isNaN(parameterCount(chosen[key])))) {
    line.append(". ");
    html("b", "", "Parameters are numbers such as 300k, 5M or 1.2e6.", line);
  }
}

function draw() {
  const way = shownWay();
  const rows = passing();
  fillForm(way);
  note(rows, way);
  drawTable(rows, way, change);
  const drawn = way !== null ? way : rows.length ? Math.min(...rows.map((row) => row.way)) : -1;
  drawScatter(rows, drawn);
}

function change(words) {
  chosen = { ...chosen, ...words };
  if (!("sort" in words)) shownRows = PAGE;
  writeAddress();
  draw();
}

const plotTip = html("div", "tip");
plotTip.hidden = true;

function showTip(event) {
  const link = event.target.closest && event.target.closest("a[data-row]");
  plotTip.hidden = !link;
  for (const line of document.querySelectorAll("#table tr.chosen")) line.classList.remove("chosen");
  if (!link) return;
  const row = numbers[Number(link.dataset.row)];
  plotTip.replaceChildren();
  html("b", "", row.name, plotTip);
  html("div", "", [row.model, row.size && `${row.size} parameters`, row.checkpoint].filter(Boolean).join(" · "), plotTip);
  html("div", "", `${site.ways[row.way].title} ${row.text} ${row.interval && `(${row.interval})`}`, plotTip);
  if (row.cleanText) html("div", "", `Clean accuracy ${row.cleanText}`, plotTip);
  badgesOf(row, html("div", "", undefined, plotTip));
  const plot = link.closest(".plot");
  plot.append(plotTip);
  const [box, at] = [plot.getBoundingClientRect(), link.getBoundingClientRect()];
  const wide = plotTip.offsetWidth;
  plotTip.style.left = `${Math.max(0, Math.min(at.left - box.left + 14, box.width - wide))}px`;
  plotTip.style.top = `${at.bottom - box.top + 8}px`;
  const line = document.querySelector(`#table tr[data-row="${link.dataset.row}"]`);
  if (line) line.classList.add("chosen");
}

if (numbers.length) {
  form.hidden = false;
  readAddress();
  draw();
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    if (event.target.tagName === "INPUT") return;  // drawn as it was typed; drawing again would swallow the next click
    const words = { [event.target.name]: event.target.value };
    change(["data", "threat", "attack"].includes(event.target.name) && chosen.way !== ALL ? { ...words, way: "" } : words);
  });
  form.addEventListener("input", (event) => { if (event.target.tagName === "INPUT") change({ [event.target.name]: event.target.value }); });
  form.querySelector(".reset").addEventListener("click", () => change(nothingChosen));
  document.querySelector("#scatter select").addEventListener("change", (event) => change({ against: event.target.value }));
  document.querySelector("#table .more button").addEventListener("click", () => { shownRows += PAGE; draw(); });
  addEventListener("hashchange", () => { readAddress(); draw(); });
  const plot = document.querySelector("#scatter .plot");
  for (const kind of ["pointerover", "focusin"]) plot.addEventListener(kind, showTip);
  plot.addEventListener("pointerleave", showTip);
  plot.addEventListener("focusout", () => { plotTip.hidden = true; });
  let wide = plot.clientWidth;
  new ResizeObserver(() => { if (plot.clientWidth !== wide) { wide = plot.clientWidth; draw(); } }).observe(plot);
} else {
  document.getElementById("scatter").hidden = true;
  document.querySelector("#table table").hidden = true;
  document.querySelector("#table .empty").hidden = false;
  document.querySelector("#table .empty").textContent = "No run here has been evaluated yet: hardtack evaluate RUN suite=pgd";
}
