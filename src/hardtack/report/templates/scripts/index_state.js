// The numbers of the site, the filters, and what passes them. The filters are kept in the address (#way=…&model=…).

const { site } = JSON.parse(document.getElementById("data").textContent);
const fields = ["run", "way", "checkpoint", "model", "parameters", "size", "value", "text", "interval", "clean", "cleanText", "evidence", "about", "flags"];
const numbers = site.rows.map((row) => Object.fromEntries(fields.map((field, place) => [field, row[place]])));
const ALL = "all";  // ways
const nothingChosen = { way: "", data: "", threat: "", attack: "", model: "", from: "", to: "", evidence: "", find: "", sort: "", against: "clean" };
let chosen = { ...nothingChosen };

for (const row of numbers) {
  row.name = site.runs[row.run].name;
  row.page = site.runs[row.run].page;
  row.bare = row.evidence === "missing";
  row.red = row.evidence === "wrong" || row.flags.some(([level]) => level === "red");
}

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  chosen = { ...nothingChosen };
  for (const key of Object.keys(nothingChosen)) if (words.has(key)) chosen[key] = words.get(key);
}

function writeAddress() {
  const words = Object.entries(chosen).filter(([key, value]) => value !== nothingChosen[key]);
  const text = new URLSearchParams(words).toString();
  history.replaceState(null, "", text ? `#${text}` : location.pathname.split("/").pop() || "#");
}

// `5M`, `300k`, `1.2e6` as a number; null for an empty text, NaN for one that is no number.
function parameterCount(text) {
  const match = /^\s*([0-9.]+(?:e[0-9]+)?)\s*([kmb]?)\s*$/i.exec(text);
  if (!text.trim()) return null;
  return match ? Number(match[1]) * { "": 1, k: 1e3, m: 1e6, b: 1e9 }[match[2].toLowerCase()] : NaN;
}

// Ways that the choice of data, threat and attack allows, the most telling first.
function allowedWays() {
  return site.ways.map((way, number) => ({ way, number })).filter(({ way }) => ["data", "threat", "attack"].every((key) => !chosen[key] || way[key] === chosen[key]));
}

// The way whose numbers are shown: the one that was chosen, else the most telling; null for all of them.
function shownWay() {
  if (chosen.way === ALL) return null;
  const allowed = allowedWays();
  const own = allowed.find(({ number }) => String(number) === chosen.way);
  return (own || allowed[0] || { number: -1 }).number;
}

function passing() {
  const way = shownWay();
  const allowed = new Set(allowedWays().map(({ number }) => number));
  const [from, to] = [parameterCount(chosen.from), parameterCount(chosen.to)];
  const words = chosen.find.toLowerCase().split(/\s+/).filter(Boolean);
  return numbers.filter((row) => {
    if (way === null ? !allowed.has(row.way) : row.way !== way) return false;
    if (chosen.model && row.model !== chosen.model) return false;
    if (chosen.evidence && row.evidence !== chosen.evidence) return false;
    if (from !== null && !(row.parameters !== null && row.parameters >= from)) return false;
    if (to !== null && !(row.parameters !== null && row.parameters <= to)) return false;
    const text = `${row.name} ${row.checkpoint} ${row.model}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

// Of comparable numbers those that no other beats in both: the larger x and the better y. Numbers that are red or have no
// evidence count for nothing.
function paretoFront(rows, x, lower) {
  const sign = lower ? -1 : 1;
  const sorted = rows.filter((row) => !row.red && !row.bare && row[x] !== null).sort((a, b) => (x === "parameters" ? a[x] - b[x] : b[x] - a[x]) || sign * (b.value - a.value));
  let best = null;
  return sorted.filter((row) => {
    if (best && sign * row.value <= sign * best.value && (row[x] !== best[x] || row.value !== best.value)) return false;
    best = row;
    return true;
  });
}
