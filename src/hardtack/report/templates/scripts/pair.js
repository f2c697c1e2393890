// Two runs of the reader's choice: what became of them, the settings that differ, and their curves over each other.

function tellRows(table, rows, places) {
  const body = table.querySelector("tbody");
  body.replaceChildren();
  for (const row of rows) {
    const line = html("tr", "", undefined, body);
    html("th", "", row.key, line).scope = "row";
    for (const place of places) html("td", "", row.values[place], line);
  }
  for (let told = table.closest(".told"); told; told = told.parentElement.closest(".told")) told.hidden = !rows.length;
}

function tellPair(section, selects) {
  const places = selects.map((select) => Number(select.value));
  const chosen = places.map((place) => pair.runs[place]);
  for (const head of section.querySelectorAll("thead tr")) {
    const names = [...head.children].slice(1);
    names.forEach((name, i) => {
      name.replaceChildren();
      drawDot(chosen[i], name);
      name.append(chosen[i].name);
    });
  }
  const [facts, differing, single] = section.querySelectorAll("table");
  const valuesOf = (row) => places.map((place) => row.values[place]);
  const differ = pair.settings.filter((row) => new Set(valuesOf(row)).size > 1);
  const both = differ.filter((row) => !valuesOf(row).includes("—"));
  const one = differ.filter((row) => valuesOf(row).includes("—"));
  tellRows(facts, pair.facts.filter((row) => valuesOf(row).some((value) => value !== "—")), places);
  tellRows(differing, both, places);
  tellRows(single, one, places);
  section.querySelector(".alike").hidden = both.length > 0;
  section.querySelector("summary").textContent = `Settings that only one of the two runs has: ${one.length}`;
  for (const plot of section.querySelectorAll(".plot")) {
    const runs = charts[plot.dataset.chart].series.map((one) => one.run);
    plot.hiddenRuns = new Set(runs.filter((run) => !chosen.some((one) => one.run === run)));
    draw(plot);
  }
}

const pairSection = document.getElementById("pair");
if (pairSection) {
  const selects = [...pairSection.querySelectorAll("select[data-pair]")];
  for (const select of selects) select.addEventListener("change", () => tellPair(pairSection, selects));
  tellPair(pairSection, selects);
}
