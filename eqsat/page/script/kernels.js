// Of one program: its arms, each with its kernels as one stacked bar; what the rules did.

const KINDS = { extern: "a call of a library", reduction: "generated, with a reduction", pointwise: "generated, pointwise" };

function kernelBars(table, entry, of) {
  const runs = table.arms.map((arm) => [arm, entry.rows[arm]]).filter(([, row]) => row);
  const sums = runs.map(([, row]) => ((of(row) || {}).kernels || []).reduce((sum, k) => sum + (k.seconds || 0), 0));
  const most = Math.max(...sums, ...runs.map(([, row]) => predicted(row) || 0)) || 1;
  return h("div", { class: "panel" }, h("h3", {}, "Kernels"),
    h("div", { class: "legend" }, Object.keys(KINDS).map((k) => h("span", { tip: KINDS[k] }, h("i", { class: `kind ${k}` }), k)),
      h("span", { tip: "The predicted time of a call: where launching the kernels takes longer than running them, it waits for the launches" },
        h("i", { class: "mark" }), "predicted time of the call")),
    runs.map(([arm, row], i) => bar(arm, row, of(row), sums[i], most)));
}

function bar(arm, row, run, sum, most) {
  const kernels = (run && run.kernels) || [];
  const box = (k, i) => h("i", {
    class: `kind ${k.kind in KINDS ? k.kind : "other"}`, style: { width: wide((k.seconds || 0) / most) },
    tip: `kernel ${i + 1} of ${kernels.length}: ${k.kind}, ${time(k.seconds)}, ${amount(k.bytes, "B")}\n${counts(k.operators)}`,
  });
  return h("div", { class: "arm-bar" },
    h("div", { class: "arm-name", tip: armAbout(arm) }, armName(arm)),
    h("div", { class: "stack" }, kernels.map(box),
      predicted(row) === null ? null : h("b", { class: "mark", style: { left: wide(row.predicted / most) } })),
    h("div", { class: "arm-time" }, row.error ? h("span", { class: "bad", tip: row.error }, "error") : time(row.predicted),
      h("small", {}, row.error || row.kernels === null ? "" : `${plural(row.kernels, "kernel")}, busy ${time(sum)}`)));
}

function counts(operators) {
  const found = new Map();
  for (const name of operators || []) found.set(name, (found.get(name) || 0) + 1);
  return [...found].map(([name, n]) => (n > 1 ? `${name} ×${n}` : name)).join(", ");
}

function figures(table, entry) {
  const runs = table.arms.map((arm) => entry.rows[arm]).filter(Boolean);
  const threads = distinct(runs.flatMap((r) => measured(r).map(([n]) => n))).sort();
  const interval = (row, n) => {
    const m = row.measured && row.measured[n];
    return m ? [time(m.median), h("small", {}, `${time(m.low)} to ${time(m.high)}`)] : "–";
  };
  const spent = (row) => Object.values(row.optimizer || {}).reduce((sum, v) => sum + v, 0);
  const columns = [
    ["predicted", "", (r) => time(r.predicted)],
    ...threads.map((n) => [`measured, ${plural(Number(n), "thread")}`, "On a CPU, through Inductor: the median and its 95 % confidence interval", (r) => interval(r, n)]),
    ["kernels", "", (r) => whole(r.kernels)], ["traffic", "Bytes that the kernels read and write", (r) => amount(r.bytes, "B")],
    ["FLOP", "Of products, convolutions and attention", (r) => amount(r.flops, "")],
    ["largest error", "From eager, relative to the largest output", (r) => (r.max_error === null ? "–" : r.max_error ? r.max_error.toExponential(1) : "0")],
    ["proven gap", "How much cheaper, by the extractor's own prices, a better choice from this e-graph could be at most", (r) => (r.gap === null || !r.arm.startsWith("saturation") ? "–" : r.gap === 0 ? "0, proven" : share(r.gap))],
    ["e-nodes", "", (r) => whole(r.enodes)], ["stopped", "", (r) => r.stop || "–"],
    ["optimizer", "Seconds of the optimizer, all steps", (r) => (spent(r) ? time(spent(r)) : "–")],
  ];
  return h("div", { class: "panel" }, h("h3", {}, "Figures"), h("div", { class: "scroll" }, h("table", { class: "figures" },
    h("thead", {}, h("tr", {}, h("th", {}, "Arm"), columns.map(([name, tip]) => h("th", { tip }, name)))),
    h("tbody", {}, runs.map((row) => h("tr", {}, h("th", { tip: armAbout(row.arm) }, armName(row.arm)),
      row.error ? h("td", { colspan: columns.length, class: "bad wide" }, row.error)
        : columns.map(([, , text]) => h("td", {}, text(row)))))))),
    runs.filter((r) => r.kept).map((r) => h("p", { class: "quiet" }, `${armName(r.arm)} gave the program back: ${r.kept}`)));
}

