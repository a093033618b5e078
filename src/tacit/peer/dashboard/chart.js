// Curves of loss and accuracy over iterations, one per node that tells them.

const HEIGHT = 300;
const MARGIN = { left: 46, right: 12, top: 10, bottom: 26 };
const DASHES = ["", "7 4", "2 4", "9 3 2 3"];
const COLUMN = { loss: 1, accuracy: 2 };

// Colour and dashes of a curve, by the place of its node in the roster.
function curveStyle(place) {
  const dash = DASHES[Math.floor(place / 7) % DASHES.length];
  return { stroke: `var(--c${place % 7})`, "stroke-dasharray": dash || null };
}

function seriesOf(board, metric) {
  const column = COLUMN[metric];
  return board.nodes.map((node, place) => ({
    name: node.name,
    style: curveStyle(place),
    points: (board.curves[node.name] || []).map((row) => [row[0], row[column]])
      .filter(([, value]) => known(value)),
  })).filter((one) => one.points.length);
}

// Round numbers that divide a range into a few parts.
function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) {
    found.push(n * step || 0);
  }
  return found;
}

function powers(low, high) {
  const found = [];
  for (let n = Math.ceil(Math.log10(low)); n <= Math.log10(high); n += 1) found.push(10 ** n);
  return found.length > 1 ? found : [low, high];
}

function extent(values) {
  const least = values.reduce((a, b) => Math.min(a, b), Infinity);
  return [least, values.reduce((a, b) => Math.max(a, b), -Infinity)];
}

function scales(series, metric, width) {
  const values = series.flatMap((one) => one.points.map(([, value]) => value));
  let [low, high] = extent(values);
  const log = metric === "loss" && low > 0 && high > 100 * low;
  if (!log) {
    const space = 0.06 * (high - low) || 0.1 * Math.abs(high) || 1;
    [low, high] = [Math.max(low - space, metric === "loss" && low >= 0 ? 0 : -Infinity), high + space];
    if (metric === "accuracy") [low, high] = [Math.max(0, low), Math.min(100, high)];
  }
  const steps = series.flatMap((one) => one.points.map(([step]) => step));
  const [first, last] = extent(steps);
  const put = log ? Math.log10 : (value) => value;
  const span = put(high) - put(low) || 1;
  return {
    first, last, log, low, high,
    x: (step) => MARGIN.left + ((step - first) / (last - first || 1)) * (width - MARGIN.left - MARGIN.right),
    y: (value) => HEIGHT - MARGIN.bottom
      - ((put(value) - put(low)) / span) * (HEIGHT - MARGIN.top - MARGIN.bottom),
  };
}

function drawAxes(scale, width) {
  const rows = scale.log ? powers(scale.low, scale.high) : ticks(scale.low, scale.high, 4);
  const columns = ticks(scale.first, scale.last, width < 420 ? 3 : 5).filter(Number.isInteger);
  return [
    rows.map((value) => [
      s("line", {
        class: "axis", x1: MARGIN.left, x2: width - MARGIN.right,
        y1: scale.y(value).toFixed(1), y2: scale.y(value).toFixed(1),
      }),
      s("text", {
        class: "tick", x: MARGIN.left - 8, y: (scale.y(value) + 4).toFixed(1), "text-anchor": "end",
      }, String(Number(value.toPrecision(3)))),
    ]),
    columns.map((step) => s("text", {
      class: "tick", x: scale.x(step).toFixed(1), y: HEIGHT - 6, "text-anchor": "middle",
    }, whole(step))),
  ];
}

// The value of a curve at an iteration: the last one that was known then.
function valueAt(points, step) {
  return points.findLast((point) => point[0] <= step)?.[1] ?? null;
}

function drawChart(board, view) {
  const series = seriesOf(board, view.metric);
  document.getElementById("scrub").hidden = !series.length;
  if (!series.length) {
    show("chart", h("p", { class: "empty" }, whyEmpty(board, view.metric)));
    show("legend");
    return null;
  }
  const width = Math.max(260, document.getElementById("chart").clientWidth);
  const scale = scales(series, view.metric, width);
  const step = view.step === null ? scale.last : Math.min(Math.max(view.step, scale.first), scale.last);
  const chosen = series.some((one) => one.name === view.node) ? view.node : null;
  const lines = series.map((one) => s("polyline", {
    class: `curve ${chosen && one.name !== chosen ? "faint" : ""}`, ...one.style,
    "data-curve": one.name,
    points: one.points.map(([at, y]) => `${scale.x(at).toFixed(1)},${scale.y(y).toFixed(1)}`).join(" "),
  }));
  const dots = series.map((one) => [one, valueAt(one.points, step)])
    .filter(([, value]) => known(value))
    .map(([one, value]) => s("circle", {
      cx: scale.x(step).toFixed(1), cy: scale.y(value).toFixed(1), r: 3.5, fill: one.style.stroke,
    }));
  const label = `${view.metric} over iterations ${scale.first} to ${scale.last} of `
    + series.map((one) => one.name).join(", ");
  show("chart", s("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label,
  },
  drawAxes(scale, width),
  s("line", {
    class: "cursor", x1: scale.x(step).toFixed(1), x2: scale.x(step).toFixed(1),
    y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom,
  }),
  lines, dots));
  drawLegend(series, view, step);
  return { ...scale, width, step };
}

function drawLegend(series, view, step) {
  show("legend", h("ul", { class: "chips", "aria-label": "Curves" }, series.map((one) => h("li", {},
    h("button", {
      type: "button", "data-node": one.name, "data-key": `curve ${one.name}`,
      "aria-pressed": String(one.name === view.node),
    },
    s("svg", { width: 22, height: 4, "aria-hidden": "true" },
      s("line", { x1: 0, x2: 22, y1: 2, y2: 2, "stroke-width": 3, ...one.style })),
    h("span", {}, short(one.name)),
    h("span", { class: "value" }, metricText(view.metric, valueAt(one.points, step))))))));
}

function whyEmpty(board, metric) {
  if (Object.values(board.curves).some((curve) => curve.length)) {
    return `No node has told its ${metric}: the task has none, or there was no evaluation yet.`;
  }
  if (board.shares_metrics || board.nodes.some((node) => node.name === board.viewer)) {
    return "No evaluation yet, or the members keep their loss and accuracy to themselves. A member "
      + "tells them if its node runs with --share-scores.";
  }
  return "The members keep their loss and accuracy to themselves: both are computed from their "
    + "data. They are told only if the manifest has share_metrics = true in [federation] and a "
    + "member's node runs with --share-scores.";
}
