// The graph of a program before and after, side by side, kernels as boxes; large ones in part.

const BOUND = 60; // nodes that are laid out at first
const MOST = 240; // nodes that are laid out at most: more take the browser seconds
const BOXED = 130; // nodes up to which kernels are boxes: they make the layout slow
const LEGIBLE = 0.75; // the zoom below which labels are too small
const LONGEST = 28; // letters of a label

const shapeOf = (node) => (node.shape && node.shape.length ? node.shape.join("×") : "");
const short = (target) => target.replace(/^torch\.ops\./, "").replace(/^aten\./, "").replace(/\.(default|Tensor|Scalar|int|dim)$/, "");

function graphStyle() {
  const c = Object.fromEntries(["ink", "muted", "surface", "line", "edge", "node", "accent", "good", "bad", "goodfill", "badfill", "kernel", "chosen"].map((n) => [n, colour(n)]));
  return [
    { selector: "node", style: {
      shape: "round-rectangle", label: "data(label)", "text-wrap": "wrap", "text-valign": "center",
      "font-size": 12, "font-family": "ui-sans-serif, system-ui, sans-serif", "line-height": 1.25, color: c.ink,
      "background-color": c.node, "border-width": 1, "border-color": c.edge } },
    { selector: "node[width]", style: { width: "data(width)", height: "data(height)" } },
    { selector: "node.input", style: { "background-opacity": 0, "border-style": "dashed", color: c.muted } },
    { selector: "node.only-before", style: { "background-color": c.badfill, "border-color": c.bad, "border-width": 2, "border-style": "dashed" } },
    { selector: "node.only-after", style: { "background-color": c.goodfill, "border-color": c.good, "border-width": 2 } },
    { selector: "node.chosen", style: { "background-color": c.chosen, "border-color": c.accent, "border-width": 1.5 } },
    { selector: "node.picked", style: { "border-color": c.accent, "border-width": 3.5 } },
    { selector: ":parent", style: {
      "background-color": c.kernel, "background-opacity": 0.7, "border-color": c.line, "border-width": 1, label: "data(label)", "text-valign": "top",
      "text-halign": "center", "text-margin-y": -3, "font-size": 11.5, color: c.muted, padding: 10, "text-wrap": "none" } },
    { selector: "edge", style: {
      width: 1.4, "line-color": c.edge, "target-arrow-color": c.edge, "target-arrow-shape": "triangle", "arrow-scale": 0.8, "curve-style": "bezier", opacity: 0.9 } },
    { selector: "edge.maybe", style: { "line-style": "dashed", opacity: 0.35 } },
  ];
}

function measuredLabel(label) {
  const rows = label.split("\n");
  return { label, width: Math.max(46, 7.1 * Math.max(...rows.map((r) => r.length)) + 16), height: 16 * rows.length + 12 };
}

// A graph that is too large to be read as a whole is shown from the node that matters first.
function closer(cy, first) {
  cy.zoom(LEGIBLE);
  cy.center(first === undefined ? cy.nodes(":childless").first() : cy.getElementById(first));
  const box = cy.elements().renderedBoundingBox();
  const shift = (low, high, size) => (low > 12 || high - low < size - 24 ? 12 - low : high < size - 12 ? size - 12 - high : 0);
  cy.panBy({ x: shift(box.x1, box.x2, cy.width()), y: shift(box.y1, box.y2, cy.height()) });
}

// A graph in `pane`. The wheel zooms only once the graph was clicked, so that the page still scrolls.
function drawn(pane, elements, tap, first) {
  if (pane.graph) pane.graph.destroy();
  const cy = cytoscape({
    container: pane, elements, style: graphStyle(), userZoomingEnabled: false, minZoom: 0.08, maxZoom: 3, boxSelectionEnabled: false, autoungrabify: true,
    layout: { name: "preset" },
  });
  const layout = { animate: false, fit: true, padding: 14 };
  try {
    cy.layout({ ...layout, name: "dagre", rankDir: "TB", nodeSep: 18, rankSep: 38, edgeSep: 8 }).run();
  } catch (error) { // dagre gives up on some graphs with boxes
    cy.layout({ ...layout, name: "breadthfirst", directed: true }).run();
  }
  if (cy.zoom() > 1.1) { cy.zoom(1.1); cy.center(); }
  if (cy.zoom() < LEGIBLE) closer(cy, first);
  pane.onpointerdown = () => cy.userZoomingEnabled(true);
  pane.onmouseleave = () => cy.userZoomingEnabled(false);
  cy.on("tap", "node", (event) => tap(event.target.id(), event.target));
  pane.graph = cy;
  return cy;
}

function zoomButtons(pane) {
  const zoom = (by) => { const cy = pane.graph; cy.zoom({ level: cy.zoom() * by, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } }); };
  const button = (text, name, act) => h("button", { type: "button", "aria-label": name, title: name, onclick: act }, text);
  return h("div", { class: "zoom" }, button("+", "Closer", () => zoom(1.3)), button("−", "Further", () => zoom(1 / 1.3)),
    button("⤢", "The whole", () => pane.graph.fit(undefined, 14)));
}

// At most `bound` keys around `starts`, the nearest first.
function around(starts, neighbours, bound) {
  const seen = new Set(starts.slice(0, bound));
  for (const key of seen) {
    for (const next of neighbours(key)) {
      if (seen.size >= bound) return seen;
      seen.add(next);
    }
  }
  return seen;
}

function neighbourhood(nodes) {
  const beside = new Map(nodes.map((n) => [n.name, []]));
  for (const node of nodes) {
    for (const read of node.inputs) {
      if (!beside.has(read)) continue;
      beside.get(node.name).push(read);
      beside.get(read).push(node.name);
    }
  }
  return (name) => beside.get(name) || [];
}

