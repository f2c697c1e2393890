// What every part of the page uses. Text reaches the page through textContent only, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const { charts, pair, settings } = JSON.parse(document.getElementById("data").textContent);
const { coloured, solid } = settings;
const kinds = {};  // who draws charts of which kind; every kind's script enters itself

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (parent) parent.append(made);
  return made;
}

function html(name, className, text, parent) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function label(parent, x, y, text, attributes) {
  const made = element("text", { x, y, ...attributes }, parent);
  made.textContent = text;
  return made;
}

// Widths of text, also of text that is not on the page yet.
const ruler = document.createElement("canvas").getContext("2d");
function textWidth(text, size) {
  ruler.font = `${size || 12}px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

// The distinctive part of a name is more often its end.
function fitted(text, width, size) {
  if (textWidth(text, size) <= width) return text;
  let cut = 1;
  while (cut < text.length - 1 && textWidth("…" + text.slice(cut), size) > width) cut++;
  return "…" + text.slice(cut);
}

function faded(run) { return run >= coloured; }
function colour(run) { return run === null ? "var(--ink-3)" : `var(--run-${faded(run) ? "faded" : run})`; }  // null: no run's
function squared(run) { return run >= solid && !faded(run); }

function imageCount(count) { return `${count.toLocaleString("en")} ${count === 1 ? "image" : "images"}`; }

function percent(value) { return (100 * value).toFixed(1) + "%"; }
function signed(value) { return (value < 0 ? "−" : "+") + Math.abs(100 * value).toFixed(1); }
function range(low, high) { return low === null || low === undefined ? "" : `${percent(low).replace("%", "")}–${percent(high)}`; }
