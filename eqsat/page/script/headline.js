// What it comes to: one number for each arm that the chosen one is compared with.

const FIRST = ["inductor-plain", "inductor", "greedy"];

function headline(state, { entries, arms }) {
  const place = byId("headline");
  const others = arms.filter((a) => a !== state.arm && ratios(entries, a, state.arm).length);
  const large = FIRST.filter((a) => others.includes(a));
  if (!large.length) large.push(...others.slice(0, 3));
  const small = others.filter((a) => !large.includes(a));
  const anyMeasured = entries.some((e) => Object.values(e.rows).some((r) => measured(r).length));
  place.replaceChildren(
    h("h1", {}, sentence(state, entries, large)),
    h("p", { class: "lead" },
      `Geometric means over ${plural(entries.length, "program")}, of times `,
      h("b", {}, "predicted"), ` for ${state.profile} by a cost model`,
      anyMeasured ? "; what was measured on a CPU stands beside them. " : ", not measured there. ",
      "Equal means within 0.1 %."),
    h("div", { class: "cards" }, large.map((a) => card(state, entries, a))),
    small.length ? h("div", { class: "minis" }, small.map((a) => mini(state, entries, a))) : null,
  );
}

function sentence(state, entries, large) {
  const base = large.includes("inductor") ? "inductor" : large[0];
  const name = armName(state.arm);
  if (!base) return `${name}: nothing to compare it with`;
  const mean = geometric(ratios(entries, base, state.arm).map((f) => f.ratio));
  return [`${name} is predicted to be `, h("em", {}, times(mean)), ` as fast as ${armName(base)}`];
}

function card(state, entries, base) {
  const found = ratios(entries, base, state.arm);
  const { better, equal, worse } = counted(found);
  const pairs = measuredPairs(entries, base, state.arm);
  return h("div", { class: "card" },
    h("div", { class: "over", tip: armAbout(base) }, `over ${armName(base)}`),
    h("div", { class: "big" }, times(geometric(found.map((f) => f.ratio)))),
    split(better, equal, worse),
    h("div", { class: "counts" },
      h("span", { class: "good" }, `${better} better`), h("span", {}, `${equal} equal`),
      h("span", { class: worse ? "bad" : "" }, `${worse} worse`)),
    pairs.length ? h("div", { class: "quiet" }, measuredLine(pairs)) : null,
  );
}

function measuredLine(pairs) {
  const faster = pairs.filter((p) => p.sure > 0).length;
  const slower = pairs.filter((p) => p.sure < 0).length;
  const mean = times(geometric(pairs.map((p) => p.ratio)));
  return `measured on a CPU: ${mean}; ${faster} faster, ${slower} slower, ` +
    `${pairs.length - faster - slower} too close to call`;
}

function split(better, equal, worse) {
  const part = (count, kind) => count ? h("i", { class: kind, style: { "flex-grow": count } }) : null;
  return h("div", { class: "split", "aria-hidden": "true" },
    part(better, "better"), part(equal, "equal"), part(worse, "worse"));
}

function mini(state, entries, base) {
  const found = ratios(entries, base, state.arm);
  const { better, equal, worse } = counted(found);
  return h("div", { class: "mini", tip: armAbout(base) },
    h("b", {}, times(geometric(found.map((f) => f.ratio)))), ` over ${armName(base)} `,
    h("span", { class: "quiet" }, `${better} / ${equal} / ${worse}`));
}