// What each rule did; where a row says what a rule saves, that as a waterfall.
function ruleBars(row, from) {
  const rules = [...(row.rules || [])].sort((a, b) => b.admitted - a.admitted || b.matches - a.matches);
  if (!rules.length) return h("div", { class: "panel" }, h("h3", {}, "Rules"), h("p", { class: "quiet" }, `No rule matched in ${armName(row.arm)}.`));
  if (rules.some((r) => r.saved > 0) && from) return waterfall(rules.filter((r) => r.saved > 0), from, row.predicted);
  const most = Math.max(1, ...rules.map((r) => r.matches));
  return h("div", { class: "panel" }, h("h3", {}, `Rules of ${armName(row.arm)}`),
    h("p", { class: "quiet" }, `${plural(rules.length, "rule")} matched. Full: matches that were admitted; pale: all matches.`),
    h("div", { class: "rules" }, rules.map((r) => h("div", { class: "rule", tip: `${r.name}: ${plural(r.matches, "match")}, ${whole(r.admitted)} admitted`.replace("matchs", "matches") },
      h("span", {}, r.name),
      h("div", { class: "track" }, h("i", { class: "all", style: { width: wide(r.matches / most) } }),
        h("i", { class: "admitted", style: { width: wide(r.admitted / most) } })),
      h("b", {}, whole(r.admitted))))));
}

function waterfall(rules, from, to) {
  let at = from;
  const steps = [...rules].sort((a, b) => b.saved - a.saved).map((r) => {
    const step = { name: r.name, left: at - r.saved, width: r.saved };
    at -= r.saved;
    return step;
  });
  const rest = at - to;
  if (Math.abs(rest) > from * SAME) steps.push({ name: "only together", left: Math.min(at, to), width: Math.abs(rest), worse: rest < 0 });
  const row = (name, left, width, kind, seconds) => h("div", { class: "rule", tip: `${name}: ${time(seconds)}` }, h("span", {}, name),
    h("div", { class: "track" }, h("i", { class: kind, style: { left: wide(left / from), width: wide(width / from) } })),
    h("b", {}, time(seconds)));
  return h("div", { class: "panel" }, h("h3", {}, "What each rule saves"),
    h("p", { class: "quiet" }, "Predicted time, from the given program to the result."),
    h("div", { class: "rules" }, row("given", 0, from, "all", from),
      steps.map((p) => row(p.name, p.left, p.width, p.worse ? "worse" : "admitted", p.width)), row("result", 0, to, "all", to)));
}

function growth(table, entry) {
  const grown = table.arms.filter((a) => entry.rows[a] && (entry.rows[a].iterations || []).length > 1);
  const saturated = grown.filter((a) => a.startsWith("saturation")); // the others rewrite one program: it hardly grows
  const series = (saturated.length ? saturated : grown).map((arm) => ({
    name: armName(arm), arm, colour: armColour(arm),
    points: entry.rows[arm].iterations.map((it, i) => [i + 1, it.enodes, `${armName(arm)}, iteration ${i + 1}: ${whole(it.enodes)} rows after ${time(it.seconds)}`]),
  }));
  if (!series.length) return null;
  return h("div", { class: "panel" }, h("h3", {}, "Growth"),
    h("div", { class: "legend" }, series.map((one) => h("span", {}, h("i", { style: { background: one.colour } }), one.name))),
    lines(series, ["iteration", "e-graph rows"]));
}

function optimizerSteps(table, entry) {
  const runs = table.arms.map((a) => entry.rows[a]).filter((r) => r && Object.keys(r.optimizer || {}).length);
  if (!runs.length) return null;
  const steps = distinct(runs.flatMap((r) => Object.keys(r.optimizer)));
  const sum = (r) => Object.values(r.optimizer).reduce((a, b) => a + b, 0);
  const most = Math.max(...runs.map(sum));
  const shade = (step) => `var(--arm-${steps.indexOf(step) % ORDER.length})`;
  return h("div", { class: "panel" }, h("h3", {}, "Time of the optimizer"),
    h("div", { class: "legend" }, steps.map((x) => h("span", {}, h("i", { style: { background: shade(x) } }), x))),
    runs.map((r) => h("div", { class: "arm-bar" }, h("div", { class: "arm-name" }, armName(r.arm)),
      h("div", { class: "stack" }, Object.entries(r.optimizer).map(([step, spent]) => h("i", {
        class: "kind", style: { width: wide(spent / most), background: shade(step) }, tip: `${step}: ${time(spent)}` }))),
      h("div", { class: "arm-time" }, time(sum(r))))));
}
