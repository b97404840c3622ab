"use strict";
// The chart: of each target and workload a panel, of each row a line with its name, its value and its interval.
const SVG = "http://www.w3.org/2000/svg";
const PANELS = 6, LINES = 16, LINE = 38;
const WIDE = 2;  // a row whose interval spans more than this factor is not drawn beside others that do not
const METRICS = {
  ms: { title: "time, ms", axis: "ms a call", of: time => [time.ms, time.low, time.high] },
  ratio: { title: "time over the reference's", axis: "time over the reference's",
    of: time => [time.ratio, time.ratio_low, time.ratio_high] },
  tflops: { title: "TFLOP/s", axis: "TFLOP/s",
    of: (time, row) => [time.ms, time.high, time.low].map(ms => row.flops / ms / 1e9) },
  gb_s: { title: "GB/s", axis: "GB/s, each input read once, each output written once",
    of: (time, row) => [time.ms, time.high, time.low].map(ms => row.bytes / ms / 1e6) },
  rel_l2: { title: "error, relative L2", axis: "relative L2 error", of: (_, row) => [row.rel_l2, row.rel_l2, row.rel_l2] },
  energy: { title: "energy, mJ", axis: "mJ a call, sustained", of: (_, row) => [row.energy, row.energy, row.energy] },
};

function svg(name, attributes, ...inside) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

// Places in percent of the width, and ticks: from zero where that shows all, else logarithmic.
function scale(low, high) {
  const powers = value => Math.floor(Math.log10(value));
  if (high / low <= 8) {
    const step = [1, 2, 5, 10, 20].map(multiple => multiple * 10 ** (powers(high) - 1)).find(size => high / size <= 5);
    const count = Math.ceil(high / step);
    const ticks = Array.from({ length: count + 1 }, (_, index) => index * step);
    return { place: value => 2 + value / (count * step) * 95, ticks, words: "" };
  }
  const all = [];
  for (let power = powers(low) - 1; power <= powers(high) + 1; power++) all.push(...[1, 2, 5].map(n => n * 10 ** power));
  const first = Math.max(...all.filter(tick => tick <= low)), last = Math.min(...all.filter(tick => tick >= high));
  let ticks = all.filter(tick => tick >= first && tick <= last);
  while (ticks.length > 6) ticks = ticks.filter((_, index) => index % 2 === 0);
  const span = Math.log(last / first);
  return { place: value => 2 + Math.log(value / first) / span * 95, ticks, words: " (logarithmic)" };
}

function line(row, values, place, top) {
  const [value, low, high] = values;
  const colour = `var(--s${row.look.series})`, y = top + 27;
  const text = low < high ? plusMinus(value, low, high) : number(value);
  const [, middle, rest] = text.match(/^(\S+)(.*)$/);
  const wide = words => svg("tspan", { class: "wide" }, words);  // what a phone has no room for
  const kind = [row.quantized ? "quantized" : "", isLaunchBound(row) ? "h" : ""].filter(Boolean).join(", ");
  const explained = isLaunchBound(row) ? [wide(": launch-bound")] : [];
  const note = kind ? [svg("tspan", { class: "kind" }, ` (${kind}`, ...explained, ")")] : [];
  const mark = { d: row.look.path, fill: row.look.full ? colour : "var(--ground)", stroke: colour, "stroke-width": 1.5 };
  return svg("g", {},
    svg("title", {}, `${row.variant}, ${row.target}, ${row.workload}: ${text}`),
    svg("text", { class: "name", x: 0, y: top + 14 }, row.variant, ...note),
    svg("text", { class: "value", x: "100%", y: top + 14, "text-anchor": "end" }, middle, wide(rest)),
    svg("line", { class: "track", x1: "2%", x2: "97%", y1: y, y2: y }),
    svg("line", { x1: place(low) + "%", x2: place(high) + "%", y1: y, y2: y, stroke: colour, "stroke-width": 3 }),
    svg("svg", { x: place(value) + "%", y, overflow: "visible" }, svg("path", mark)));
}

function panel(rows, metric, regime) {
  const every = rows.map(row => [row, METRICS[metric].of(row.times[regime], row)]);
  const certain = every.filter(([, [, low, high]]) => high <= WIDE * low);
  const drawable = certain.length ? certain : every;
  const shown = drawable.slice(0, LINES);
  const ends = shown.flatMap(([, values]) => values);
  const { place, ticks, words } = scale(Math.min(...ends), Math.max(...ends));
  const foot = 4 + LINE * shown.length;
  const [first] = rows;
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const left = drawable.length - shown.length, wide = every.length - drawable.length;
  caption.textContent = `${first.target}, ${first.workload}: ${first.shape}`
    + (left ? `; ${left} more are in the table` : "")
    + (wide ? `; ${wide} left out, whose 95% intervals span more than a factor of ${WIDE}` : "");
  const axis = METRICS[metric].axis + (metric === "energy" || metric === "rel_l2" ? "" : `, ${regime}`) + words;
  const drawn = svg("svg", {
    class: "chart", role: "img", width: "100%", height: foot + 40,
    "aria-label": `${axis}, ${first.target}, ${first.workload}; the table holds the numbers`,
  });
  for (const tick of ticks) {
    const x = place(tick) + "%";
    const anchor = place(tick) < 4 ? "start" : place(tick) > 95 ? "end" : "middle";
    drawn.append(svg("line", { class: "grid", x1: x, x2: x, y1: 4, y2: foot }));
    drawn.append(svg("text", { class: "tick", x, y: foot + 15, "text-anchor": anchor }, fixed(tick, 0, 6)));
  }
  shown.forEach(([row, values], index) => drawn.append(line(row, values, place, 4 + LINE * index)));
  drawn.append(svg("text", { class: "tick", x: "2%", y: foot + 33 }, axis));
  figure.append(caption, drawn);
  return figure;
}

function drawChart(holder, rows, metric, regime) {
  const panels = new Map();
  for (const row of rows) {
    const time = row.times[regime];
    if (!time || !(METRICS[metric].of(time, row)[0] > 0)) continue;
    const key = `${row.target}\n${row.place}`;
    if (!panels.has(key)) panels.set(key, []);
    panels.get(key).push(row);
  }
  const inOrder = [...panels.values()].sort(([one], [other]) =>
    TARGETS.indexOf(one.target) - TARGETS.indexOf(other.target) || one.flops - other.flops);
  const shown = inOrder.slice(0, PANELS).map(ofPanel => panel(ofPanel, metric, regime));
  const note = document.createElement("p");
  note.className = "about";
  if (!shown.length) note.textContent = "No row that is chosen has such a number.";
  if (panels.size > PANELS) note.textContent = `${panels.size - PANELS} more targets and workloads are in the table.`;
  holder.replaceChildren(...shown, ...(note.textContent ? [note] : []));
}
