// The e-graph around a class, in part; a click shows the e-nodes of a class.

const NEAR = 20; // classes that are laid out at first

const MOST_CLASSES = 160;

function cheapest(nodes) {
  return nodes.reduce((a, b) => (b.chosen || (!a.chosen && b.cost < a.cost) ? b : a), nodes[0]);
}

// The least cost of a class with all that it needs, counted as often as it is used.
function treeCosts(classes) {
  const cost = new Map();
  const of = (node) => node.children.reduce((sum, c) => sum + (cost.has(c) ? cost.get(c) : Infinity), node.cost);
  for (let changed = true; changed;) {
    changed = false;
    for (const cls of classes) {
      const least = Math.min(...cls.nodes.map(of));
      if (least < (cost.has(cls.id) ? cost.get(cls.id) : Infinity) * (1 - 1e-12)) { cost.set(cls.id, least); changed = true; }
    }
  }
  return of;
}

function explorer(egraph) {
  const byNumber = new Map(egraph.classes.map((c) => [c.id, c]));
  const total = treeCosts(egraph.classes);
  const readers = new Map(egraph.classes.map((c) => [c.id, []]));
  for (const cls of egraph.classes) {
    for (const child of new Set(cls.nodes.flatMap((n) => n.children))) if (readers.has(child)) readers.get(child).push(cls.id);
  }
  const chosenKids = (cls) => cls.nodes.filter((n) => n.chosen).flatMap((n) => n.children);
  const near = (id) => {
    const cls = byNumber.get(id);
    return distinct([...chosenKids(cls), ...readers.get(id), ...cls.nodes.flatMap((n) => n.children)]).filter((c) => byNumber.has(c));
  };
  const pane = h("div", { class: "graph", "data-graph": "egraph" });
  const side = h("div", { class: "side" });
  const note = h("div", { class: "under" });
  const needed = new Set(egraph.classes.flatMap(chosenKids));
  const isUsed = (cls) => cls.nodes.some((n) => n.chosen);
  const outputs = egraph.classes.filter((c) => c.root || (c.root === undefined && isUsed(c) && !needed.has(c.id)));
  let [bound, centre] = [NEAR, (outputs[0] || egraph.classes[0]).id];

  const elements = (shown) => {
    const nodes = [...shown].map((id) => {
      const cls = byNumber.get(id);
      const used = isUsed(cls);
      const text = cheapest(cls.nodes).op;
      return { data: { id: String(id), ...measuredLabel([text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text,
        `${tidy(cls.meta)} · ${cls.nodes.length + (cls.left_out || 0)}`].join("\n")) }, classes: used ? "chosen" : "" };
    });
    const edges = [...shown].flatMap((id) => {
      const cls = byNumber.get(id);
      const solid = new Set(chosenKids(cls));
      return distinct(cls.nodes.flatMap((n) => n.children)).filter((c) => shown.has(c) && c !== id)
        .map((c) => ({ data: { source: String(c), target: String(id) }, classes: solid.has(c) ? "" : "maybe" }));
    });
    return [...nodes, ...edges];
  };
  const mark = (id) => {
    pane.graph.nodes().removeClass("picked");
    pane.graph.getElementById(String(id)).addClass("picked");
  };
  const show = (id) => {
    if (!byNumber.has(id)) return false;
    side.replaceChildren(...panelOf(byNumber.get(id)));
    if (pane.graph && pane.graph.getElementById(String(id)).length) mark(id);
    else start(id);
    return true;
  };
  const start = (id) => {
    centre = id === undefined ? centre : id;
    const shown = around([centre], near, bound);
    drawn(pane, elements(shown), (key) => show(Number(key)), String(centre));
    mark(centre);
    note.replaceChildren(shown.size < byNumber.size ? `${whole(shown.size)} of ${plural(byNumber.size, "e-class")} around one `.replace("classs", "classes") : `${whole(byNumber.size)} e-classes `,
      ...(shown.size < byNumber.size && bound < MOST_CLASSES ? [more("More", () => { bound *= 2; start(); })] : []));
  };
  const link = (id) => byNumber.has(id)
    ? h("button", { type: "button", class: "link", tip: () => `${cheapest(byNumber.get(id).nodes).op}\n${byNumber.get(id).meta}`, onclick: () => show(id) }, `#${id}`)
    : h("span", { class: "quiet" }, `#${id}`);
  const panelOf = (cls) => {
    const used = isUsed(cls);
    const least = Math.min(...cls.nodes.map(total));
    const why = (n) => n.chosen ? (total(n) <= least * (1 + 1e-9) ? "chosen: cheapest with all below" : "chosen: cheaper where parts are shared")
      : used && total(n) > least * (1 + 1e-9) ? `${time(total(n) - least)} more` : "";
    return [
      h("h4", {}, `E-class #${cls.id}`, cls.root ? h("span", { class: "badge" }, "output") : null, cls.constant ? h("span", { class: "badge" }, "constant") : null),
      h("p", { class: "quiet" }, cls.meta, cls.names && cls.names.length ? `; in the program ${cls.names.slice(0, 4).join(", ")}` : ""),
      h("p", {}, used ? "" : "Not needed for what was chosen. ", `${plural(cls.nodes.length + (cls.left_out || 0), "e-node")}`,
        cls.left_out ? `, ${whole(cls.left_out)} of them not on this page` : "", "."),
      h("div", { class: "scroll" }, h("table", { class: "enodes" },
        h("thead", {}, h("tr", {}, h("th", {}, "e-node"), h("th", { tip: "The price of this e-node alone, in predicted seconds" }, "cost"),
          h("th", { tip: "With the cheapest of all that it needs, each counted as often as it is used" }, "with all below"), h("th", {}, ""))),
        h("tbody", {}, cls.nodes.map((n) => h("tr", { class: n.chosen ? "chosen" : "" },
          h("td", {}, h("code", {}, n.op), n.children.map((c) => [" ", link(c)])),
          h("td", { class: "number" }, time(n.cost)), h("td", { class: "number" }, Number.isFinite(total(n)) ? time(total(n)) : "–"),
          h("td", { class: n.chosen ? "good" : "quiet" }, why(n))))))),
      more("Centre the graph here", () => start(cls.id)),
    ];
  };
  const find = h("input", { type: "search", placeholder: "Find an operator or node", "aria-label": "Find an e-class", onchange: () => {
    const word = find.value.trim().toLowerCase();
    const hit = word && egraph.classes.find((c) => (c.names || []).some((n) => n.toLowerCase().includes(word)) || c.nodes.some((n) => n.op.toLowerCase().includes(word)));
    if (hit) { start(hit.id); show(hit.id); }
  } });
  const named = (name) => { const hit = egraph.classes.find((c) => (c.names || []).includes(name)); if (hit) { start(hit.id); show(hit.id); } };
  const box = h("div", { class: "panel" }, h("h3", {}, "The e-graph"),
    h("div", { class: "legend" }, h("span", {}, h("i", { class: "swatch chosen" }), "needed for what was chosen"),
      h("span", {}, h("i", { class: "swatch other" }), "another e-class"), h("span", {}, "number after the shape: its e-nodes"), find),
    h("div", { class: "two uneven" }, h("div", {}, h("div", { class: "graph-frame" }, pane, zoomButtons(pane)), note), side));
  return { box, named, start: () => { start(); show(centre); } };
}

const tidy = (meta) => meta.replace(/@.*$/, "").replace(/,/g, "×");
