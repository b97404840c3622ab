"use strict";
// The choice, kept in the address; the rows that it leaves; the table. All text comes in as text, never as markup.
const STEP = 200;  // rows that are drawn at once
const byId = id => document.getElementById(id);
const names = column => [...new Set(ROWS.map(row => row[column]))];
const TARGETS = names("target"), VARIANTS = names("variant"), WORKLOADS = names("workload");
const FRESH = { target: null, variant: null, workload: "longest", regime: "sustained", status: "", q: "", sort: "ms",
  base: "", chart: "ms" };
let state = { ...FRESH };
let limit = STEP;

function element(name, properties, ...inside) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside);
  return made;
}

const time = row => row.times[state.regime];
const tflops = row => time(row) && row.flops / time(row).ms / 1e9;
const base = () => ROWS.find(row => row.id === state.base);
const vs = row => against(row, base(), state.regime);
let omitted = false;  // whether c would be at every time that is shown, so that the notes say it once
const isLaunchBound = row => row.launchBound && state.regime === "sustained";
const symbols = row => (time(row).capped && !omitted ? "c" : "") + (isLaunchBound(row) ? "h" : "")
  + (time(row).replayed ? "g" : "");
const COLUMNS = [
  { key: "variant", title: "variant", value: row => row.variant },
  { key: "target", title: "target", value: row => row.target, draw: row => row.page
    ? element("a", { href: row.page.split("/").map(encodeURIComponent).join("/"), textContent: row.target }) : row.target },
  { key: "workload", title: "workload", value: row => row.workload },
  { key: "status", title: "status", value: row => row.status },
  { key: "ms", title: "time, ms", number: true, value: row => time(row)?.ms,
    draw: row => fixed(time(row).ms, places(time(row).ms, time(row).low, time(row).high)) },
  { key: "interval", title: "95% interval, ms", number: true, value: row => time(row) && time(row).high / time(row).low,
    draw: row => [brackets(time(row).ms, time(row).low, time(row).high), symbols(row)].filter(Boolean).join(" ") },
  { key: "ratio", title: "over reference", number: true, value: row => time(row)?.ratio,
    draw: row => row.variant === time(row).reference
      ? "1, the reference" : plusMinus(time(row).ratio, time(row).ratio_low, time(row).ratio_high) },
  { key: "against", title: "over baseline", number: true, value: row => base() && vs(row).value, draw: row => {
    const { why, value, low, high, note } = vs(row);
    if (why) return element("span", { className: "why", textContent: why });
    const text = row === base() ? "1, the baseline" : `${number(value)} ${brackets(value, low, high)}`;
    return note ? element("span", { className: "why", textContent: `${text}; ${note}` }) : text;
  } },
  { key: "tflops", title: "TFLOP/s", number: true, value: tflops, draw: row => number(tflops(row)) },
  { key: "peak", title: "% of 16-bit peak", number: true, value: row => row.peak && time(row) && tflops(row) / row.peak,
    draw: row => fixed(100 * tflops(row) / row.peak, 1) },
  { key: "rel_l2", title: "rel. L2 error", number: true, value: row => row.rel_l2, draw: row => number(row.rel_l2) },
  { key: "energy", title: "energy, mJ", number: true, value: row => row.energy, draw: row => number(row.energy) },
  { key: "driver", title: "driver", value: row => row.software.driver },
  { key: "torch", title: "torch", value: row => row.software.torch },
  { key: "when", title: "measured at, UTC", value: row => row.when,
    draw: row => row.when.replace("T", " ").replace(/([+]00:00|Z)$/, "") },
];
const OF_TIME = ["ms", "interval", "ratio", "against", "tflops", "peak", "rel_l2", "energy"];

