// The table of programs and arms.

function entriesTable(state, all, change) {
  const table = { ...all, arms: [state.arm, ...all.arms.filter((a) => a !== state.arm)] };
  const shown = table.entries.filter((e) => visible(state, e));
  const sets = distinct(table.entries.map((e) => e.set)).sort();
  const chip = (set, text) => h("button", {
    type: "button", class: "chip", "aria-pressed": String(state.set === set), "data-set": set,
    onclick: () => change({ set }),
  }, text);
  const query = h("input", {
    type: "search", placeholder: "Find a program", "aria-label": "Find a program", value: state.query,
    oninput: () => change({ query: query.value }, "entries"),
  });
  const bases = all.arms.map((a) => [a, `speed-up over ${armName(a)}`]);
  byId("entries").replaceChildren(
    h("div", { class: "bar" }, h("h2", {}, "Programs"),
      h("div", { class: "chips" }, chip("", `All ${table.entries.length}`), sets.map((x) => chip(x, `Set ${x}`))),
      query, select("Show", [["", "predicted time"], ...bases], state.base, (base) => change({ base }))),
    h("div", { class: "scroll" }, h("table", { class: "entries" },
      h("thead", {}, h("tr", {}, heading(state, "entry", "Program", "", change),
        heading(state, "found", "Found", "Of what a person expects here, what the arm in the selector above found", change),
        table.arms.map((a) => heading(state, a, armName(a), armAbout(a), change)))),
      h("tbody", {}, sorted(state, shown, table.arms).map((e) => line(state, table, e, change))))),
    h("p", { class: "quiet" }, shown.length ? "" : "No program is called so. ",
      "Large: predicted for the device, the best in bold. Below it: the kernels, and the time measured on a CPU " +
      "through Inductor, where it was. Click a program to see it below."),
  );
}

function visible(state, entry) {
  const word = state.query.trim().toLowerCase();
  return (!state.set || entry.set === state.set) &&
    (!word || entry.entry.toLowerCase().includes(word) || (entry.about || "").toLowerCase().includes(word));
}

function heading(state, key, text, tip, change) {
  const [by, up] = state.sort;
  const next = by === key ? [key, !up] : [key, true];
  return h("th", { "aria-sort": by === key ? (up ? "ascending" : "descending") : "none", scope: "col" },
    h("button", { type: "button", "data-sort": key, tip, onclick: () => change({ sort: next }) },
      text, h("span", { class: "arrow" }, by === key ? (up ? " ↑" : " ↓") : "")));
}

function value(state, row, entry) {
  if (predicted(row) === null) return null;
  if (!state.base) return row.predicted;
  const base = predicted(entry.rows[state.base]);
  return base === null ? null : base / row.predicted;
}

function sorted(state, entries, arms) {
  const [by, up] = state.sort;
  const key = (e) => {
    if (by === "entry") return [e.set, e.entry].join(" ");
    if (by === "found") return found(e.rows[state.arm])[0] / (found(e.rows[state.arm])[1] || 1);
    return value(state, e.rows[by], e);
  };
  const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
  return [...entries].sort((x, y) => {
    const [a, b] = [key(x), key(y)];
    if (a === null || b === null) return (a === null) - (b === null);
    return compare(a, b) * (up ? 1 : -1);
  });
}

function found(row) {
  const expected = (row && row.expected) || [];
  return [expected.filter((e) => e.found).length, expected.length];
}

function line(state, table, entry, change) {
  const pick = () => change({ entry: entry.entry }, "program");
  const best = Math.min(...table.arms.map((a) => predicted(entry.rows[a]) ?? Infinity));
  const [there, of] = found(entry.rows[state.arm]);
  return h("tr", { class: entry.entry === state.entry ? "picked" : "", "data-entry": entry.entry, onclick: pick },
    h("th", { scope: "row" }, h("button", { type: "button", class: "name", title: entry.about }, entry.entry),
      h("span", { class: "badge" }, entry.set)),
    h("td", { class: of ? (there === of ? "good" : "warn") : "quiet" }, of ? `${there}/${of}` : "–"),
    table.arms.map((a) => cell(state, entry, entry.rows[a], best)));
}

function cell(state, entry, row, best) {
  if (!row) return h("td", { class: "quiet" }, "–");
  if (row.error) return h("td", { class: "bad", tip: row.error }, "error");
  const shown = value(state, row, entry);
  const at = measured(row)[0];
  const text = shown === null ? "–" : state.base ? times(shown) : time(shown);
  const isBest = row.predicted !== null && row.predicted <= best * (1 + SAME);
  return h("td", { class: `number${row.arm === state.arm ? " arm" : ""}`, tip: () => cellTip(row) },
    h("div", { class: `value${isBest ? " best" : ""}${state.base ? tint(shown) : ""}` }, text),
    h("div", { class: "under" }, row.kernels === null ? "" : plural(row.kernels, "kernel")),
    at ? h("div", { class: "under measured" }, `${time(at[1].median)} on a CPU`) : null);
}

function tint(ratio) {
  if (ratio === null || Math.abs(ratio - 1) <= SAME) return "";
  return ratio > 1 ? " good" : " bad";
}

function cellTip(row) {
  const lines = [armAbout(row.arm), `predicted ${time(row.predicted)} on ${row.profile}`];
  if (row.kernel_source) {
    lines.push(`kernels ${row.kernel_source === "inductor" ? "that Inductor makes" : "of the partition model"}`);
  }
  for (const [threads, m] of measured(row)) {
    lines.push(`measured ${time(m.median)} (${time(m.low)} to ${time(m.high)}) on a CPU, ${plural(Number(threads), "thread")}`);
  }
  if (row.kept) lines.push(`given back: ${row.kept}`);
  return lines.join("\n");
}
