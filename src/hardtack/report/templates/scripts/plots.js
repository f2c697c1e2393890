// Every chart on the page: drawn to its width, read by pointer and arrow keys, its runs hidden, its choice switched.

function paint(plot) {
  const chart = charts[plot.dataset.chart];
  const chosen = plot.chosen ?? (chart.choose ? chart.choose.chosen : 0);
  return kinds[chart.kind](chart, { plot, width: Math.max(240, plot.clientWidth), hidden: plot.hiddenRuns || new Set(), chosen });
}

function draw(plot) {
  plot.replaceChildren();
  plot.state = paint(plot);
  if (!plot.state) {
    html("p", "none", "Every run is hidden.", plot);
    return;
  }
  plot.state.svg.setAttribute("aria-hidden", "true");
  plot.state.cursor = element("g", { class: "cursor-group" }, plot.state.svg);
  plot.state.tip = html("div", "tip", undefined, plot);
  plot.state.tip.setAttribute("role", "status");
  plot.state.tip.hidden = true;
  plot.state.at = -1;
}

function drawDot(line, parent) {
  const dot = html("span", line.style || squared(line.run) ? "dot square" : "dot", undefined, parent);
  dot.style.setProperty("--run", line.style ? line.style.replace("fill:", "") : colour(line.run));
}

function showAt(plot, index, height) {
  const { cursor, tip, width, height: whole } = plot.state;
  plot.state.at = index;
  const found = plot.state.read(index, height);
  cursor.replaceChildren();
  found.mark(cursor);
  tip.replaceChildren();
  html("b", "", found.title, tip);
  for (const line of found.lines) {
    const row = html("div", "", undefined, tip);
    drawDot(line, row);
    html("span", "who", fitted(line.name, plot.clientWidth < 500 ? 105 : 195, 13), row);
    html("b", "", line.value, row);
    if (line.range) html("small", "", line.range, row);
  }
  tip.hidden = false;
  const left = (found.x / width) * plot.clientWidth;
  const free = plot.clientWidth - tip.offsetWidth;
  const beside = left < plot.clientWidth / 2 ? left + 16 : left - tip.offsetWidth - 16;
  tip.style.left = `${Math.max(0, Math.min(free, beside))}px`;
  if (found.y === undefined) return;
  const scale = plot.clientWidth / width;  // below the row that is read, or above it where there is no room
  const below = found.y * scale + 6;
  const fits = below + tip.offsetHeight < whole * scale + 40;
  tip.style.top = `${fits ? below : Math.max(-8, found.y * scale - tip.offsetHeight - 48)}px`;
}

function hide(plot) {
  if (!plot.state) return;
  plot.state.at = -1;
  plot.state.tip.hidden = true;
  plot.state.cursor.replaceChildren();
}

function pointAt(plot, event) {
  if (!plot.state) return;
  const area = plot.getBoundingClientRect();
  const scale = plot.state.width / area.width;
  const [x, y] = [(event.clientX - area.left) * scale, (event.clientY - area.top) * scale];
  showAt(plot, plot.state.near(x, y), y);
}

function step(plot, event) {
  if (!plot.state) return;
  const { at, count, columns } = plot.state;
  const last = count - 1;
  const back = (by) => (at < 0 ? last : at - by);
  const jumps = { ArrowRight: at + 1, ArrowLeft: back(1), ArrowDown: at < 0 ? 0 : at + columns, ArrowUp: back(columns), Home: 0, End: last };
  if (event.key === "Escape") hide(plot);
  if (!(event.key in jumps)) return;
  event.preventDefault();
  showAt(plot, Math.max(0, Math.min(last, jumps[event.key])));
}

for (const plot of document.querySelectorAll(".plot")) {
  plot.addEventListener("pointermove", (event) => pointAt(plot, event));
  plot.addEventListener("pointerdown", (event) => pointAt(plot, event));
  plot.addEventListener("pointerleave", () => hide(plot));
  plot.addEventListener("keydown", (event) => step(plot, event));
  plot.addEventListener("blur", () => hide(plot));
  let width = 0;
  new ResizeObserver(() => {
    if (plot.clientWidth === width) return;
    width = plot.clientWidth;
    draw(plot);
  }).observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(plot));
}

for (const select of document.querySelectorAll("select[data-for]")) {
  const figure = select.closest("figure");
  const plot = figure.querySelector(".plot");
  const caption = figure.querySelector("figcaption");
  select.addEventListener("change", () => {
    plot.chosen = Number(select.value);
    const views = charts[plot.dataset.chart].views;
    if (views && views[plot.chosen].caption && caption) caption.textContent = views[plot.chosen].caption;
    draw(plot);
  });
}

for (const legend of document.querySelectorAll(".legend")) {
  const plots = legend.parentElement.querySelectorAll(".plot");
  const focus = (run) => {
    for (const plot of plots) {
      plot.classList.toggle("focused", run !== undefined);
      for (const one of plot.querySelectorAll(".one")) one.classList.toggle("on", one.dataset.run === run);
    }
  };
  for (const chip of legend.querySelectorAll("button")) {
    chip.addEventListener("pointerenter", () => { if (chip.getAttribute("aria-pressed") === "true") focus(chip.dataset.run); });
    chip.addEventListener("pointerleave", () => focus(undefined));
  }
  legend.addEventListener("click", (event) => {
    focus(undefined);
    const chip = event.target.closest("button");
    if (!chip) return;
    const shown = chip.getAttribute("aria-pressed") === "true";
    chip.setAttribute("aria-pressed", String(!shown));
    for (const plot of plots) {
      plot.hiddenRuns = plot.hiddenRuns || new Set();
      if (shown) plot.hiddenRuns.add(Number(chip.dataset.run));
      else plot.hiddenRuns.delete(Number(chip.dataset.run));
      draw(plot);
    }
  });
}