function read() {
  const asked = new URLSearchParams(location.hash.slice(1));
  state = { ...FRESH };
  for (const [key, value] of asked) if (key in FRESH && typeof FRESH[key] === "string") state[key] = value;
  for (const key of ["target", "variant"]) if (asked.has(key)) state[key] = new Set(asked.getAll(key));
  if (!["sustained", "burst"].includes(state.regime)) state.regime = FRESH.regime;
  if (!Object.hasOwn(METRICS, state.chart)) state.chart = FRESH.chart;
  if (!["longest", "", ...WORKLOADS].includes(state.workload)) state.workload = FRESH.workload;
  if (!["", "PASSED", "failed"].includes(state.status)) state.status = FRESH.status;
  if (!COLUMNS.some(column => column.key === state.sort.replace(/^-/, ""))) state.sort = FRESH.sort;
  if (!base()) state.base = FRESH.base;
}

function write() {
  const choice = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (value instanceof Set) for (const name of value.size ? value : [""]) choice.append(key, name);
    else if (value !== FRESH[key]) choice.set(key, value);
  }
  history.replaceState(null, "", choice.size ? `#${choice}` : location.pathname + location.search);
}

function chosen() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const left = ROWS.filter(row => (!state.target || state.target.has(row.target))
    && (!state.variant || state.variant.has(row.variant))
    && (state.workload === "longest" ? row.longest : !state.workload || row.workload === state.workload)
    && (!state.status || (row.status === "PASSED") === (state.status === "PASSED"))
    && words.every(word => row.words.includes(word)));
  const back = state.sort.startsWith("-") ? -1 : 1;
  const { value } = COLUMNS.find(column => column.key === state.sort.replace(/^-/, ""));
  const keyed = left.map(row => [value(row) ?? null, row]);
  const missing = value => value === null || value === "none";
  const unranked = row => Number(state.sort === FRESH.sort && isLaunchBound(row));
  keyed.sort(([one, first], [other, second]) => missing(one) - missing(other) || unranked(first) - unranked(second)
    || (one < other ? -back : one > other ? back : 0) || first.index - second.index);
  return keyed.map(([, row]) => row);
}

function baselineButton(row) {
  const pressed = row.id === state.base;
  const button = element("button", { type: "button", className: "base", textContent: "Baseline" });
  button.dataset.id = row.id;
  button.setAttribute("aria-pressed", pressed);
  button.setAttribute("aria-label", `Baseline: ${row.variant}, ${row.target}, ${row.workload}`);
  button.addEventListener("click", () => { state.base = pressed ? "" : row.id; update(); });
  return button;
}

function lineOf(row, columns) {
  const made = element("tr", { className: row.status === "PASSED" ? "" : "failed" });
  for (const column of columns) {
    const { key } = column;
    const cell = element(key === "variant" ? "th" : "td", { className: column.number ? "number" : "" });
    const has = (column.value(row) ?? null) !== null || (key === "against" && base());
    if (key === "variant") {
      cell.scope = "row";
      cell.append(row.variant, ...(row.quantized ? [element("small", { textContent: " quantized" })] : []));
      if (row.status === "PASSED") cell.append(" ", baselineButton(row));
    } else if (row.status !== "PASSED" && key === OF_TIME[0]) {
      cell.colSpan = columns.filter(other => OF_TIME.includes(other.key)).length;
      cell.className = "wide";
      cell.textContent = row.reason;
    } else if (row.status !== "PASSED" && OF_TIME.includes(key)) {
      continue;
    } else {
      cell.append(has ? (column.draw ?? column.value)(row) : "–");
    }
    made.append(cell);
  }
  return made;
}

