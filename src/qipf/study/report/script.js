/* The reader's choices: every control changes `choice` and redraws what depends on it. */

function options(select, entries, value, change) {
  select.replaceChildren(...entries.map(([id, text]) => el("option", { value: id, selected: id === value ? "" : null }, text)));
  select.onchange = () => change(select.value);
}

function toggle(column) {
  const input = el("input", { type: "checkbox", value: column.id, checked: choice.shown.has(column.id) ? "" : null });
  input.addEventListener("change", () => { if (input.checked) choice.shown.add(column.id); else choice.shown.delete(column.id); drawCharts(); });
  return el("label", { title: column.label }, input, swatch(styles.get(column.id)), el("span", {}, column.short));
}

function buildToggles() {
  const lead = data.columns.filter((c) => c.lead), others = data.columns.filter((c) => !c.lead);
  const groups = [["One pass", lead.filter((c) => !c.many)], ["Several passes", lead.filter((c) => c.many)]];
  const boxes = groups.filter(([, columns]) => columns.length).map(([title, columns]) => el("fieldset", { class: "toggles" }, el("legend", {}, title), ...columns.map(toggle)));
  if (others.length) boxes.push(el("details", {}, el("summary", {}, `Other scores of these methods (${others.length})`), el("fieldset", { class: "toggles" }, el("legend", { class: "hide" }, "Other scores"), ...others.map(toggle))));
  byId("toggles").replaceChildren(...boxes);
}

function buildPresets() {
  const first = [...choice.shown];
  const presets = [["Main", (c) => first.includes(c.id)], ["One pass", (c) => c.lead && !c.many], ["Several passes", (c) => c.lead && c.many], ["All", (c) => c.lead], ["None", () => false]];
  byId("presets").replaceChildren(...presets.map(([name, wanted]) => {
    const button = el("button", { type: "button" }, name);
    button.addEventListener("click", () => { choice.shown = new Set(data.columns.filter(wanted).map((c) => c.id)); buildToggles(); drawCharts(); });
    return button;
  }));
}

function buildShifts() {
  const found = Object.keys(data.details[choice.pair]?.shifts ?? {}).filter((shift) => shift !== "clean");
  if (!found.includes(choice.shift)) choice.shift = found[0] ?? null;
  byId("shifts").replaceChildren(...found.map((shift) => {
    const input = el("input", { type: "radio", name: "shift", value: shift, checked: shift === choice.shift ? "" : null });
    input.addEventListener("change", () => { choice.shift = shift; setLevels(); drawOne(); });
    return el("label", {}, input, el("span", {}, shift));
  }));
  byId("shift-field").hidden = !found.length;
  setLevels(true);
}

function setLevels(middle = false) {
  const count = conditions().length, level = byId("level");
  byId("level-field").hidden = count < 2;
  byId("level-field").parentElement.hidden = count < 2;
  level.max = Math.max(0, count - 1);
  if (middle) choice.level = Math.floor(count / 2);
  choice.level = clip(choice.level, 0, Math.max(0, count - 1));
  level.value = choice.level;
}

/* A table that is wider than its box fades at the right and says that it can be scrolled. */
function markScroll(box) {
  const more = box.scrollWidth - box.clientWidth - box.scrollLeft > 4;
  if (more) box.dataset.more = "yes"; else delete box.dataset.more;
}

function watchScroll() {
  for (const box of document.querySelectorAll(".scroll")) {
    if (!box.dataset.watched) box.addEventListener("scroll", () => markScroll(box), { passive: true });
    box.dataset.watched = "yes";
    markScroll(box);
  }
}

function buildUnfold() {
  const button = byId("unfold"), more = byId("more-scores");
  if (!button) return;
  const all = button.textContent;
  const set = (open) => { more.hidden = !open; button.textContent = open ? "Show fewer scores" : all; button.setAttribute("aria-expanded", String(open)); };
  button.addEventListener("click", () => set(more.hidden));
  button.hidden = false;
  set(false);
}

function buildPair() {
  if (byId("conditions")) buildShifts();
  if (byId("field")) {
    const methods = Object.keys(data.fields[choice.pair] ?? {});
    if (!methods.includes(choice.fieldMethod)) choice.fieldMethod = methods[0] ?? null;
    options(byId("field-method"), methods.map((m) => [m, data.fields[choice.pair][m].label]), choice.fieldMethod, (value) => { choice.fieldMethod = value; drawField(); });
    byId("field-method-field").hidden = methods.length < 2;
  }
  if (byId("pictures")) {
    const methods = [...new Set(Object.values(data.thumbnails[choice.pair] ?? {}).flatMap((group) => Object.keys(group.columns)))];
    if (!methods.includes(choice.pictureMethod)) choice.pictureMethod = methods[0] ?? null;
    options(byId("picture-method"), methods.map((m) => [m, styles.get(m)?.label ?? m]), choice.pictureMethod, (value) => { choice.pictureMethod = value; drawPictures(); });
  }
}

function drawOne() {
  if (byId("conditions")) drawCondition();
  if (byId("field")) drawField();
  watchScroll();
}

function drawCharts() {
  drawSeverity();
  drawOne();
}

function drawAll() {
  drawCharts();
  if (byId("pictures")) drawPictures();
}

function buildTheme() {
  const button = byId("theme"), root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const name = () => { byId("theme-name").textContent = dark() ? "light" : "dark"; };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  system.addEventListener("change", name);
  button.hidden = false;
  name();
}

/* Printing unfolds all tables and scores. */
let folded = [];
addEventListener("beforeprint", () => { folded = [...document.querySelectorAll("details.table:not([open])")]; folded.forEach((d) => { d.open = true; }); if (byId("more-scores")) byId("more-scores").hidden = false; });
addEventListener("afterprint", () => { folded.forEach((d) => { d.open = false; }); folded = []; if (byId("unfold")?.getAttribute("aria-expanded") === "false") byId("more-scores").hidden = true; });

function start(content) {
  begin(content);
  for (const part of document.querySelectorAll(".needs-script")) part.hidden = false;
  options(byId("pair"), Object.entries(data.pairs), choice.pair, (value) => { choice.pair = value; buildPair(); drawAll(); });
  byId("pair-field").hidden = Object.keys(data.pairs).length < 2;
  if (byId("metric")) options(byId("metric"), data.metrics.map((m) => [m.id, m.title]), choice.metric, (value) => { choice.metric = value; drawSeverity(); });
  if (byId("level")) byId("level").addEventListener("input", (event) => { choice.level = Number(event.target.value); drawOne(); });
  if (innerWidth <= 900) byId("methods").open = false;
  addEventListener("toggle", watchScroll, true); // a folded table has no width until it is opened
  buildUnfold();
  buildPresets();
  buildToggles();
  buildPair();
  drawAll();
  let drawnWidth = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === drawnWidth) return; // phones change the height of the window while scrolling
    drawnWidth = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 150);
  });
  if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView(); // the target was hidden until now
  document.documentElement.dataset.ready = "yes";
}

buildTheme();
if ("DecompressionStream" in window) unpack().then(start);
else byId("too-old").hidden = false;
