// Colours of values from 0 to 1.

function channels(hex) { return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)); }

// Between the five stops of the style sheet, which differ by day and night.
function heatColour(plot, value) {
  const style = getComputedStyle(plot);
  const stops = [0, 1, 2, 3, 4].map((i) => channels(style.getPropertyValue(`--heat-${i}`).trim()));
  const place = Math.max(0, Math.min(1, value)) * 4;
  const from = Math.min(3, Math.floor(place));
  return stops[from].map((low, i) => Math.round(low + (place - from) * (stops[from + 1][i] - low)));
}
