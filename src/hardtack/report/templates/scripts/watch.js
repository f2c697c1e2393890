// The page of `hardtack watch`: it asks for the state of the jobs every two seconds, and draws what changed.

const EVERY_MS = 2000;
const COLOURS = { loss: "var(--run-0)", accuracy: "var(--run-0)", robust: "var(--run-1)", validation: "var(--run-0)", validation_robust: "var(--run-1)" };
const NAMES = { accuracy: "training, clean", robust: "training, attacked", validation: "validation, clean", validation_robust: "validation, attacked" };
const WORDS = { running: ["running", "green"], stopped: ["not running", "grey"], finished: ["finished", "grey"] };
const cards = new Map();
let before = "";

function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

function fact(parent, text, bold) {
  const made = html("span", "", undefined, parent);
  if (bold) html("b", "", bold, made);
  made.append(bold ? ` ${text}` : text);
}

function makeCard(job) {
  const card = html("article", "card job");
  const head = html("div", "job-head", undefined, card);
  html("h3", "", job.name, head);
  const parts = { card, head, badge: html("span", "badge", "", head), about: html("p", "about", "", card) };
  const meter = html("div", "meter", undefined, card);
  meter.setAttribute("role", "progressbar");
  meter.setAttribute("aria-label", `Progress of ${job.name}`);
  parts.meter = meter;
  parts.bar = html("div", "", undefined, meter);
  parts.facts = html("p", "facts", undefined, card);
  parts.numbers = html("div", "numbers", undefined, card);
  parts.warned = html("p", "warned", undefined, card);
  const pictures = html("div", "pictures", undefined, card);
  parts.pictures = pictures;
  if (job.kind === "training") {
    parts.loss = html("div", "plot", undefined, html("div", "", undefined, pictures));
    const box = html("div", "", undefined, pictures);
    parts.accuracy = html("div", "plot", undefined, box);
    parts.key = html("p", "key", undefined, box);
  }
  return parts;
}

function fillFacts(parts, job, now) {
  parts.facts.replaceChildren();
  if (job.kind === "training") {
    fact(parts.facts, job.epochs ? `of ${written(job.epochs)} epochs` : "epochs", String(Number(job.epoch.toFixed(2))));
    if (job.state === "running" && job.rate) fact(parts.facts, "images per second", Math.round(job.rate).toLocaleString("en"));
    if (job.lr !== null) fact(parts.facts, `learning rate ${written(job.lr)}`);
  }
  for (const text of job.facts || []) fact(parts.facts, text);
  if (job.left_s !== null) fact(parts.facts, "left", span(job.left_s));
  if (job.kind !== "evaluation" && job.changed) fact(parts.facts, `last line ${span(Math.max(0, now - job.changed))} ago`);
  else if (job.state === "running" && job.changed) fact(parts.facts, `began ${span(Math.max(0, now - job.changed))} ago`);
}

function drawCurves(parts, job) {
  const curves = job.curves || {};
  const of = (name) => ({ name: NAMES[name] || name, points: curves[name] || [], colour: COLOURS[name], dashed: !name.startsWith("validation") && name !== "loss" });
  const accuracies = ["accuracy", "robust", "validation", "validation_robust"].map(of);
  const drawn = JSON.stringify([curves, parts.loss.clientWidth]);
  if (drawn === parts.drawn) return;
  parts.drawn = drawn;
  watchChart(parts.loss, "training loss", [of("loss")], { percent: false, epochs: job.epochs });
  watchChart(parts.accuracy, "accuracy", accuracies, { percent: true, epochs: job.epochs });
  parts.key.replaceChildren();
  for (const curve of accuracies.filter((one) => one.points.length)) {
    const name = html("span", "name", undefined, parts.key);
    const swatch = html("span", `swatch lines ${curve.dashed ? "dashed" : ""}`, undefined, name);
    swatch.style.setProperty("--run", curve.colour);
    name.append(`${curve.name} ${percent(curve.points[curve.points.length - 1][1])}`);
  }
}

function fillCard(parts, job, now) {
  const [word, colour] = WORDS[job.state];
  parts.card.className = `card job ${job.state}`;
  parts.badge.className = `badge ${colour}`;
  parts.badge.textContent = job.kind === "training" ? word : `${job.kind} ${word}`;
  parts.about.textContent = job.about;
  parts.meter.hidden = job.share === null;
  parts.bar.style.width = `${100 * (job.share || 0)}%`;
  parts.meter.setAttribute("aria-valuenow", String(Math.round(100 * (job.share || 0))));
  fillFacts(parts, job, now);
  parts.numbers.replaceChildren();
  for (const text of job.results || []) html("div", "", text, parts.numbers);
  parts.warned.textContent = (job.warnings || []).map((text) => `▲ ${text}`).join("   ");
  parts.warned.hidden = !parts.warned.textContent;
  if (job.kind === "training") drawCurves(parts, job);
}

function fillFinished(jobs, now) {
  const section = document.getElementById("finished");
  section.hidden = !jobs.length;
  const body = document.createDocumentFragment();
  for (const job of jobs) {
    const line = html("tr", "", undefined, body);
    const head = html("th", "", job.name, line);
    head.scope = "row";
    if (job.about) html("small", "", job.about, head);
    html("td", "", job.changed ? `${span(Math.max(0, now - job.changed))} ago` : "—", line);
    const cell = html("td", "", undefined, line);
    const last = Object.entries(job.last || {}).filter(([name]) => name.startsWith("validation")).map(([name, value]) => `${NAMES[name]} ${percent(value)}`);
    for (const text of [...(job.results || []), ...last, ...(job.facts || [])]) html("small", "", text, cell);
  }
  section.querySelector("tbody").replaceChildren(body);
}

function summary(jobs) {
  const count = (state) => jobs.filter((job) => job.state === state).length;
  const parts = [`${count("running")} running`];
  if (count("stopped")) parts.push(`${count("stopped")} not running and not finished`);
  if (count("finished")) parts.push(`${count("finished")} finished`);
  return jobs.length ? parts.join(" · ") : "No run yet: jobs appear here when they begin";
}

function show(state) {
  document.getElementById("summary").textContent = summary(state.jobs);
  const open = state.jobs.filter((job) => job.state !== "finished");
  const place = document.getElementById("jobs");
  const keys = new Set(open.map((job) => job.key));
  for (const [key, parts] of cards) if (!keys.has(key)) { parts.card.remove(); cards.delete(key); }
  for (const job of open) {
    if (!cards.has(job.key)) cards.set(job.key, makeCard(job));
    const parts = cards.get(job.key);
    if (place.children[open.indexOf(job)] !== parts.card) place.insertBefore(parts.card, place.children[open.indexOf(job)] || null);
    fillCard(parts, job, state.now);
  }
  fillFinished(state.jobs.filter((job) => job.state === "finished"), state.now);
  const problems = document.getElementById("problems");
  problems.hidden = !state.problems.length;
  if (before !== state.problems.join("\n")) {
    before = state.problems.join("\n");
    const list = problems.querySelector("ul");
    list.replaceChildren();
    for (const text of state.problems) html("li", "", text, list);
  }
}

async function ask() {
  if (!document.hidden) {
    let state = null;
    try {
      const answer = await fetch("state", { cache: "no-store" });
      state = answer.ok ? await answer.json() : null;
    } catch { state = null; }
    document.getElementById("lost").hidden = state !== null;
    if (state) show(state);
  }
  setTimeout(ask, EVERY_MS);
}

ask();
document.addEventListener("visibilitychange", () => { if (!document.hidden) document.getElementById("lost").hidden = true; });
