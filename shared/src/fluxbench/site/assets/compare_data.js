"use strict";
// The rows that the page holds, numbers as text, and which rows may be held against each other.
const DATA = JSON.parse(document.getElementById("data").textContent);
const ROWS = DATA.rows.target.map((_, at) => {
  const held = name => DATA.rows[name][at];
  const of = name => DATA.tables[name][held(name)];
  const time = regime => {
    const columns = DATA.times[regime];
    if (columns.ms[at] === null) return null;
    const found = {};
    for (const name of Object.keys(columns)) found[name] = columns[name][at];
    return { ...found, reference: DATA.tables.variant[found.reference].name };
  };
  const row = {
    at, target: of("target").name, notebook: of("notebook").name, page: of("notebook").page, look: of("variant"),
    variant: of("variant").name, place: held("workload"), workload: of("workload").name, shape: of("workload").shape,
    flops: of("workload").flops, status: of("status"), source: of("source"), software: of("source").software,
    when: of("when"), reason: held("reason") === null ? "" : of("reason"), peak: held("peak"),
    quantized: held("quantized") === 1, late: held("late") === 1, rel_l2: held("rel_l2"), budget: held("budget"), energy: held("energy"),
    longest: of("target").longest.includes(held("workload")), times: { sustained: time("sustained"), burst: time("burst") },
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

const differing = (one, other) => Object.keys(other).filter(key => one[key] !== other[key]);
const changes = (one, other) => differing(one, other).map(key => `${key} ${one[key]} -> ${other[key]}`);

// Why times from these two sources must not be compared, or null: the rule of fluxbench's fingerprint.not_comparable.
function notComparable(before, now) {
  const names = changes(before.device, now.device);
  if (now.device.device_kind === "cpu") names.push(...changes(before.cores, now.cores));
  if (names.length) {
    const models = `${before.device.device} -> ${now.device.device}`;
    const which = before.device.device === now.device.device ? names.join(", ") : models;
    return `they were measured on different devices: ${which}`;
  }
  if (before.measuring.sha256 !== now.measuring.sha256) {
    return "they were not measured by the same version of fluxbench, and one of them does not say what differs";
  }
  const files = differing(before.method, now.method);
  return files.length
    ? `they were not measured in the same way: ${files.join(" and ")} changed between them` : null;
}

// A row's time over the baseline's, with the widest interval that both allow; or why there is none.
function against(row, base, regime) {
  const own = row.times[regime], its = base.times[regime];
  if (!own || !its) return { why: `${own ? "the baseline" : "this row"} has no ${regime} time` };
  if (row.place !== base.place) return { why: `another workload than the baseline's ${base.workload}` };
  const reason = notComparable(base.source, row.source);
  if (reason) return { why: `not comparable: ${reason}` };
  const together = row.target === base.target && row.source === base.source && own.reference === its.reference;
  const [value, low, high] = together
    ? [own.ratio / its.ratio, own.from / its.to, own.to / its.from]
    : [own.ms / its.ms, own.low / its.high, own.high / its.low];
  return { value, low, high, note: changes(base.software, row.software).join(", ") };
}

const allCapped = (rows, regime) => rows.length > 1 && rows.every(row => row.times[regime]?.capped);

// What a reader must know before some rows are read side by side, a sentence each.
function cautions(shown, regime) {
  const timed = shown.filter(row => row.times[regime]);
  const found = [];
  const devices = new Map();  // what of the sources of their rows decides; of equal ones the first stands for all
  for (const row of timed) {
    const { device, cores, measuring, method } = row.source;
    const key = JSON.stringify([device, cores, measuring, method]);
    if (!devices.has(key)) devices.set(key, row);
  }
  const kinds = [...devices.values()].slice(0, 12);
  const reasons = new Map();
  kinds.forEach((one, at) => kinds.slice(at + 1).forEach(other => {
    const reason = notComparable(one.source, other.source);
    const pair = one.target === other.target ? one.target : `${one.target} and ${other.target}`;
    if (reason) reasons.set(`${pair}: times cannot be compared, since ${reason}.`, true);
  }));
  found.push(...[...reasons.keys()].slice(0, 6));
  if (reasons.size > 6) found.push(`${reasons.size - 6} more pairs cannot be compared; choose fewer targets.`);
  const software = new Map();
  for (const row of timed) {
    const first = software.get(row.source.device.device);
    if (!first) { software.set(row.source.device.device, row); continue; }
    const other = changes(first.software, row.software);
    if (other.length && first.source !== row.source) {
      const words = `${row.source.device.device}: rows differ in ${other.join(", ")}. Their times can be compared.`;
      if (!found.includes(words) && found.length < 12) found.push(words);
    }
  }
  const limits = new Map();
  for (const { source: { device: { device }, power: { limit } } } of timed) {
    if (limit !== "none") limits.set(device, (limits.get(device) ?? new Set()).add(limit));
  }
  for (const [device, its] of limits) {
    if (its.size > 1) found.push(`${device}: power limits differ (${[...its].join(", ")}); times, sustained ones most, depend on them.`);
  }
  if (allCapped(timed, regime)) {
    found.push("In every row the caps of time and processes came before the precision that is asked for.");
  }
  if (new Set(timed.map(row => row.place)).size > 1) {
    found.push("Rows of different workloads are different work: their times cannot be compared, their TFLOP/s can.");
  }
  if (new Set(timed.map(row => row.times[regime].reference)).size > 1) {
    found.push("Ratios are against different references.");
  }
  if (new Set(timed.map(row => row.quantized)).size > 1) {
    found.push("Quantized kernels have a looser error budget: they are not equally correct.");
  }
  return found;
}
