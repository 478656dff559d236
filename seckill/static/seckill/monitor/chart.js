// Small SVG charts on a shared time axis: lines, stacked areas, a band of levels. No library: what is
// needed is three shapes, and nothing here styles an element inline (the page's CSP forbids it).

const SVG = "http://www.w3.org/2000/svg";
const GAP_MS = 6000; // a longer silence is a hole in the line, not a slope

export function node(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The next round number above, so that the axis does not jump with every point.
export function niceMax(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((top) => top >= value);
}

// Runs of [x, y] without holes.
function runs(times, values, x, y) {
  const found = [];
  let run = [];
  let before = null;
  times.forEach((time, index) => {
    const value = values[index];
    if (value === null || value === undefined || (before !== null && time - before > GAP_MS)) {
      if (run.length) found.push(run);
      run = [];
    }
    if (value !== null && value !== undefined) run.push([x(time), y(value)]);
    before = time;
  });
  if (run.length) found.push(run);
  return found;
}

const path = (points) => "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");

function frame(svg, margin) {
  const { width: shownWidth, height } = svg.getBoundingClientRect();
  const width = Math.max(120, Math.round(shownWidth || svg.parentElement.clientWidth));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  return { width, height, left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
}

function timeAxis(svg, box, until, windowMs) {
  const x = (time) => box.right - ((until - time) / windowMs) * (box.right - box.left);
  const minutes = Math.round(windowMs / 60000);
  const step = box.right - box.left < 380 ? 2 : 1;
  for (let minute = 0; minute <= minutes; minute += step) {
    const at = x(until - minute * 60000);
    svg.append(node("line", { class: "grid", x1: at, x2: at, y1: box.top, y2: box.bottom }));
    const anchor = minute === 0 ? "end" : minute === minutes ? "start" : "middle";
    const label = node("text", { class: "tick", x: at, y: box.bottom + 14, "text-anchor": anchor });
    label.textContent = minute === 0 ? "now" : `−${minute} min`;
    svg.append(label);
  }
  return x;
}

function valueAxis(svg, box, max, format) {
  const y = (value) => box.bottom - (Math.min(value, max) / max) * (box.bottom - box.top);
  for (const share of [0, 0.5, 1]) {
    const at = y(max * share);
    svg.append(node("line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at }));
    const label = node("text", { class: "tick", x: box.left - 6, y: at + 4, "text-anchor": "end" });
    label.textContent = format(max * share);
    svg.append(label);
  }
  return y;
}

// Lines: series = [{values, tone}], limits = [{value, tone}] are drawn across when they fit.
export function lines(svg, { times, series, limits = [], until, windowMs, format, atLeast = 0 }) {
  const box = frame(svg, { left: 46, right: 8, top: 8, bottom: 20 });
  const peak = Math.max(atLeast, ...series.flatMap((one) => one.values.map((value) => value ?? 0)));
  const max = niceMax(peak);
  const x = timeAxis(svg, box, until, windowMs);
  const y = valueAxis(svg, box, max, format);
  for (const limit of limits.filter((one) => one.value < max)) {
    const at = y(limit.value);
    svg.append(node("line", { class: `limit ${limit.tone}`, x1: box.left, x2: box.right, y1: at, y2: at }));
  }
  for (const one of series) {
    for (const run of runs(times, one.values, x, y)) {
      if (run.length === 1) svg.append(node("circle", { class: `dot ${one.tone}`, cx: run[0][0], cy: run[0][1], r: 2 }));
      else svg.append(node("path", { class: `line ${one.tone}`, d: path(run) }));
    }
  }
  return { x, box };
}

// Stacked areas: series from the bottom up.
export function stack(svg, { times, series, until, windowMs, format, max }) {
  const box = frame(svg, { left: 46, right: 8, top: 8, bottom: 20 });
  const x = timeAxis(svg, box, until, windowMs);
  const y = valueAxis(svg, box, niceMax(max), format);
  let floor = times.map(() => 0);
  for (const one of series) {
    const roof = floor.map((value, index) => value + (one.values[index] ?? 0));
    const upper = runs(times, roof, x, y);
    const lower = runs(times, floor, x, y);
    upper.forEach((run, index) => {
      svg.append(node("path", { class: `area ${one.tone}`, d: `${path([...run, ...lower[index].slice().reverse()])}Z` }));
    });
    floor = roof;
  }
  return { x, box };
}

// A line without axes, for the foot of a card.
export function spark(svg, { times, values, tone, until, windowMs }) {
  const box = frame(svg, { left: 0, right: 0, top: 3, bottom: 1 });
  const max = Math.max(1, ...values.map((value) => value ?? 0));
  const x = (time) => box.right - ((until - time) / windowMs) * (box.right - box.left);
  const y = (value) => box.bottom - (value / max) * (box.bottom - box.top);
  for (const run of runs(times, values, x, y)) {
    const first = run[0][0];
    const last = run[run.length - 1][0];
    svg.append(node("path", { class: `fill ${tone}`, d: `${path(run)}L${last.toFixed(1)} ${box.bottom}L${first.toFixed(1)} ${box.bottom}Z` }));
    svg.append(node("path", { class: `line ${tone}`, d: path(run) }));
  }
}

// A strip whose colour is a state: labels = one word for each time.
export function band(svg, { times, labels, toneOf, until, windowMs, left = 46 }) {
  const box = frame(svg, { left, right: 8, top: 0, bottom: 0 });
  const x = (time) => box.right - ((until - time) / windowMs) * (box.right - box.left);
  let start = 0;
  for (let index = 1; index <= times.length; index += 1) {
    const ends = index === times.length || labels[index] !== labels[start] || times[index] - times[index - 1] > GAP_MS;
    if (!ends) continue;
    if (labels[start]) {
      const from = Math.max(box.left, x(times[start]));
      const to = Math.max(from + 1, x(index < times.length ? Math.min(times[index], times[index - 1] + 1000) : times[index - 1]));
      svg.append(node("rect", { class: `band ${toneOf(labels[start])}`, x: from, y: 0, width: to - from, height: box.height }));
    }
    start = index;
  }
}
