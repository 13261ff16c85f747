// The rows, those of one choice of size and device, and the details of a program on demand.

const ROWS = JSON.parse(byId("rows").textContent);
const GROUPS = JSON.parse(byId("groups").textContent);

const ARMS = {
  "eager": ["Eager", "The program as it came, one kernel an operator"],
  "inductor-plain": ["Given", "The given program through Inductor, its pattern matcher off"],
  "inductor": ["Inductor", "Stock Inductor, with its own patterns"],
  "inductor-freezing": ["Freezing", "Stock Inductor with freezing: weights are constants"],
  "sharing": ["Sharing", "No rules: equal values are computed once, what is not read is left out"],
  "greedy": ["Greedy", "Our rules, greedily: one sweep in Inductor's order"],
  "fixpoint": ["Fixpoint", "Our rules, greedily, until nothing changes"],
  "backtracking": ["Backtracking", "Our rules, over a queue of whole programs, as TASO does it"],
  "saturation": ["Saturation", "Our rules, equality saturation"],
  "saturation-freezing": ["Sat., freezing", "The program of saturation, through Inductor with freezing"],
  "saturation-inductor": ["Saturation+", "Equality saturation with our rules and Inductor's own"],
};
const ORDER = Object.keys(ARMS);
const SAME = 1e-3; // the share by which predicted times may differ and count as equal

const armName = (arm) => (ARMS[arm] || [arm])[0];
const armAbout = (arm) => (ARMS[arm] || ["", arm])[1];
const armColour = (arm) => `var(--arm-${Math.max(0, ORDER.indexOf(arm))})`;
const distinct = (values) => [...new Set(values)];

// Of the seeds of one arm, the row in the middle by predicted time.
function middle(rows) {
  const good = rows.filter((r) => !r.error).sort((a, b) => (a.predicted ?? 0) - (b.predicted ?? 0));
  const from = good.length ? good : rows;
  return from[Math.floor((from.length - 1) / 2)];
}

// What is shown: the arms that there are, and a row for each entry and arm.
function chosen(state) {
  const rows = ROWS.filter((r) => r.size === state.size && r.profile === state.profile);
  const found = new Map();
  for (const row of rows) {
    if (!found.has(row.entry)) found.set(row.entry, { entry: row.entry, set: row.set, about: row.about, all: {} });
    const all = found.get(row.entry).all;
    (all[row.arm] = all[row.arm] || []).push(row);
  }
  const entries = [...found.values()];
  for (const entry of entries) {
    entry.rows = Object.fromEntries(Object.entries(entry.all).map(([arm, rs]) => [arm, middle(rs)]));
  }
  const arms = distinct(rows.map((r) => r.arm)).sort((a, b) => rank(a) - rank(b));
  return { entries, arms };
}

function rank(arm) {
  const place = ORDER.indexOf(arm);
  return place < 0 ? ORDER.length : place;
}

const predicted = (row) => (row && !row.error && row.predicted > 0 ? row.predicted : null);

// The measured time by threads, the fewest first: [threads, {median, low, high}].
function measured(row) {
  const by = (row && !row.error && row.measured) || {};
  return Object.entries(by).filter(([, m]) => m && m.median > 0).sort((a, b) => a[0] - b[0]);
}

// How many times as fast `arm` is predicted to be as `base`, for each program that has both.
function ratios(entries, base, arm) {
  return entries.map((e) => [e, predicted(e.rows[base]), predicted(e.rows[arm])])
    .filter(([, a, b]) => a !== null && b !== null)
    .map(([entry, a, b]) => ({ entry, ratio: a / b }));
}

function geometric(values) {
  return Math.exp(values.reduce((sum, v) => sum + Math.log(v), 0) / values.length);
}

function counted(found) {
  const better = found.filter((f) => f.ratio > 1 + SAME).length;
  const worse = found.filter((f) => f.ratio < 1 - SAME).length;
  return { better, worse, equal: found.length - better - worse };
}

// The measured pairs of two arms at the fewest threads; a difference counts only outside both
// intervals, and beyond what two compilations of equal kernels differ by.
function measuredPairs(entries, base, arm) {
  const pairs = [];
  for (const entry of entries) {
    const [a, b] = [measured(entry.rows[base])[0], measured(entry.rows[arm])[0]];
    if (!a || !b || a[0] !== b[0]) continue;
    const faster = b[1].high * (1 + PLACES) < a[1].low, slower = b[1].low > a[1].high * (1 + PLACES);
    const sure = faster ? 1 : slower ? -1 : 0;
    pairs.push({ entry, ratio: a[1].median / b[1].median, sure });
  }
  return pairs;
}

const UNPACKED = new Map();

// The details of one program: for an arm and device its kernels, graphs and e-graph.
async function details(entry, size) {
  const place = GROUPS.findIndex((g) => g[0] === entry && g[1] === size);
  if (place < 0) return null;
  if (!UNPACKED.has(place)) {
    const text = byId(`details-${place}`).textContent.trim();
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    UNPACKED.set(place, new Response(stream).json());
  }
  const { parts, runs } = await UNPACKED.get(place);
  const part = (number) => parts[number];
  return (row) => {
    const run = row && runs.find((r) => r.arm === row.arm && r.profile === row.profile && r.seed === row.seed);
    return run ? {
      kernels: part(run.kernel_list) || [],
      before: part(run.graph_before),
      after: part(run.graph_after),
      egraph: part(run.egraph),
      onlyBefore: new Set(part(run.only_before)),
      onlyAfter: new Set(part(run.only_after)),
    } : null;
  };
}
