"use strict";
/* Drawing: small SVG charts that can be read with a mouse, with the keyboard, and as a table. */

const SVG = "http://www.w3.org/2000/svg";
const MARKERS = [
  (x, y, r) => `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
  (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
  (x, y, r) => `M${x},${y - 1.2 * r}L${x + 1.15 * r},${y + r}H${x - 1.15 * r}Z`,
  (x, y, r) => `M${x},${y - 1.35 * r}L${x + 1.35 * r},${y}L${x},${y + 1.35 * r}L${x - 1.35 * r},${y}Z`,
  (x, y, r) => `M${x},${y + 1.2 * r}L${x + 1.15 * r},${y - r}H${x - 1.15 * r}Z`,
  (x, y, r) => `M${x - 0.5 * r},${y - 1.2 * r}h${r}v${0.7 * r}h${0.7 * r}v${r}h${-0.7 * r}v${0.7 * r}h${-r}v${-0.7 * r}h${-0.7 * r}v${-r}h${0.7 * r}Z`,
  (x, y, r) => `M${x - 1.2 * r},${y}L${x + r},${y - 1.15 * r}V${y + 1.15 * r}Z`,
];
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 4", "1 5"];

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const short = (value) => value === null || value === undefined ? "–" : Math.abs(value) >= 1000 || (value !== 0 && Math.abs(value) < 0.001) ? value.toExponential(1) : String(+value.toPrecision(3));
const percent = (value) => value === null || value === undefined ? "–" : `${+(100 * value).toFixed(1)}%`;

function ticks(low, high, count = 5) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(+(i * step).toPrecision(12));
  return found;
}

function swatch(style) {
  const colour = `var(--c${style.colour})`;
  return svg("svg", { class: "swatch", viewBox: "0 0 30 14", "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 29, y1: 7, y2: 7, stroke: colour, "stroke-width": style.strong ? 3 : 2, "stroke-dasharray": DASHES[style.dash] }),
    svg("path", { d: MARKERS[style.marker](15, 7, 3.6), fill: colour }));
}

/* A figure: caption, drawing, legend (for narrow pages, where the list of scores is out of sight), and the same numbers
   as a table that is built when it is first opened. */
function figure(title, subtitle, drawing, heads, rows, series = []) {
  const body = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}: numbers` });
  const numbers = el("details", {}, el("summary", {}, "numbers"), body);
  numbers.addEventListener("toggle", () => { if (numbers.open && !body.firstChild) body.append(table(title, heads, rows())); });
  return el("figure", {}, el("figcaption", {}, title, subtitle ? el("span", {}, ` ${subtitle}`) : null), drawing, legend(series), numbers);
}

function legend(series) {
  return series.length ? el("p", { class: "legend" }, ...series.map((s) => el("span", { class: "key" }, swatch(s), s.label))) : null;
}

function table(title, heads, rows) {
  return el("table", {}, el("caption", {}, title),
    el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { scope: "col", class: i ? "number" : null }, head)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell, i) => i ? el("td", { class: "number" }, cell) : el("th", { scope: "row" }, cell))))));
}

