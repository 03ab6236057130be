// Curves, pairs and intervals, drawn by hand as SVG at the width they have, with a cursor for mouse and arrow keys.

const EDGE = { left: 46, right: 12, top: 10, bottom: 26 };

// Steps from which a noisy curve is drawn twice: faint as it is, strong as its mean over neighbours.
const SMOOTHED_FROM = 12;

// About `count` round numbers between two values, two at least.
function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) found.push(at * step);
  return found.length < 2 && count < 12 ? ticks(low, high, count + 1) : found;
}

function span(values) {
  const numbers = values.filter(known);
  if (!numbers.length) return [0, 1];
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  if (low === high) return low === 0 ? [0, 1] : low > 0 ? [0, high * 1.25] : [low * 1.25, 0];
  const room = (high - low) * 0.08;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

// Mean over a window of neighbours: what a noisy series does on the whole.
function smooth(values, width) {
  const half = Math.floor(width / 2);
  return values.map((value, place) => {
    const near = values.slice(Math.max(0, place - half), place + half + 1).filter(known);
    return known(value) && near.length ? near.reduce((sum, one) => sum + one, 0) / near.length : null;
  });
}

function path(steps, values, x, y) {
  let text = "";
  let open = false;
  values.forEach((value, place) => {
    if (!known(value)) {
      open = false;
      return;
    }
    text += `${open ? "L" : "M"}${x(steps[place]).toFixed(1)} ${y(value).toFixed(1)}`;
    open = true;
  });
  return text;
}

// One chart over steps. data: {steps, lines: [{name, values}], points: [{step, mean, ci95, name, split, n}], flags: [{step, say, severity}]}
function curve(title, options = {}) {
  const height = options.height || 170;
  const plot = svg("svg", { class: "plot", height, tabindex: "0", role: "img" });
  const read = el("p", { class: "read", "aria-live": "polite" });
  const key = el("div", { class: "key" });
  const node = el(
    "figure", { class: `chart ${options.wide ? "wide" : ""}` },
    el("figcaption", {}, el("h3", {}, title), key), plot, read,
  );
  let data = { steps: [], lines: [], points: [], flags: [] };
  let place = null;
  let scale = null;
  const smoothed = () => Boolean(options.smooth) && data.steps.length >= SMOOTHED_FROM;

  function draw() {
    const width = plot.clientWidth || 320;
    plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const all = [
      ...data.lines.flatMap((one) => one.values),
      ...data.points.flatMap((one) => [one.mean, ...(one.ci95 || [])]),
    ];
    const [low, high] = options.domain || span(all);
    const ends = [...data.steps, ...data.points.map((one) => one.step)].filter(known);
    const first = options.from ?? Math.min(...ends);
    const last = Math.max(...ends, first + 1);
    const x = (step) => EDGE.left + ((step - first) / (last - first)) * (width - EDGE.left - EDGE.right);
    const y = (value) => EDGE.top + (1 - (value - low) / (high - low)) * (height - EDGE.top - EDGE.bottom);
    const parts = [];
    for (const at of ticks(low, high, height > 200 ? 5 : 3)) {
      parts.push(svg("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(at), y2: y(at) }));
      parts.push(svg("text", { x: EDGE.left - 7, y: y(at) + 4, "text-anchor": "end" }, brief(at)));
    }
    const floor = height - EDGE.bottom;
    parts.push(svg("line", { class: "axis", x1: EDGE.left, x2: width - EDGE.right, y1: floor, y2: floor }));
    for (const at of ticks(first, last, Math.max(2, Math.floor(width / 80))).filter((one) => Number.isInteger(one))) {
      parts.push(svg("text", { x: x(at), y: height - 9, "text-anchor": "middle" }, at === first || x(at) < EDGE.left + 24 ? `step ${at}` : at));
    }
    data.lines.forEach((line, tone) => {
      const wide = Math.max(3, Math.round(data.steps.length / 14) | 1);
      if (smoothed()) {
        parts.push(svg("path", { class: `curve faint tone${tone}`, d: path(data.steps, line.values, x, y) }));
        parts.push(svg("path", { class: `curve tone${tone}`, d: path(data.steps, smooth(line.values, wide), x, y) }));
      } else parts.push(svg("path", { class: `curve tone${tone}`, d: path(data.steps, line.values, x, y) }));
    });
    for (const one of data.points) {
      if (one.ci95) parts.push(svg("line", { class: "bar", x1: x(one.step), x2: x(one.step), y1: y(one.ci95[0]), y2: y(one.ci95[1]) }));
      parts.push(svg("circle", { class: `dot ${one.split}`, cx: x(one.step), cy: y(one.mean), r: 3.8 }));
    }
    for (const one of data.flags.filter((flag) => flag.step >= first)) {
      const at = x(one.step);
      parts.push(svg("path", { class: `flag ${one.severity}`, d: `M${at} ${floor}l-4 7h8z` }, svg("title", {}, one.say)));
    }
    scale = { x, y, first, last, width };
    const cursor = svg("g", {});
    parts.push(cursor);
    replace(plot, ...parts);
    plot.cursor = cursor;
    point(place);
  }

  // Shows the values at one place of the series; without one, the last values.
  function point(at) {
    place = at === null || !data.steps.length ? null : Math.max(0, Math.min(at, data.steps.length - 1));
    const shown = place === null ? data.steps.length - 1 : place;
    const parts = data.lines.map((line) => `${data.lines.length > 1 ? `${line.name} ` : ""}${brief(line.values[shown])}`);
    const step = data.steps[shown];
    const near = data.points.filter((one) => one.step === step).map((one) => `${words(one.name)} ${number(one.mean)} ${interval(one.ci95)} n=${one.n}`);
    const flags = data.flags.filter((one) => one.step === step).map((one) => one.say);
    read.textContent = shown < 0 ? "No steps yet." : `${place === null ? "last, step" : "step"} ${step}: ${[...parts, ...near, ...flags].join(" · ")}`;
    if (plot.cursor && scale) {
      const at = scale.x(step);
      replace(plot.cursor, place === null || !known(at) ? null : svg("line", { class: "cursor", x1: at, x2: at, y1: EDGE.top, y2: height - EDGE.bottom }));
    }
  }

  plot.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
    if (move === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    point((place ?? (move > 0 ? -1 : data.steps.length)) + move);
  });
  plot.addEventListener("blur", () => point(null));
  plot.addEventListener("pointerleave", () => document.activeElement !== plot && point(null));
  plot.addEventListener("pointermove", (event) => {
    if (!scale || !data.steps.length) return;
    const inside = ((event.clientX - plot.getBoundingClientRect().left - EDGE.left) / (scale.width - EDGE.left - EDGE.right));
    const step = scale.first + inside * (scale.last - scale.first);
    let best = 0;
    data.steps.forEach((one, at) => {
      if (Math.abs(one - step) < Math.abs(data.steps[best] - step)) best = at;
    });
    point(best);
  });
  new ResizeObserver(() => draw()).observe(plot);

  return {
    node,
    update(next) {
      data = { points: [], flags: [], ...next };
      plot.setAttribute("aria-label", `${title}, ${data.steps.length} steps; arrow keys read single steps`);
      replace(
        key,
        data.lines.length > 1 || data.points.length ? data.lines.map((line, tone) => el("span", {}, svg("svg", { viewBox: "0 0 24 8", "aria-hidden": "true" }, svg("path", { class: `curve tone${tone}`, d: "M1 4H23" })), smoothed() ? `${line.name}, smoothed` : line.name)) : [],
        [...new Set(data.points.map((one) => one.split))].map((split) => el("span", {}, svg("svg", { viewBox: "0 0 24 8", "aria-hidden": "true" }, svg("circle", { class: `dot ${split}`, cx: 12, cy: 4, r: 3.6 })), `success on ${split}, 95 %`)),
      );
      draw();
    },
  };
}

function sparkline(values) {
  if (!values || values.length < 2) return null;
  const [low, high] = [Math.min(0, ...values), Math.max(1, ...values)];
  const at = (value, place) => `${((place / (values.length - 1)) * 118 + 1).toFixed(1)} ${(28 - ((value - low) / (high - low)) * 26).toFixed(1)}`;
  return svg("svg", { class: "spark", viewBox: "0 0 120 30", "aria-hidden": "true" }, svg("path", { d: `M${values.map(at).join("L")}` }));
}

// Effect with its interval on an axis that shows zero.
function effectPlot(effect, pair, label, domain) {
  const width = 280;
  const height = 46;
  const furthest = Math.max(...[effect, ...(pair || [])].map(Math.abs));
  const end = [0.1, 0.25, 0.5, 1].find((one) => one >= furthest) || 1;
  const reach = domain || [-end, end];
  const x = (value) => 8 + ((Math.max(reach[0], Math.min(reach[1], value)) - reach[0]) / (reach[1] - reach[0])) * (width - 16);
  const tone = pair && pair[0] > 0 ? "good" : pair && pair[1] < 0 ? "bad" : "";
  return svg(
    "svg", { class: "effect", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    svg("line", { class: "axis", x1: 8, x2: width - 8, y1: 28, y2: 28 }),
    svg("line", { class: "zero", x1: x(0), x2: x(0), y1: 4, y2: 32 }),
    pair ? svg("line", { class: `span ${tone}`, x1: x(pair[0]), x2: x(pair[1]), y1: 16, y2: 16 }) : null,
    svg("circle", { class: `middle ${tone}`, cx: x(effect), cy: 16, r: 4.5 }),
    svg("text", { x: x(0), y: 43, "text-anchor": "middle" }, "0"),
    svg("text", { x: 8, y: 43 }, signed(reach[0], 2)),
    svg("text", { x: width - 8, y: 43, "text-anchor": "end" }, signed(reach[1], 2)),
  );
}

// Both arms of each pair on one line from 0 to 1: hollow without the patch, filled with it.
function pairPlot(pairs) {
  const line = 20;
  const height = pairs.length * line + 34;
  const plot = svg("svg", { class: "plot", height, tabindex: "0", role: "img", "aria-label": `${pairs.length} pairs, success without and with the patch; arrow keys read single pairs` });
  const read = el("p", { class: "read", "aria-live": "polite" });
  let place = null;

  function draw() {
    const width = plot.clientWidth || 320;
    const left = width < 420 ? 34 : 150;
    plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const x = (value) => left + value * (width - left - 14);
    const parts = [];
    for (const at of [0, 0.25, 0.5, 0.75, 1]) {
      parts.push(svg("line", { class: "grid", x1: x(at), x2: x(at), y1: 4, y2: height - 26 }));
      parts.push(svg("text", { x: x(at), y: height - 9, "text-anchor": "middle" }, at));
    }
    pairs.forEach((pair, row) => {
      const y = 14 + row * line;
      const way = pair.patched > pair.base ? "up" : pair.patched < pair.base ? "down" : "";
      if (row === place) parts.push(svg("rect", { class: "chosen", x: 0, y: y - line / 2, width, height: line, rx: 3 }));
      parts.push(svg("text", { x: 4, y: y + 4 }, left > 100 ? `${pair.index + 1}  ${pair.scenario.slice(0, 20)}` : pair.index + 1));
      parts.push(svg("line", { class: `pair ${way}`, x1: x(pair.base), x2: x(pair.patched), y1: y, y2: y }));
      parts.push(svg("circle", { class: "base", cx: x(pair.base), cy: y, r: 4.4 }));
      parts.push(svg("circle", { class: "patched", cx: x(pair.patched), cy: y, r: 4.8 }));
    });
    replace(plot, ...parts);
  }

  function point(at) {
    place = at === null ? null : Math.max(0, Math.min(at, pairs.length - 1));
    const pair = place === null ? null : pairs[place];
    const fell = pair && pair.collapsed.length ? ` · collapsed: ${pair.collapsed.join(", ")}` : "";
    read.textContent = pair === null
      ? "Test success of each pair: hollow without, filled with the patch, same seed and tasks."
      : `pair ${pair.index + 1}, ${pair.scenario}: ${number(pair.base)} → ${number(pair.patched)} (${signed(pair.patched - pair.base)}), n=${pair.n}${fell}`;
    draw();
  }

  plot.addEventListener("keydown", (event) => {
    const move = { ArrowUp: -1, ArrowDown: 1, Home: -1e9, End: 1e9 }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    point((place ?? (move > 0 ? -1 : pairs.length)) + move);
  });
  plot.addEventListener("blur", () => point(null));
  plot.addEventListener("pointerleave", () => point(null));
  plot.addEventListener("pointermove", (event) => {
    const row = Math.floor((event.clientY - plot.getBoundingClientRect().top - 4) / line);
    if (row >= 0 && row < pairs.length && row !== place) point(row);
  });
  new ResizeObserver(draw).observe(plot);
  point(null);
  return el("div", {}, plot, read);
}