function graphElements(nodes, shown, kernels, only, mark) {
  const within = nodes.filter((n) => shown.has(n.name));
  const shared = new Map();
  const boxed = within.length <= BOXED;
  for (const n of within) if (boxed && n.kernel !== null && n.kernel !== undefined) shared.set(n.kernel, (shared.get(n.kernel) || 0) + 1);
  const boxes = [...shared.keys()].map((k) => ({ data: {
    id: `kernel ${k}`, label: `${(kernels[k] || {}).kind || "kernel"} · ${time((kernels[k] || {}).seconds)}` } }));
  const parts = within.map((n) => ({
    data: { id: n.name, parent: shared.has(n.kernel) ? `kernel ${n.kernel}` : undefined,
      ...measuredLabel([cut(isInput(n) ? n.name : short(n.target)), shapeOf(n)].filter(Boolean).join("\n")) },
    classes: [isInput(n) ? "input" : "", only.has(n.name) ? mark : ""].join(" ") }));
  const edges = within.flatMap((n) => distinct(n.inputs).filter((i) => shown.has(i)).map((i) => ({ data: { source: i, target: n.name } })));
  return [...boxes, ...parts, ...edges];
}

// The end of a name says more than its beginning.
const cut = (text) => (text.length > LONGEST ? `…${text.slice(1 - LONGEST)}` : text);
const isWeight = (node) => node.target === "get_attr" || (node.target === "placeholder" && /^[pbc]_/.test(node.name));
const isInput = (node) => node.target === "placeholder" || node.target === "get_attr";

function graphPane(title, graph, kernels, only, mark, tap) {
  const pane = h("div", { class: "graph", "data-graph": mark });
  const note = h("div", { class: "under" });
  if (!graph) return { box: h("div", {}, h("h4", {}, title), h("p", { class: "quiet" }, "No graph in this row.")), start: () => {} };
  const all = graph.nodes;
  let nodes = all.filter((n) => !isWeight(n));
  let near = neighbourhood(nodes);
  const byName = new Map(all.map((n) => [n.name, n]));
  let [bound, centre] = [BOUND, null];
  const about = h("div", { class: "about-node quiet" }, "Click a node to read it.");
  const pick = (name) => {
    const node = byName.get(name);
    if (!node) {
      const kernel = kernels[Number(name.replace("kernel ", ""))];
      if (kernel) about.textContent = `${kernel.kind} kernel, ${time(kernel.seconds)}, ${amount(kernel.bytes, "B")}: ${counts(kernel.operators)}`;
      return;
    }
    pane.graph.nodes().removeClass("picked");
    pane.graph.getElementById(name).addClass("picked");
    const kernel = kernels[node.kernel];
    about.textContent = `${node.name} = ${node.target}(${node.inputs.join(", ")}) → ${shapeOf(node) || "scalar"} ${node.dtype || ""}` +
      (kernel ? `; in a ${kernel.kind} kernel of ${time(kernel.seconds)}` : "");
    centre = name;
    tap(name);
  };
  const start = () => {
    const output = nodes.length ? nodes[nodes.length - 1].name : "";
    const starts = centre ? [centre] : [...new Set(nodes.filter((n) => only.has(n.name)).map((n) => n.name).slice(0, Math.ceil(bound / 3)).concat(output))];
    const shown = nodes.length <= bound ? new Set(nodes.map((n) => n.name)) : around(starts, near, bound);
    drawn(pane, graphElements(nodes, shown, kernels, only, mark), pick, starts[0]);
    if (centre) pane.graph.getElementById(centre).addClass("picked");
    note.replaceChildren(shown.size < nodes.length ? `${whole(shown.size)} of ${plural(nodes.length, "node")} around ${centre || "what changed"} ` : plural(nodes.length, "node"),
      ...(shown.size < nodes.length ? [bound < MOST ? more("More", () => { bound *= 2; start(); }) : "", more("Move to the node clicked", start)] : []));
  };
  const weights = h("input", { type: "checkbox", onchange: () => {
    nodes = weights.checked ? all : all.filter((n) => !isWeight(n));
    near = neighbourhood(nodes);
    start();
  } });
  const box = h("div", {}, h("h4", {}, title, all.some(isWeight) ? h("label", { class: "check" }, weights, " with weights") : null), h("div", { class: "graph-frame" }, pane, zoomButtons(pane)), note, about);
  return { box, start };
}

const more = (text, act) => h("button", { type: "button", class: "small", onclick: act }, text);

function beforeAfter(row, run, tap) {
  if (!run) return null;
  const base = (run.before && run.baseKernels) || [];
  const before = graphPane("Before", run.before, base, run.onlyBefore, "only-before", tap);
  const after = graphPane(`After: ${armName(row.arm)}`, run.after, run.kernels, run.onlyAfter, "only-after", () => {});
  const box = h("div", { class: "panel" }, h("h3", {}, "The graph before and after"),
    h("div", { class: "legend" },
      h("span", {}, h("i", { class: "swatch gone" }), `only before (${run.onlyBefore.size})`),
      h("span", {}, h("i", { class: "swatch new" }), `only after (${run.onlyAfter.size})`),
      h("span", {}, h("i", { class: "swatch box" }), "a kernel, with its predicted time"),
      h("span", {}, h("i", { class: "swatch in" }), "an input or weight")),
    h("div", { class: "two" }, before.box, after.box));
  return { box, start: () => { before.start(); after.start(); } };
}