/* Axes, rules and titles. Returns the root element, the scales and the edges of the plotting area. */
function axes(options) {
  const { width, height = 250, x, y, label } = options;
  const left = options.left ?? 44, right = options.accuracy ? 40 : 12, top = 10, bottom = options.bottom ?? 38;
  const sx = (value) => left + (width - left - right) * (value - x.low) / (x.high - x.low);
  const sy = (value) => height - bottom - (height - top - bottom) * (value - y.low) / (y.high - y.low);
  const root = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": label });
  for (const tick of y.ticks ?? ticks(y.low, y.high, height < 180 ? 3 : 5)) {
    root.append(svg("line", { class: "rule", x1: left, x2: width - right, y1: sy(tick), y2: sy(tick) }),
      svg("text", { x: left - 6, y: sy(tick) + 4, "text-anchor": "end" }, (y.format ?? short)(tick)));
  }
  for (const tick of options.accuracy ? [0, 0.5, 1] : []) root.append(svg("text", { x: width - right + 5, y: height - bottom - (height - top - bottom) * tick + 4 }, percent(tick)));
  let last = -Infinity;
  for (const [tick, text] of x.labels ?? ticks(x.low, x.high, width < 330 ? 4 : 5).map((t) => [t, (x.format ?? short)(t)])) {
    const at = sx(tick), half = text.length * 3.5 + 1;
    root.append(svg("line", { class: "frame-line", x1: at, x2: at, y1: height - bottom, y2: height - bottom + 4 }));
    if (at - half < last + 4) continue;
    last = at + half;
    root.append(svg("text", { x: Math.min(at, width - half), y: height - bottom + 16, "text-anchor": "middle" }, text));
  }
  root.append(svg("line", { class: "frame-line", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  if (x.title) root.append(svg("text", { class: "axis-title", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, x.title));
  if (y.title) root.append(svg("text", { class: "axis-title", x: 11, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 11 ${(top + height - bottom) / 2})` }, y.title));
  return { root, sx, sy, left, right: width - right, top, bottom: height - bottom };
}

/* Lines with optional bands. series: {label, colour, dash, marker, strong, points: [{x, y, low, high, text}]} */
function lineChart(options) {
  const { series, width } = options, drawn = axes(options), { root, sx, sy, top, bottom } = drawn;
  const inside = (value) => Math.max(options.y.low, Math.min(options.y.high, value));
  if (options.diagonal) root.append(svg("line", { class: "ghost", x1: sx(0), y1: sy(options.diagonal[0]), x2: sx(1), y2: sy(options.diagonal[1]) }));
  if (options.accuracy) root.append(svg("path", { class: "ghost", d: path(options.accuracy, sx, (v) => bottom - (bottom - top) * v) }));
  for (const one of series) {
    const banded = one.points.filter((p) => p.low !== null && p.low !== undefined && p.high !== null);
    if (banded.length > 1) {
      const edge = [...banded.map((p) => [sx(p.x), sy(inside(p.high))]), ...banded.toReversed().map((p) => [sx(p.x), sy(inside(p.low))])];
      root.append(svg("path", { class: "band", fill: `var(--c${one.colour})`, d: `M${edge.map((p) => p.map((v) => v.toFixed(1)).join(",")).join("L")}Z` }));
    }
  }
  for (const one of series) {
    const colour = `var(--c${one.colour})`;
    if (!one.dotsOnly) root.append(svg("path", { class: one.strong ? "line strong" : "line", stroke: colour, "stroke-dasharray": DASHES[one.dash], d: path(one.points.map((p) => [p.x, p.y]), sx, (v) => sy(inside(v))) }));
    const every = options.markers === "all" ? 1 : Math.max(1, Math.round(one.points.length / 6));
    one.points.forEach((p, i) => {
      if (options.markers !== "none" && p.y !== null && (i + (options.markers === "all" ? 0 : 3)) % every === 0)
        root.append(svg("path", { class: "marker", fill: colour, d: MARKERS[one.marker](sx(p.x), sy(inside(p.y)), p.radius ?? (one.strong ? 4.4 : 3.4)) }));
    });
  }
  const spots = series.flatMap((one) => one.points.filter((p) => p.y !== null).map((p) => ({ x: sx(p.x), y: sy(inside(p.y)), text: `${one.label}\n${p.text}` })));
  explore(root, spots, width, [top, bottom]);
  return root;
}

function path(points, sx, sy) {
  let text = "", pen = "M";
  for (const [x, y] of points) {
    if (y === null || y === undefined) { pen = "M"; continue; }
    text += `${pen}${sx(x).toFixed(1)},${sy(y).toFixed(1)}`;
    pen = "L";
  }
  return text;
}

/* Bars for correct predictions point up, and bars for wrong ones down. bars: {low, high, right, wrong, text} in the units of the axes */
function mirrorChart(options) {
  const drawn = axes(options), { root, sx, sy, top, bottom } = drawn;
  for (const bar of options.bars) {
    const x = sx(bar.low) + 0.5, width = Math.max(0.5, sx(bar.high) - sx(bar.low) - 1);
    if (bar.right) root.append(svg("rect", { class: "bar-right", x, width, y: sy(bar.right), height: sy(0) - sy(bar.right) }));
    if (bar.wrong) root.append(svg("rect", { class: "bar-wrong", x, width, y: sy(0), height: sy(-bar.wrong) - sy(0) }));
  }
  root.append(svg("line", { class: "frame-line", x1: drawn.left, x2: drawn.right, y1: sy(0), y2: sy(0) }));
  explore(root, options.bars.filter((b) => b.right || b.wrong).map((bar) => ({ x: (sx(bar.low) + sx(bar.high)) / 2, y: sy(0), text: bar.text, column: true })), options.width, [top, bottom]);
  return root;
}

/* Show the value under the pointer or, while the chart has the focus, the value selected with the arrow keys. */
function explore(root, spots, width, [top, bottom]) {
  const tip = document.getElementById("tip");
  const cursor = svg("line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
  const halo = svg("circle", { class: "halo", r: 6, visibility: "hidden" });
  root.append(cursor, halo);
  let at = -1;
  const hide = () => { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); halo.setAttribute("visibility", "hidden"); };
  const show = (number) => {
    at = number;
    const spot = spots[at], box = root.getBoundingClientRect(), scale = box.width / width;
    for (const name of ["x1", "x2"]) cursor.setAttribute(name, spot.x);
    halo.setAttribute("cx", spot.x);
    halo.setAttribute("cy", spot.y);
    cursor.setAttribute("visibility", "visible");
    halo.setAttribute("visibility", spot.column ? "hidden" : "visible");
    tip.textContent = spot.text;
    tip.hidden = false;
    const x = box.left + spot.x * scale, y = box.top + spot.y * scale;
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 6))}px`;
    tip.style.top = `${Math.max(4, y - tip.offsetHeight - 12)}px`;
  };
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect(), scale = width / box.width, x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    let best = -1, least = Infinity;
    spots.forEach((spot, i) => {
      const distance = spot.column ? Math.abs(spot.x - x) : Math.hypot(spot.x - x, spot.y - y);
      if (distance < least) [best, least] = [i, distance];
    });
    if (best >= 0 && least < 60) show(best); else hide();
  });
  root.addEventListener("pointerleave", hide);
  root.addEventListener("blur", hide);
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !spots.length) return;
    event.preventDefault();
    show((at + step + spots.length) % spots.length);
  });
}
