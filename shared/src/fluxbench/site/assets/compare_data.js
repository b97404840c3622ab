"use strict";
// The rows that the page holds, numbers as text, and which rows may be compared.
const DATA = JSON.parse(document.getElementById("data").textContent);
const ROWS = DATA.rows.target.map((_, index) => {
  const cell = name => DATA.rows[name][index];
  const of = name => DATA.tables[name][cell(name)];
  const time = regime => {
    const columns = DATA.times[regime];
    if (columns.ms[index] === null) return null;
    const values = {};
    for (const name of Object.keys(columns)) values[name] = columns[name][index];
    return { ...values, reference: DATA.tables.variant[values.reference].name };
  };
  const row = {
    index, target: of("target").name, notebook: of("notebook").name, page: of("notebook").page, look: of("variant"),
    variant: of("variant").name, place: cell("workload"), workload: of("workload").name, shape: of("workload").shape,
    flops: of("workload").flops, bytes: of("workload").bytes, status: of("status"), source: of("source"), software: of("source").software,
    when: of("when"), reason: cell("reason") === null ? "" : of("reason"), peak: cell("peak"),
    quantized: cell("quantized") === 1, launchBound: cell("launch_bound") === 1, rel_l2: cell("rel_l2"), energy: cell("energy"),
    longest: of("target").longest.includes(cell("workload")), times: { sustained: time("sustained"), burst: time("burst") },
  };
  row.id = [row.target, row.notebook, row.variant, row.workload].join("/");
  row.words = [row.variant, row.target, row.workload, row.status, row.reason, ...Object.values(row.software)]
    .join("\n").toLowerCase();
  return row;
});

const decimals = (value, digits = 3) =>
  value ? Math.min(20, Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))))) : digits - 1;
const fixed = (value, least, most = least) =>
  value.toLocaleString("en-US", { minimumFractionDigits: least, maximumFractionDigits: most });
const number = (value, digits = 3) => fixed(value, decimals(value, digits));

function places(value, low, high) {
  const half = (high - low) / 2;
  const own = decimals(value);
  return half ? Math.max(own, Math.min(decimals(half, 1), own + 2)) : own;
}

function brackets(value, low, high) {
  const shown = places(value, low, high);
  return `[${fixed(low, shown)}, ${fixed(high, shown)}]`;
}

// As fluxbench's formatting.plus_minus: ± only where it does not hide where the interval lies.
function plusMinus(value, low, high) {
  const shown = places(value, low, high), half = (high - low) / 2;
  const skew = Math.abs(low + high - 2 * value);
  return half > 0.05 * Math.abs(value) || skew > 1.000001 * 10 ** -shown
    ? `${fixed(value, shown)} ${brackets(value, low, high)}` : `${fixed(value, shown)} ±${fixed(half, shown)}`;
}

// Of a key that only one side has, nothing is known.
const differing = (one, other) => Object.keys(other).filter(key => key in one && one[key] !== other[key]);
const changes = (one, other) => differing(one, other).map(key => `${key} ${one[key]} -> ${other[key]}`);

// On which different devices two sources were measured, or null.
function otherDevice(before, now) {
  const onCpu = now.device.device_kind === "cpu";
  const [was, is] = [before, now].map(({ device, cpu }) => (onCpu ? { ...device, ...cpu } : device));
  const keys = differing(was, is);
  const side = values => keys.includes("device") ? values.device : keys.map(key => `${key} ${values[key]}`).join(", ");
  return keys.length ? `they were measured on different devices: ${side(was)} -> ${side(is)}` : null;
}

// Why times from these two sources must not be compared, or null: the rule of fluxbench's fingerprint.not_comparable.
function notComparable(before, now, regime) {
  const reason = otherDevice(before, now);
  if (reason) return reason;
  const version = regime === "burst" ? "burst" : "version";  // of some versions burst times are taken as of others
  const same = before.method[version] === now.method[version] && before.method.known;
  return same ? null
    : `they were not measured in the same way: method version ${before.method.words} and ${now.method.words}`;
}

