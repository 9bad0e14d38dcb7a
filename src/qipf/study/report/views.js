/* Views: each function reads the data and the reader's choices, and fills its part of the page. */

let data, styles, choice;

function begin(content) {
  data = content;
  styles = new Map(data.columns.map((column) => [column.id, { ...column, strong: column.recommended }]));
  choice = { pair: Object.keys(data.pairs)[0], metric: data.metrics.length ? data.metrics[0].id : null, shown: new Set(data.columns.filter((c) => c.shown).map((c) => c.id)), shift: null, level: 0, fieldMethod: null, pictureMethod: null };
}

async function unpack() {
  const bytes = Uint8Array.from(atob(byId("data").textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

const byId = (id) => document.getElementById(id);
const shownColumns = () => data.columns.filter((column) => choice.shown.has(column.id));
const inner = (box, least = 240) => { const first = box.firstElementChild; return Math.max(least, Math.round((first ? first.clientWidth : columnWidth(box)) - 24)); };
const columnWidth = (box) => parseFloat(getComputedStyle(box).gridTemplateColumns) || box.clientWidth;
const nothing = (text) => el("p", { class: "notice" }, text);
const clip = (value, low, high) => Math.max(low, Math.min(high, value));

function range(values, pad = 0.06) {
  const known = values.filter((v) => v !== null && v !== undefined && Number.isFinite(v));
  if (!known.length) return { low: 0, high: 1 };
  let low = Math.min(...known), high = Math.max(...known);
  if (low === high) { low -= 0.05; high += 0.05; }
  const room = (high - low) * pad;
  return { low: low - room, high: high + room };
}

/* The positions on the axis of a shift: clean inputs first, then its severities. */
function course(pair, shift) {
  const own = data.severity[pair]?.[shift], clean = data.severity[pair]?.clean;
  const labels = [...(clean ? ["clean"] : []), ...own.intensity], accuracy = [...(clean ? clean.accuracy : []), ...own.accuracy];
  const values = (metric, column) => [...(clean ? clean.values[metric]?.[column] ?? [null] : []), ...(own.values[metric]?.[column] ?? own.intensity.map(() => null))];
  return { labels, accuracy, values };
}

const shiftsOf = (pair) => Object.keys(data.severity[pair] ?? {}).filter((shift) => shift !== "clean" && !shift.startsWith("ood:"));

function drawSeverity() {
  const box = byId("severity-charts");
  if (!box) return;
  const metric = data.metrics.find((m) => m.id === choice.metric), shifts = shiftsOf(choice.pair);
  if (!metric || !shifts.length) { box.replaceChildren(nothing("This model was not measured under a shift.")); return; }
  byId("better").textContent = metric.better ? `${metric.better} is better` : "";
  const width = inner(box), columns = shownColumns();
  const every = shifts.flatMap((shift) => columns.flatMap((c) => course(choice.pair, shift).values(metric.id, c.id).flatMap((v) => v ? [v[0], v[0] + (v[0] - v[1] < 0.25 ? v[1] - v[0] : 0), v[0] + (v[2] - v[0] < 0.25 ? v[2] - v[0] : 0)] : [])));
  const unit = !["nll_proper", "spearman", "point_biserial"].includes(metric.id), y = range(every);
  if (unit) { y.low = Math.max(0, y.low); y.high = Math.min(1, y.high); }
  box.replaceChildren(...shifts.map((shift) => {
    const { labels, accuracy, values } = course(choice.pair, shift);
    const series = columns.map((column) => ({ ...styles.get(column.id), points: values(metric.id, column.id).map((v, i) => ({ x: i, y: v ? v[0] : null, low: v ? v[1] : null, high: v ? v[2] : null, text: v ? `${labels[i]}: ${short(v[0])}${v[1] === null ? "" : ` [${short(v[1])}, ${short(v[2])}]`}\naccuracy ${percent(accuracy[i])}` : "" })) })).filter((s) => s.points.some((p) => p.y !== null));
    const label = `${metric.title} against ${shift}. ` + (series.map((s) => { const known = s.points.filter((p) => p.y !== null); return `${s.label}: ${short(known[0].y)} to ${short(known.at(-1).y)}`; }).join("; ") || "no values");
    const drawing = lineChart({ width, height: 240, label, series, markers: "all", accuracy: accuracy.map((a, i) => [i, a]),
      x: { low: -0.3, high: labels.length - 0.7, labels: labels.map((text, i) => [i, text]), title: `${shift}, from mild to severe` }, y: { ...y, title: "" } });
    return figure(shift, metric.title, drawing, ["Score", ...labels], () => [["accuracy", ...accuracy.map(short)], ...series.map((s) => [s.label, ...s.points.map((p) => short(p.y))])], series);
  }));
}

/* --- one condition ------------------------------------------------------------------------------------------- */

function conditions() {
  const found = data.details[choice.pair];
  if (!found) return [];
  return [...(found.shifts.clean ?? []).map((c) => ({ ...c, shift: "clean" })), ...(choice.shift ? found.shifts[choice.shift] ?? [] : []).map((c) => ({ ...c, shift: choice.shift }))];
}

function intensity(condition) {
  if (condition.shift === "clean") return "clean inputs";
  const own = data.severity[choice.pair]?.[condition.shift], place = own ? own.severity.indexOf(condition.severity) : -1;
  return place < 0 ? `severity ${condition.severity}` : `${own.intensity[place]} (severity ${condition.severity})`;
}

const VIEWS = [
  { title: "ROC curve", x: "correct predictions flagged", y: "errors found", diagonal: [0, 1],
    point: (f, n, errors, found) => errors && n > errors ? [(f * n - found) / (n - errors), found / errors] : null, text: (x, y) => `${percent(y)} of the errors found,\n${percent(x)} of the correct predictions flagged` },
  { title: "Precision and recall", x: "errors found (recall)", y: "errors among the flagged (precision)",
    point: (f, n, errors, found) => errors && f > 0 ? [found / errors, found / (f * n)] : null, text: (x, y) => `${percent(x)} of the errors found,\n${percent(y)} of the flagged predictions are errors` },
  { title: "Risk and coverage", x: "predictions kept (coverage)", y: "errors among the kept (risk)", free: true,
    point: (f, n, errors, found) => f < 1 ? [1 - f, (errors - found) / (n * (1 - f))] : null, text: (x, y) => `most certain ${percent(x)} kept:\n${percent(y)} of these are wrong` },
];

function drawCondition() {
  const all = conditions(), condition = all[clip(choice.level, 0, all.length - 1)], box = byId("curves");
  byId("condition-table").replaceChildren();
  byId("histograms").replaceChildren();
  if (!condition) { byId("level-text").textContent = ""; box.replaceChildren(nothing("No predictions are stored for this model.")); return; }
  byId("level-text").textContent = `${intensity(condition)}: accuracy ${percent(condition.accuracy)}`;
  byId("level").setAttribute("aria-valuetext", `${intensity(condition)}, accuracy ${percent(condition.accuracy)}`);
  const width = inner(box), where = condition.shift === "clean" ? "on clean inputs" : `under ${condition.shift} ${intensity(condition)}`;
  const columns = shownColumns().filter((column) => condition.methods[column.id]);
  const figures = VIEWS.map((view) => {
    const series = columns.map((column) => {
      const m = condition.methods[column.id];
      const points = data.fractions.map((f, i) => view.point(f, m.n, m.errors, m.found[i])).filter((p) => p).map(([x, y]) => ({ x: clip(x, 0, 1), y: clip(y, 0, 1), text: view.text(clip(x, 0, 1), clip(y, 0, 1)) }));
      return { ...styles.get(column.id), points };
    }).filter((s) => s.points.length);
    const high = view.free ? Math.max(0.02, range(series.flatMap((s) => s.points.map((p) => p.y))).high) : 1;
    const drawing = series.length ? lineChart({ width, height: 290, label: `${view.title} ${where}, ${series.length} scores; the numbers are in the table below the charts`, series, diagonal: view.diagonal,
      x: { low: 0, high: 1, title: view.x, format: percent }, y: { low: 0, high: Math.min(1, high), title: view.y, format: percent }, left: 54 })
      : nothing(columns.length ? "There is no curve, because all predictions are correct or all are wrong." : "No score is selected.");
    return figure(view.title, where, drawing, ["Score", ...(series[0]?.points.map((p, i) => i % 6 ? null : `at ${percent(p.x)}`).filter((t) => t) ?? [])], () => series.map((s) => [s.label, ...s.points.filter((p, i) => i % 6 === 0).map((p) => percent(p.y))]), series);
  });
  figures.push(reliabilityFigure(condition, columns, width, where));
  box.replaceChildren(...figures);
  drawNumbers(condition, columns, where);
  drawHistograms(condition, columns, where);
}

function reliabilityFigure(condition, columns, width, where) {
  const series = columns.filter((c) => condition.methods[c.id].reliability?.length).map((column) => {
    const bins = condition.methods[column.id].reliability, most = Math.max(...bins.map((b) => b[0]));
    return { ...styles.get(column.id), points: bins.map(([n, p, share]) => ({ x: p, y: share, n, radius: 2.5 + 5 * Math.sqrt(n / most), text: `predicted ${percent(p)}, observed ${percent(share)}\n${n} predictions` })) };
  });
  const drawing = series.length ? lineChart({ width, height: 290, label: `Reliability diagram ${where}: fraction of errors against the predicted probability of error`, series, markers: "all", diagonal: [0, 1],
    x: { low: 0, high: 1, title: "predicted probability of error", format: percent }, y: { low: 0, high: 1, title: "fraction of errors", format: percent }, left: 54 })
    : nothing("There are no held-out predictions for calibrating the scores.");
  return figure("Reliability", `${where}; scores calibrated on clean data`, drawing, ["Score", "predicted", "observed", "predictions"], () => series.flatMap((s) => s.points.map((p) => [s.label, percent(p.x), percent(p.y), String(p.n)])), series);
}

function drawNumbers(condition, columns, where) {
  const own = data.severity[choice.pair]?.[condition.shift];
  const place = own ? own.severity.indexOf(condition.severity) : -1;
  if (place < 0 || !columns.length) return;
  const metrics = data.metrics.filter((m) => ["roc_auc", "pr_auc", "aurc", "fpr_at_95_tpr", "ece_proper", "brier_proper"].includes(m.id));
  const rows = columns.map((c) => [c.label, ...metrics.map((m) => short(own.values[m.id]?.[c.id]?.[place]?.[0]))]);
  byId("condition-table").replaceChildren(el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "Numbers of this condition" }, table(`Metrics ${where}`, ["Score", ...metrics.map((m) => m.title)], rows)));
}

function drawHistograms(condition, columns, where) {
  const box = byId("histograms"), width = inner(box, 210), found = data.details[choice.pair];
  if (!columns.length) { box.replaceChildren(nothing("No score is selected.")); return; }
  box.replaceChildren(...columns.map((column) => {
    const m = condition.methods[column.id], [low, high, log] = found.axes[column.id], [right, wrong] = m.bins;
    const total = [right, wrong].map((list) => list.reduce((a, b) => a + b, 0)), edge = (i) => (log ? Math.log10(low) : low) + (log ? Math.log10(high / low) : high - low) * i / right.length;
    const name = (v) => log ? short(10 ** v) : short(v);
    const bars = right.map((count, i) => ({ low: edge(i), high: edge(i + 1), right: total[0] ? count / total[0] : 0, wrong: total[1] ? wrong[i] / total[1] : 0, text: `${column.label} ${name(edge(i))} to ${name(edge(i + 1))}\ncorrect: ${count} of ${total[0]}\nwrong: ${wrong[i]} of ${total[1]}` }));
    const most = Math.max(0.05, ...bars.flatMap((b) => [b.right, b.wrong]));
    const drawing = mirrorChart({ width, height: 170, label: `Histogram of the scores of ${column.label} ${where}: ${total[0]} correct predictions upwards, ${total[1]} wrong ones downwards`, bars, left: 44, bottom: 24,
      x: { low: edge(0), high: edge(right.length), format: name, labels: logLabels(log, low, high) }, y: { low: -most, high: most, ticks: [-most, 0, most], format: (v) => percent(Math.round(Math.abs(v) * 100) / 100) } });
    return figure(column.label, `${total[1]} wrong of ${total[0] + total[1]}`, drawing, ["Score from", "to", "correct", "wrong"], () => bars.map((b, i) => [name(b.low), name(b.high), String(right[i]), String(wrong[i])]));
  }));
  if (!byId("bar-key")) box.before(el("p", { id: "bar-key" }, el("span", { class: "key" }, el("i", { style: "background:var(--right)" }), "correct, upwards"), el("span", { class: "key" }, el("i", { style: "background:var(--wrong)" }), "wrong, downwards")));
}

function logLabels(log, low, high) {
  if (!log) return undefined;
  const first = Math.ceil(Math.log10(low)), last = Math.floor(Math.log10(high)), step = Math.max(1, Math.ceil((last - first) / 4)), found = [];
  for (let power = last; power >= first; power -= step) found.unshift([power, power >= -2 && power <= 3 ? String(+(10 ** power).toPrecision(1)) : `1e${power}`]);
  return found;
}

/* --- the field ----------------------------------------------------------------------------------------------- */

function drawField() {
  const box = byId("field-charts"), fields = data.fields[choice.pair] ?? {}, view = fields[choice.fieldMethod];
  if (!view) { byId("field-facts").textContent = ""; box.replaceChildren(nothing("There is no field of weights for this model.")); return; }
  const facts = view.facts, x = { low: view.low, high: view.high }, step = (view.high - view.low) / (view.psi.length - 1), at = (i) => view.low + i * step;
  byId("field-facts").textContent = `${facts.weights ?? "?"} pooled weights, kernel width ${short(facts.bandwidth)} (${short(facts.factor)} times Silverman's bandwidth), ${facts.operator} operator; y = (largest logit − ${short(facts.centre)}) / ${short(facts.scale)}.`;
  const width = inner(box, 260), line = (label, values, style) => ({ label, colour: 0, dash: 0, marker: 0, ...style, points: values.map((v, i) => ({ x: at(i), y: v, text: `y = ${short(at(i))}: ${short(v)}` })) });
  const table = (all) => () => view.psi.map((_, i) => i).filter((i) => i % 10 === 0).map((i) => [short(at(i)), ...all.map((values) => short(values[i]))]);
  const [least, top] = [Math.min(...view.psi.filter((v) => v !== null)), Math.max(...view.psi.filter((v) => v !== null))], flat = top - least < 0.2 * top;
  const psi = lineChart({ width, height: 150, left: 54, bottom: 24, markers: "none", label: "The field psi of the weights along y", series: [line("ψ", view.psi, { colour: 1, strong: true })], x, y: range(flat ? view.psi : [...view.psi, 0], flat ? 0.15 : 0.03) });
  const quantile = (values, share) => { const known = values.filter((v) => v !== null).toSorted((a, b) => a - b); return known[Math.floor(share * (known.length - 1))] ?? 0; };
  const highest = Math.max(1.6 * quantile(view.mean, 0.97), ...view.modes.map((m) => quantile(m, 0.9))), most = highest > 0 ? highest : 1;
  const series = [...view.modes.map((m, k) => line(`mode of order ${view.orders[k] ?? k}`, m, { colour: 1 + k % 6, dash: k % 3 })), line("uncertainty (their mean)", view.mean, { strong: true })];
  const modes = lineChart({ width, height: 200, left: 54, bottom: 24, markers: "none", label: `Modes of orders ${view.orders.join(", ")} and their mean, the uncertainty, along y`, series, x, y: { low: 0, high: most } });
  const figures = [figure("ψ(y)", flat ? `the field of the weights; it varies by ${percent(top > 0 ? (top - least) / top : 0)} over this range, and the axis does not start at 0` : "the field of the weights", psi, ["y", "ψ"], table([view.psi])), figure("Modes and uncertainty", highest > 0 ? "values outside the frame are cut off" : "all modes are 0 in this range", modes, ["y", ...series.map((s) => s.label)], table([...view.modes, view.mean]))];
  figures[1].append(el("p", {}, ...series.map((s) => el("span", { class: "key" }, swatch(s), s.label))));
  const all = conditions(), condition = all[clip(choice.level, 0, all.length - 1)];
  const entry = condition && view.conditions[condition.shift]?.find((c) => c.severity === condition.severity);
  if (entry) {
    const [right, wrong] = entry.bins, size = (view.high - view.low) / right.length, total = right.reduce((a, b) => a + b, 0) + wrong.reduce((a, b) => a + b, 0);
    const bars = right.map((count, i) => ({ low: view.low + i * size, high: view.low + (i + 1) * size, right: count, wrong: wrong[i], text: `y from ${short(view.low + i * size)} to ${short(view.low + (i + 1) * size)}\ncorrect: ${count}\nwrong: ${wrong[i]}` }));
    const top = Math.max(1, ...right, ...wrong);
    const drawing = mirrorChart({ width, height: 180, left: 54, label: `Positions of ${total} predictions in the field, ${intensity(condition)}`, bars, x: { ...x, title: "y, the largest logit in standard units" }, y: { low: -top, high: top, ticks: [-top, 0, top], format: (v) => String(Math.abs(v)) } });
    figures.push(figure("Predictions", `${condition.shift === "clean" ? "" : `${condition.shift} `}${intensity(condition)}; correct upwards, wrong downwards`, drawing, ["y from", "to", "correct", "wrong"], () => bars.map((b) => [short(b.low), short(b.high), String(b.right), String(b.wrong)])));
  } else figures.push(nothing("The predictions can be shown only if the plan contains the method max-logit and the scorer uses the largest logit."));
  box.replaceChildren(...figures);
}

/* --- pictures ------------------------------------------------------------------------------------------------ */

const SORTS = [["right_sure", "Correct", "and sure"], ["right_unsure", "Correct", "but unsure"], ["wrong_sure", "Wrong", "but sure"], ["wrong_unsure", "Wrong", "and unsure"]];

function drawPictures() {
  const box = byId("picture-groups"), groups = data.thumbnails[choice.pair];
  if (!groups) { box.replaceChildren(nothing("There are no pictures of this model's inputs.")); return; }
  box.replaceChildren(...Object.entries(groups).map(([shift, group]) => {
    const own = group.columns[choice.pictureMethod], title = shift === "clean" ? "clean inputs" : `${shift}, ${group.intensity}`;
    return el("div", {}, el("h3", {}, title), own ? el("div", { class: "strip" }, ...SORTS.map(([sort, what, how]) => el("div", { class: `sort ${what.toLowerCase()}` }, el("h4", {}, el("b", {}, what), ` ${how}`),
      own[sort].length ? el("ul", { class: "pictures" }, ...own[sort].map((picture) => thumbnail(picture))) : el("p", { class: "small" }, `none in the ${how.endsWith("unsure") ? "less" : "more"} certain half`)))) : nothing("not scored"));
  }));
}

function thumbnail([src, truth, predicted, share]) {
  const wrong = truth !== predicted;
  return el("li", {}, el("img", { src, alt: wrong ? `${truth}, predicted as ${predicted}` : truth, loading: "lazy" }), el("b", {}, wrong ? `${truth} → ${predicted}` : truth), `${share}%`);
}
