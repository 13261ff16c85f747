// What is shown, and what happens when that changes.

const sizes = distinct(ROWS.map((r) => r.size));
const state = {
  size: sizes.includes("full") ? "full" : sizes[0], profile: ROWS[0].profile, arm: "saturation",
  base: "", set: "", query: "", sort: ["entry", true], entry: null,
};
let latest = 0;

function change(what, only) {
  Object.assign(state, what);
  const table = chosen(state);
  if (!table.arms.includes(state.arm)) state.arm = table.arms[table.arms.length - 1];
  if (!table.entries.some((e) => e.entry === state.entry)) state.entry = (table.entries[0] || {}).entry;
  const focused = document.activeElement && document.activeElement.type === "search";
  if (only !== "entries") {
    controls(table);
    headline(state, table);
    program(table, only === "program");
    scatter(state, table, change);
  }
  entriesTable(state, table, change);
  if (only === "entries" && focused) {
    const field = document.querySelector("#entries input[type=search]");
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
}

function controls(table) {
  const profiles = distinct(ROWS.map((r) => r.profile));
  byId("controls").replaceChildren(
    sizes.length > 1 ? select("Size", sizes.map((x) => [x, x]), state.size, (size) => change({ size })) : "",
    profiles.length > 1 ? select("Device", profiles.map((x) => [x, x]), state.profile, (profile) => change({ profile })) : "",
    select("Arm", table.arms.map((a) => [a, armName(a)]), state.arm, (arm) => change({ arm })),
    h("button", { type: "button", id: "theme", "aria-label": "Light or dark", title: "Light or dark", onclick: switchTheme }, "◐"));
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  recolour();
}

function recolour() {
  for (const pane of document.querySelectorAll(".graph")) if (pane.graph) pane.graph.style(graphStyle());
}

async function program(table, scroll) {
  const place = byId("program");
  const entry = table.entries.find((e) => e.entry === state.entry);
  if (!entry) return place.replaceChildren();
  const mine = ++latest;
  delete place.dataset.ready;
  const of = await details(entry.entry, state.size);
  if (mine !== latest) return;
  const row = entry.rows[state.arm] || Object.values(entry.rows)[0];
  const run = of(row);
  const plain = ["inductor-plain", "inductor", "eager"].map((a) => entry.rows[a]).find(Boolean);
  if (run) Object.assign(run, withKernels(run, entry, of));
  const eg = ["saturation", "saturation-inductor"].includes(row.arm) && run && run.egraph ? run.egraph : ((of(entry.rows.saturation) || {}).egraph || null);
  const viewer = eg && eg.classes.length ? explorer(eg) : null;
  const graphs = beforeAfter(row, run, (name) => viewer && viewer.named(name));
  const expected = row.expected || [];
  place.replaceChildren(
    h("div", { class: "bar" }, h("h2", {}, entry.entry), h("span", { class: "badge" }, `Set ${entry.set}`)),
    h("p", { class: "lead" }, entry.about || ""),
    expected.length ? h("ul", { class: "expected" }, expected.map((e) => h("li", { class: e.found ? "good" : "bad" },
      h("b", {}, e.found ? "found" : "not found"), ` ${e.text}`))) : "",
    kernelBars(table, entry, of), figures(table, entry), graphs ? graphs.box : "",
    h("div", { class: "two" }, ruleBars(row, predicted(plain)), growth(table, entry)),
    viewer ? viewer.box : "", optimizerSteps(table, entry) || "");
  if (graphs) graphs.start();
  if (viewer) viewer.start();
  if (scroll) place.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  place.dataset.ready = entry.entry;
}

// The graph before with its kernels: those of an arm that ran it as it came, if there is one.
function withKernels(run, entry, of) {
  const names = (graph) => (graph ? graph.nodes.map((n) => `${n.name} ${n.target}`).join() : "");
  const hasKernels = (graph) => graph.nodes.some((n) => n.kernel !== null && n.kernel !== undefined);
  const same = (graph) => names(graph) === names(run.before) && hasKernels(graph);
  for (const other of Object.values(entry.rows).map(of).filter((r) => r && r.after && run.before)) {
    const found = names(other.after) === names(other.before) ? [other.after, other.before].find(same) : [other.after].find(same);
    if (found) return { before: found, baseKernels: other.kernels };
  }
  return { baseKernels: [] };
}

byId("footer").append(`eqsat ${ROWS[0].eqsat}, torch ${ROWS[0].torch}. `,
  "Predicted times are those of a cost model; measured ones were taken on the CPU that ran the comparison. ",
  "Graphs: Cytoscape.js and dagre, MIT licence.");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") byId("tip").hidden = true;
});
change({});