// A row's time over the baseline's, with the widest interval that both allow; or why there is none.
function against(row, base, regime) {
  const own = row.times[regime], other = base.times[regime];
  if (!own || !other) return { why: `${own ? "the baseline" : "this row"} has no ${regime} time` };
  if (row.place !== base.place) return { why: `another workload than the baseline's ${base.workload}` };
  const reason = notComparable(base.source, row.source, regime);
  if (reason) return { why: `not comparable: ${reason}` };
  if (row.variant === base.variant && own.replayed !== other.replayed) {
    const [was, is] = [other, own].map(one => (one.replayed ? "as CUDA graphs" : "as the host launches them"));
    return { why: `not comparable: calls were timed ${was}, and now ${is}` };
  }
  const together = row.target === base.target && row.source === base.source && own.reference === other.reference;
  const [value, low, high] = together
    ? [own.ratio / other.ratio, own.ratio_low / other.ratio_high, own.ratio_high / other.ratio_low]
    : [own.ms / other.ms, own.low / other.high, own.high / other.low];
  const cards = changes({ card: base.source.card.id }, { card: row.source.card.id });
  return { value, low, high, note: [...cards, ...changes(base.software, row.software)].join(", ") };
}

const allCapped = (rows, regime) => rows.length > 1 && rows.every(row => row.times[regime]?.capped);

// What a reader must know before some rows are read side by side, a sentence each.
function cautions(shown, regime) {
  const timed = shown.filter(row => row.times[regime]);
  const sentences = [];
  const sources = new Map();  // by what decides: the first row stands for all, and the notebooks that they are of
  for (const row of timed) {
    const { device, cpu, method } = row.source;
    const key = JSON.stringify([row.target, device, cpu, method.version]);
    if (!sources.has(key)) sources.set(key, { target: row.target, source: row.source, notebooks: new Set() });
    sources.get(key).notebooks.add(row.notebook);
  }
  const first = [...sources.values()].slice(0, 24).sort((one, other) =>
    one.target < other.target ? -1 : Number(one.target > other.target));
  const within = new Set(), across = new Set();  // the first are less obvious
  first.forEach((one, index) => first.slice(index + 1).forEach(other => {
    const reason = notComparable(one.source, other.source, regime);
    const same = one.target === other.target, byTarget = !same && otherDevice(one.source, other.source);
    const side = ({ target, notebooks }) => byTarget ? target : `${target} (${[...notebooks].join(", ")})`;
    const pair = `${side(one)} and ${side(other)}`;
    if (reason) (same ? within : across).add(`${pair}: times cannot be compared, since ${reason}.`);
  }));
  const pairs = [...within, ...across];
  sentences.push(...pairs.slice(0, 6));
  if (pairs.length > 6) sentences.push(`${pairs.length - 6} more pairs cannot be compared; choose fewer targets.`);
  const software = new Map();
  for (const row of timed) {
    const { device } = row.source.device;
    const other = software.get(device);
    if (!other) { software.set(device, row); continue; }
    const changed = changes(other.software, row.software);
    if (changed.length && other.source !== row.source) {
      const sentence = `${device}: rows differ in ${changed.join(", ")}. Their times can be compared.`;
      if (!sentences.includes(sentence) && sentences.length < 12) sentences.push(sentence);
    }
  }
  const limits = new Map(), cards = new Map();
  for (const { source: { card: { id: card }, device: { device }, power: { limit } } } of timed) {
    if (limit !== "none") limits.set(device, (limits.get(device) ?? new Set()).add(limit));
    if (card !== "none") cards.set(device, (cards.get(device) ?? new Set()).add(card));
  }
  for (const [device, values] of cards) {
    if (values.size > 1) sentences.push(`${device}: rows are of ${values.size} cards. Times on two cards of one model may differ by 3%.`);
  }
  for (const [device, values] of limits) {
    if (values.size > 1) {
      sentences.push(`${device}: power limits differ (${[...values].join(", ")}); times, sustained ones most, depend on them.`);
    }
  }
  if (allCapped(timed, regime)) {
    sentences.push("No row converged: in each the limits of time and processes came before the target precision.");
  }
  if (new Set(timed.map(row => row.place)).size > 1) {
    sentences.push("Rows of different workloads are different work: their times cannot be compared, their TFLOP/s can.");
  }
  if (new Set(timed.map(row => row.times[regime].reference)).size > 1) {
    sentences.push("Ratios are against different references.");
  }
  if (new Set(timed.map(row => row.quantized)).size > 1) {
    sentences.push("Quantized kernels have a looser error budget: they are not equally correct.");
  }
  return sentences;
}
