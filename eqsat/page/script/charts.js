// Small charts, drawn as SVG.

const PAD = { left: 56, right: 14, top: 12, bottom: 34 };

function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(at);
  return found;
}

function frame(width, height, x, y, labels) {
  const [w, t] = [width - PAD.right, height - PAD.bottom];
  return [
    y.ticks.map((v) => [
      s("line", { class: "grid", x1: PAD.left, x2: w, y1: y.at(v), y2: y.at(v) }),
      s("text", { class: "tick", x: PAD.left - 8, y: y.at(v) + 4, "text-anchor": "end" }, y.text(v))]),
    x.ticks.map((v) => s("text", { class: "tick", x: x.at(v), y: t + 16, "text-anchor": "middle" }, x.text(v))),
    s("text", { class: "axis", x: (PAD.left + w) / 2, y: height - 3, "text-anchor": "middle" }, labels[0]),
    s("text", { class: "axis", x: 12, y: (PAD.top + t) / 2, "text-anchor": "middle",
      transform: `rotate(-90 12 ${(PAD.top + t) / 2})` }, labels[1]),
  ];
}

function scale(low, high, from, to, text, logarithmic) {
  const f = logarithmic ? Math.log : (v) => v;
  const span = f(high) - f(low) || 1;
  return {
    at: (v) => from + ((f(v) - f(low)) / span) * (to - from), text,
    ticks: logarithmic ? logTicks(low, high) : ticks(low, high, 5),
  };
}

function logTicks(low, high) {
  const steps = high / low > 30 ? [1] : high / low > 4 ? [1, 2, 5] : [1, 1.2, 1.5, 2, 3, 5, 7];
  const found = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); p++) {
    for (const m of steps) {
      const v = m * 10 ** p;
      if (v >= low * 0.999 && v <= high * 1.001) found.push(v);
    }
  }
  return found;
}

// Lines of points, each `{name, colour, points: [[x, y, tip]]}`.
function lines(series, labels, width = 520, height = 240) {
  const points = series.flatMap((one) => one.points);
  const maxX = Math.max(1, ...points.map((p) => p[0]));
  const maxY = Math.max(1, ...points.map((p) => p[1]));
  const x = scale(Math.min(1, maxX), maxX, PAD.left, width - PAD.right, whole);
  const y = scale(0, maxY, height - PAD.bottom, PAD.top, (v) => amount(v, "").trim());
  x.ticks = x.ticks.filter(Number.isInteger);
  return s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": labels.join(" and ") },
    frame(width, height, x, y, labels),
    series.map((one) => [
      s("polyline", { points: one.points.map((p) => `${x.at(p[0])},${y.at(p[1])}`).join(" "), class: "line",
        style: { stroke: one.colour } }),
      one.points.map((p) => s("circle", { cx: x.at(p[0]), cy: y.at(p[1]), r: 3.5, style: { fill: one.colour }, tip: p[2] })),
    ]));
}

// The predicted speed-up of every program beside the measured one.
function scatter(state, { entries, arms }, change) {
  const place = byId("scatter");
  const base = arms.includes("inductor") ? "inductor" : arms[0];
  const dots = [];
  for (const arm of arms.filter((a) => a !== base)) {
    const pairs = new Map(measuredPairs(entries, base, arm).map((p) => [p.entry, p]));
    for (const { entry, ratio } of ratios(entries, base, arm)) {
      if (pairs.has(entry)) dots.push({ arm, entry, x: ratio, y: pairs.get(entry).ratio, sure: pairs.get(entry).sure });
    }
  }
  if (!dots.length) return place.replaceChildren();
  const names = distinct(dots.map((d) => d.arm));
  const [width, height] = [560, 400];
  const all = dots.flatMap((d) => [d.x, d.y]).concat([0.9, 1.15]);
  const [low, high] = [Math.min(...all) * 0.96, Math.max(...all) * 1.04];
  const x = scale(low, high, PAD.left, width - PAD.right, times, true);
  const y = scale(low, high, height - PAD.bottom, PAD.top, times, true);
  const dot = (d) => s("circle", {
    cx: x.at(d.x), cy: y.at(d.y), r: d.entry.entry === state.entry ? 7 : 4.5,
    class: `dot${d.sure ? "" : " unsure"}`, style: { "--dot": armColour(d.arm) },
    onclick: () => change({ entry: d.entry.entry }, "program"),
    tip: `${d.entry.entry}, ${armName(d.arm)}\npredicted ${times(d.x)}, measured ${times(d.y)}` +
      (d.sure ? "" : " (too close to call)"),
  });
  place.replaceChildren(
    h("h2", {}, "Predicted against measured"),
    h("p", { class: "quiet" }, `Speed-up over ${armName(base)}: predicted for ${state.profile}, measured on a CPU ` +
      "through Inductor. The machines differ, so only direction and order can agree. Hollow: too close to call."),
    h("div", { class: "panel narrow" },
      h("div", { class: "legend" }, names.map((a) => h("span", {}, h("i", { style: { background: armColour(a) } }), armName(a)))),
      s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Predicted against measured" },
        frame(width, height, x, y, ["predicted", "measured"]),
        s("line", { class: "diagonal", x1: x.at(low), y1: y.at(low), x2: x.at(high), y2: y.at(high) }),
        s("line", { class: "one", x1: x.at(1), y1: y.at(low), x2: x.at(1), y2: y.at(high) }),
        s("line", { class: "one", x1: x.at(low), y1: y.at(1), x2: x.at(high), y2: y.at(1) }),
        dots.map(dot))));
}
