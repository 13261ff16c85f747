// Elements, numbers as people read them, and the tip beside the pointer. Text is never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, properties, children) {
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "tip") tipped(element, value);
    else if (key === "style") Object.entries(value).forEach(([k, v]) => element.style.setProperty(k, v));
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

const h = (tag, properties, ...children) => filled(document.createElement(tag), properties, children);
const s = (tag, properties, ...children) => filled(document.createElementNS(SVG, tag), properties, children);
const byId = (id) => document.getElementById(id);

function three(value) {
  return value >= 999.5 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0";
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (seconds >= scale) return `${three(seconds / scale)} ${unit}`;
  }
  return `${three(seconds * 1e9)} ns`;
}

function amount(count, unit) {
  if (count === null || count === undefined) return "–";
  for (const [prefix, scale] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (count >= scale) return `${three(count / scale)} ${prefix}${unit}`;
  }
  return `${count} ${unit}`.trim();
}

const times = (ratio) => (ratio >= 99.5 ? ratio.toFixed(0) : ratio.toFixed(2)) + "×";
const share = (part) => `${(100 * part).toFixed(part && part < 0.1 ? 1 : 0)} %`;
const wide = (part) => `${100 * part}%`;
const whole = (count) => (count === null || count === undefined ? "–" : count.toLocaleString("en"));
const plural = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;

// The tip: `text` is a string, or a function that makes one when it is needed.
function tipped(element, text) {
  const show = (event) => {
    const tip = byId("tip");
    tip.textContent = typeof text === "function" ? text() : text;
    tip.hidden = !tip.textContent;
    const box = tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
    const below = event.clientY + 18;
    const y = below + box.height > innerHeight - 8 ? event.clientY - box.height - 12 : below;
    tip.style.left = `${Math.max(8, x)}px`;
    tip.style.top = `${Math.max(8, y)}px`;
  };
  element.addEventListener("pointermove", show);
  element.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
}

function select(label, options, value, change) {
  const box = h("select", { "aria-label": label, onchange: () => change(box.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  return h("label", { class: "select" }, h("span", {}, label), box);
}

// A colour of the style sheet as the canvas of a graph takes it.
function colour(name) {
  const probe = h("span", { style: { color: `var(--${name})` } });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
