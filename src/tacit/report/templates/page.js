// Adds to a page that is complete without it: values under the pointer, runs that can be hidden,
// tables that can be sorted, and downloads. It loads nothing.
"use strict";

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const drawn = (tag, attributes) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
const hidden = new Set(); // names of hidden runs
const isHidden = (name) => [...hidden].some((run) => name === run || name.startsWith(`${run}, `));

// --- downloads ---

function save(blob, name) {
  const link = make("a", {download: name, href: URL.createObjectURL(blob)});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// The figure in the colours of the light theme, without the marks of the pointer.
function standalone(svg) {
  const copy = svg.cloneNode(true);
  for (const mark of copy.querySelectorAll(".mark")) mark.remove();
  const [, , width, height] = copy.getAttribute("viewBox").split(" ").map(Number);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.setAttribute("font-family", "Helvetica, Arial, sans-serif");
  for (const group of copy.querySelectorAll("[hidden]")) group.remove();
  return new XMLSerializer().serializeToString(copy);
}

function addDownloads(figure) {
  const svg = figure.querySelector("svg");
  if (!svg) return;
  const title = figure.querySelector("h3")?.textContent || "figure";
  const name = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
  const add = (label, action) => {
    const button = make("button", {type: "button", "aria-label": `${label} of ${title}`}, label);
    button.addEventListener("click", action);
    return button;
  };
  const row = make("div", {class: "downloads"});
  row.append(
    add("SVG", () => save(new Blob([standalone(svg)], {type: "image/svg+xml"}), `${name}.svg`)),
  );
  for (const kind of ["pdf", "csv"]) {
    const link = figure.querySelector(`a.${kind}`);
    if (!link) continue;
    link.download = `${name}.${kind}`;
    link.setAttribute("aria-label", `${kind.toUpperCase()} of ${title}`);
    row.append(link);
  }
  figure.append(row);
}

// --- values under the pointer ---

function readCsv(link) {
  const text = decodeURIComponent(link.href.slice(link.href.indexOf(",") + 1));
  const rows = text.trim().split("\n").map((line) =>
    [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map((cell) =>
      cell[1] === undefined ? cell[2] : cell[1].replaceAll('""', '"')));
  return {names: rows[0].slice(1), x: rows[0][0], rows: rows.slice(1)};
}

function addValues(figure) {
  const svg = figure.querySelector("svg[data-frame]");
  const link = figure.querySelector("a.csv");
  if (!svg || !link) return;
  const frame = JSON.parse(svg.dataset.frame);
  const {names, x, rows} = readCsv(link);
  const scaled = ([from, to, low, high], log) => (value) => {
    const f = log ? Math.log : (v) => v;
    return from + ((f(value) - f(low)) / (f(high) - f(low))) * (to - from);
  };
  const toX = scaled(frame.x, frame.log[0]);
  const toY = scaled(frame.y, frame.log[1]);
  const places = rows.map((row) => toX(Number(row[0])));
  const line = drawn("line", {class: "mark", y1: frame.y[0], y2: frame.y[1], visibility: "hidden"});
  const dots = drawn("g", {class: "mark"});
  const box = make("div", {class: "values", role: "status", hidden: ""});
  svg.append(line, dots);
  figure.append(box);
  let current = -1;
  const show = (index) => {
    current = index;
    const row = rows[index];
    dots.replaceChildren();
    box.replaceChildren(make("strong", {}, `${x} ${Number(row[0]).toLocaleString("en")}`));
    names.forEach((name, place) => {
      const value = row[place + 1];
      if (value === "" || isHidden(name)) return;
      if (!/, (lowest|highest)$/.test(name)) {
        dots.append(drawn("circle", {cx: places[index], cy: toY(Number(value)), r: 3}));
      }
      box.append(make("span", {}, name), make("b", {}, Number(value).toLocaleString("en", {maximumSignificantDigits: 5})));
    });
    line.setAttribute("x1", places[index]);
    line.setAttribute("x2", places[index]);
    line.setAttribute("visibility", "visible");
    box.hidden = false;
    const part = svg.getBoundingClientRect();
    const whole = figure.getBoundingClientRect();
    const at = part.left - whole.left + (places[index] / svg.viewBox.baseVal.width) * part.width;
    const right = at > whole.width / 2;
    box.style.top = `${part.top - whole.top + 8}px`;
    box.style.left = right ? "auto" : `${at + 12}px`;
    box.style.right = right ? `${whole.width - at + 12}px` : "auto";
  };
  const hide = () => {
    current = -1;
    line.setAttribute("visibility", "hidden");
    dots.replaceChildren();
    box.hidden = true;
  };
  svg.addEventListener("pointermove", (event) => {
    const part = svg.getBoundingClientRect();
    const at = ((event.clientX - part.left) / part.width) * svg.viewBox.baseVal.width;
    let best = 0;
    places.forEach((place, index) => {
      if (Math.abs(place - at) < Math.abs(places[best] - at)) best = index;
    });
    show(best);
  });
  svg.addEventListener("pointerleave", hide);
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    show(Math.min(rows.length - 1, Math.max(0, current + step)));
  });
}

// --- runs that can be hidden ---

function addRuns(fieldset) {
  fieldset.hidden = false;
  for (const input of fieldset.querySelectorAll("input")) {
    const apply = () => {
      input.checked ? hidden.delete(input.name) : hidden.add(input.name);
      for (const part of document.querySelectorAll(`[data-series="${input.value}"]`)) {
        part.toggleAttribute("hidden", !input.checked);
      }
      // It was made before a run was hidden.
      for (const link of document.querySelectorAll("figure:has([data-series]) a.pdf")) {
        link.textContent = hidden.size ? "PDF of all runs" : "PDF";
      }
    };
    input.addEventListener("change", apply);
    apply(); // a reloaded page keeps its choices
  }
}

// --- tables that can be sorted ---

const UNITS = {kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, PB: 1e15, ms: 1e-3, min: 60, h: 3600};

// "1.2 MB", "4 min 05 s", "81.2 ± 0.3", "ε ≤ 3" and "∞" as numbers; others have none.
function number(text) {
  if (text === "∞") return Infinity;
  const parts = text.replaceAll(",", "").replaceAll("−", "-").split(" ± ")[0]
    .matchAll(/([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([A-Za-z]+)?/g);
  const values = [...parts].map(([, value, unit]) => Number(value) * (UNITS[unit] ?? 1));
  return values.length ? values.reduce((sum, one) => sum + one) : undefined;
}

function addSorting(table) {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 2) return;
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = make("button", {type: "button", class: "sort"});
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      const value = (row) => row.cells[column].textContent.trim();
      const rows = [...body.rows];
      const numeric = !cell.classList.contains("text");
      rows.sort((a, b) => {
        const [one, other] = [value(a), value(b)];
        if (!numeric) return sign * one.localeCompare(other, "en", {numeric: true});
        const [x, y] = [number(one), number(other)];
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return sign * (x - y);
      });
      body.append(...rows);
    });
  });
}

document.querySelectorAll("figure").forEach((figure) => {
  addValues(figure);
  addDownloads(figure);
});
document.querySelectorAll("fieldset.runs").forEach(addRuns);
document.querySelectorAll("table").forEach(addSorting);