function update() {
  write();
  const rows = chosen(), here = document.activeElement?.dataset?.id;
  omitted = allCapped(rows.filter(time), state.regime);
  const columns = COLUMNS.filter(column => column.key !== "against" || state.base);
  for (const head of document.querySelectorAll("thead th")) {
    const { key } = head.dataset;
    head.hidden = key === "against" && !state.base;
    head.ariaSort = state.sort === key ? "ascending" : state.sort === `-${key}` ? "descending" : "none";
  }
  document.querySelector("tbody").replaceChildren(...rows.slice(0, limit).map(row => lineOf(row, columns)));
  if (here) [...document.querySelectorAll(".base")].find(button => button.dataset.id === here)?.focus();
  byId("more").hidden = rows.length <= limit;
  byId("more").textContent = `Show ${Math.min(STEP, rows.length - limit)} more rows`;
  const passed = rows.filter(row => row.status === "PASSED").length;
  const times = rows.filter(time).length;
  byId("count").textContent = `${fixed(rows.length, 0)} of ${fixed(ROWS.length, 0)} rows, ${fixed(passed, 0)} PASSED, `
    + `${fixed(times, 0)} with a ${state.regime} time` + (base() ? `; baseline: ${base().variant}, ${base().target}, ${base().workload}` : "")
    + [["target", TARGETS], ["variant", VARIANTS]].flatMap(([key, all]) => [...(state[key] ?? [])]
      .filter(name => name && !all.includes(name)).map(name => `; there is no ${key} “${name}” here`)).join("");
  const sentences = cautions(rows, state.regime);
  byId("notes").hidden = !sentences.length;
  byId("notes").querySelector("ul").replaceChildren(...sentences.map(words => element("li", { textContent: words })));
  drawChart(byId("chart"), rows, state.chart, state.regime);
}

function show() {  // the state in the controls
  for (const [key, all] of [["target", TARGETS], ["variant", VARIANTS]]) {
    for (const box of byId(`${key}s`).querySelectorAll("input")) box.checked = !state[key] || state[key].has(box.value);
    if (key === "variant") byId("chosen").textContent = `${state[key] ? state[key].size : all.length} of ${all.length}`;
  }
  for (const radio of document.querySelectorAll("[name=regime]")) radio.checked = radio.value === state.regime;
  for (const [id, key] of [["workload", "workload"], ["status", "status"], ["search", "q"], ["metric", "chart"]]) {
    byId(id).value = state[key];
  }
}

function set(key, value) {
  state[key] = value;
  limit = STEP;
  show();
  update();
}

function boxes(key, all) {
  const some = () => {
    const on = new Set([...byId(`${key}s`).querySelectorAll("input:checked")].map(box => box.value));
    set(key, on.size === all.length ? null : on);
  };
  byId(`${key}s`).append(...all.map(name => {
    const box = element("input", { type: "checkbox", value: name });
    box.addEventListener("change", some);
    return element("label", {}, box, ` ${name}`);
  }));
}

function begin() {
  boxes("target", TARGETS);
  boxes("variant", VARIANTS);
  const option = (value, textContent) => element("option", { value, textContent });
  byId("workload").append(option("longest", "the longest of each target"), option("", "all"), ...WORKLOADS.map(w => option(w, w)));
  byId("metric").append(...Object.entries(METRICS).map(([key, metric]) => option(key, metric.title)));
  document.querySelector("thead tr").append(...COLUMNS.map(({ key, title, number: right }) => {
    const button = element("button", { type: "button", textContent: title });
    button.addEventListener("click", () => set("sort", state.sort === key ? `-${key}` : key));
    const head = element("th", { scope: "col", className: right ? "number" : "" }, button);
    head.dataset.key = key;
    return head;
  }));
  for (const radio of document.querySelectorAll("[name=regime]")) radio.addEventListener("change", () => set("regime", radio.value));
  for (const [id, key] of [["workload", "workload"], ["status", "status"], ["metric", "chart"]]) {
    byId(id).addEventListener("change", () => set(key, byId(id).value));
  }
  byId("search").addEventListener("input", () => { state.q = byId("search").value; limit = STEP; update(); });
  byId("all").addEventListener("click", () => set("variant", null));
  byId("none").addEventListener("click", () => set("variant", new Set()));
  byId("reset").addEventListener("click", () => { state = { ...FRESH }; limit = STEP; show(); update(); });
  byId("more").addEventListener("click", () => { limit += STEP; update(); });
  addEventListener("hashchange", () => { read(); show(); update(); });
  read();
  show();
  update();
}

begin();
