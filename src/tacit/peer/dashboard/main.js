// What the reader chose, and the loop that fetches the data.

const EVERY = 2000; // milliseconds between two requests
const HIDDEN_EVERY = 20000; // while the page is in the background
const OLD = 30; // seconds after which data are no longer live
const LIMIT = 8000; // milliseconds for a response

const view = { node: null, chosen: false, metric: "loss", step: null };
let board = null;
let received = 0;
let problem = "";
let timer = 0;
let chart = null;

function redraw() {
  if (!board) return;
  const names = board.nodes.map((node) => node.name);
  if (!view.chosen || !names.includes(view.node)) view.node = mostInteresting();
  document.title = `${board.headline} · ${board.federation}`;
  show("title", board.federation);
  const place = board.viewer === "operator" ? "the operator's view" : `the view of ${board.viewer}`;
  show("subtitle", `${board.algorithm} on ${board.subject} · ${names.length} members, `
    + `generation ${board.generation} · ${place}`);
  const parts = [
    () => drawSummary(board),
    () => drawGraph(board, view.node),
    () => drawDetails(board, view.node),
    () => drawNodes(board, view.node),
    () => drawBudget(board),
    () => drawCertificates(board),
    () => drawEvents(board, document.getElementById("serious").checked),
    redrawChart,
  ];
  parts.forEach(drawSafely);
}

// What one node sends must not blind the reader to all others.
function drawSafely(part) {
  try {
    part();
  } catch (error) {
    console.error(error);
    problem = "A part of the page cannot be drawn.";
  }
}

function redrawChart() {
  chart = drawChart(board, view);
  if (!chart) return;
  const slider = document.getElementById("when");
  [slider.min, slider.max] = [chart.first, chart.last];
  slider.value = chart.step;
  document.getElementById("at").textContent = whole(chart.step) + (view.step === null ? " (newest)" : "");
}

// Before the reader chooses: the viewer's own node, one in trouble, or the first.
function mostInteresting() {
  const own = board.nodes.find((node) => node.name === board.viewer);
  const troubled = board.nodes.find((node) => stateOf(node)[1] === "bad");
  return (own || troubled || board.nodes[0])?.name ?? null;
}

function choose(name) {
  [view.node, view.chosen] = [name, true];
  redraw();
}

function scrub(step) {
  view.step = step >= chart.last ? null : Math.max(chart.first, Math.round(step));
  redrawChart();
}

function showLive() {
  const live = document.getElementById("live");
  const age = duration((Date.now() - received) / 1000);
  live.className = `live ${problem ? "off" : received ? "on" : ""}`;
  const shown = received ? ` Shown: as of ${age} ago.` : "";
  live.textContent = problem ? problem + shown : received ? `Live · ${age} ago` : "Connecting";
}

async function fetchBoard() {
  clearTimeout(timer);
  const abort = new AbortController();
  const limit = setTimeout(() => abort.abort(), LIMIT);
  try {
    const options = { cache: "no-store", credentials: "same-origin", signal: abort.signal };
    const response = await fetch("/dashboard/data", options);
    if (response.status === 403) throw new Error("The link is no longer valid: open the new one.");
    if (!response.ok) throw new Error("The dashboard has no data at the moment.");
    board = await response.json();
    [received, problem] = [Date.now(), ""];
    if (board.age > OLD) {
      problem = "The nodes cannot be queried.";
      received -= 1000 * board.age;
    }
    redraw();
  } catch (error) {
    const lost = error instanceof TypeError || error.name === "AbortError";
    problem = lost ? "No connection to the dashboard; trying again." : error.message;
  } finally {
    clearTimeout(limit);
    showLive();
    timer = setTimeout(fetchBoard, document.hidden ? HIDDEN_EVERY : EVERY);
  }
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  // Private windows may have no storage.
  try { localStorage.setItem("theme", theme); } catch { /* the choice lasts for this page */ }
}

function storedTheme() {
  try { return localStorage.getItem("theme"); } catch { return null; }
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-node]");
  if (target) choose(target.dataset.node);
});
document.addEventListener("keydown", (event) => {
  const target = event.target.closest("g[data-node]");
  if (target && (event.key === "Enter" || event.key === " ")) {
    event.preventDefault();
    choose(target.dataset.node);
  }
});
document.getElementById("theme").addEventListener("change", (event) => setTheme(event.target.value));
document.getElementById("metric").addEventListener("change", (event) => {
  view.metric = event.target.value;
  redraw();
});
document.getElementById("serious").addEventListener("change", redraw);
document.getElementById("when").addEventListener("input", (event) => scrub(Number(event.target.value)));
document.getElementById("chart").addEventListener("pointermove", (event) => {
  if (!chart) return;
  const box = event.currentTarget.getBoundingClientRect();
  const part = (event.clientX - box.left - MARGIN.left) / (chart.width - MARGIN.left - MARGIN.right);
  scrub(chart.first + part * (chart.last - chart.first));
});
document.getElementById("chart").addEventListener("pointerleave", () => {
  if (chart) scrub(chart.last);
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) fetchBoard(); });
new ResizeObserver(() => { if (board) redrawChart(); }).observe(document.getElementById("chart"));

const theme = storedTheme();
if (["light", "dark"].includes(theme)) {
  document.querySelector(`#theme input[value="${theme}"]`).checked = true;
  setTheme(theme);
}
setInterval(showLive, 1000);
fetchBoard();
