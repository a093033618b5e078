// The graph of the members: rings show progress, dashed arrows who waits for whom.

// state → sign, class of colour, words
const STATES = {
  training: ["▶", "good", "training"],
  waiting: ["…", "wait", "waiting"],
  starting: ["↻", "busy", "starting"],
  rejoining: ["↻", "busy", "rejoining"],
  saving: ["!", "bad", "cannot save"],
  finished: ["✓", "good", "finished"],
  ended: ["✓", "quiet", "finished and exited"],
  gone: ["✓", "quiet", "exited, probably finished"],
  silent: ["×", "bad", "not reached"],
  suspended: ["‖", "held", "suspended"],
  responds: ["•", "good", "responds"],
  unknown: ["?", "quiet", "not asked"],
};

function stateOf(node) {
  if (node.problem && node.state !== "silent") return ["!", "bad", "cannot continue"];
  return STATES[node.state] || ["?", "quiet", String(node.state)];
}

function stateText(node) {
  const [sign, colour, words] = stateOf(node);
  return h("span", { class: `state ${colour}` },
    h("span", { class: "sign", "aria-hidden": "true" }, sign), words);
}

const CENTRE = [200, 172];
const MANY = 14; // beyond so many nodes, names are written outwards

// Places on a circle, the first member at the top.
function layout(names) {
  const reach = names.length === 1 ? 0 : 122;
  const size = Math.min(25, Math.max(7, (0.6 * Math.PI * reach) / names.length || 25));
  const places = new Map(names.map((name, i) => {
    const angle = (2 * Math.PI * i) / names.length - Math.PI / 2;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    return [name, { x: CENTRE[0] + reach * cos, y: CENTRE[1] + reach * sin, cos, sin }];
  }));
  return { places, size };
}

// The part of the line between two circles, bent by `bend`.
function path(a, b, gap, bend) {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const length = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / length, dy / length];
  const middle = [(a.x + b.x) / 2 - uy * bend, (a.y + b.y) / 2 + ux * bend];
  const point = (n) => n.toFixed(1);
  const from = [a.x + ux * gap, a.y + uy * gap].map(point);
  const to = [b.x - ux * gap, b.y - uy * gap].map(point);
  return `M${from} Q${middle.map(point)} ${to}`;
}

function arrowhead(id, colour) {
  const size = { markerWidth: 8, markerHeight: 8, refX: 7, refY: 4, orient: "auto" };
  return s("marker", { id, ...size, markerUnits: "userSpaceOnUse" },
    s("path", { d: "M0 0 L8 4 L0 8 z", class: `arrow ${colour}` }));
}

function drawNode(node, place, size, chosen, many) {
  const [sign, colour, words] = stateOf(node);
  const part = node.steps ? Math.min(1, node.step / node.steps) : 0;
  const around = 2 * Math.PI * size;
  const waits = node.waiting_for.length ? `, waits for ${node.waiting_for.join(", ")}` : "";
  const progress = known(node.step) ? `, iteration ${node.step} of ${node.steps}` : "";
  const at = { cx: place.x.toFixed(1), cy: place.y.toFixed(1) };
  return s("g", {
    class: `node ${colour}`, role: "button", tabindex: 0, "data-node": node.name,
    "data-key": `graph ${node.name}`, "aria-pressed": String(node.name === chosen),
    "aria-label": `${node.name}: ${words}${progress}${waits}`,
  },
  s("circle", { class: "halo", ...at, r: size + 6 }),
  // No room for a sign: the colour fills the disc.
  s("circle", { class: size > 10 ? "disc" : "disc filled", ...at, r: size }),
  part > 0 && s("circle", {
    class: "ring", ...at, r: size, transform: `rotate(-90 ${at.cx} ${at.cy})`,
    "stroke-dasharray": `${(part * around).toFixed(1)} ${around.toFixed(1)}`,
  }),
  size > 10 && s("text", { class: "sign", x: at.cx, y: at.cy }, sign),
  drawName(node.name, place, size, many));
}

function drawName(name, place, size, many) {
  const far = many ? size + 8 : size + 12;
  const [x, y] = [place.x + place.cos * far, place.y + place.sin * (many ? far : size + 20)]
    .map((n) => n.toFixed(1));
  const left = place.cos < (many ? 0 : -0.2);
  const anchor = !many && Math.abs(place.cos) <= 0.2 ? "middle" : left ? "end" : "start";
  const angle = (Math.atan2(place.sin, place.cos) * 180) / Math.PI + (left ? 180 : 0);
  return s("text", {
    class: many ? "name small" : "name", x, y, "text-anchor": anchor,
    transform: many ? `rotate(${angle.toFixed(1)} ${x} ${y})` : null,
  }, short(name));
}

function drawGraph(board, chosen) {
  const names = board.nodes.map((node) => node.name);
  const { places, size } = layout(names);
  const both = new Set(board.edges.map(([a, b]) => `${a} ${b}`));
  const shown = board.edges.filter(([a, b]) => !both.has(`${b} ${a}`) || a < b);
  const links = shown.map(([a, b]) => s("path", {
    class: "link", d: path(places.get(a), places.get(b), size + 3, 0),
    "marker-end": both.has(`${b} ${a}`) ? null : "url(#plain)",
  }));
  const waits = board.nodes.flatMap((node) => node.waiting_for
    .filter((other) => places.has(other) && other !== node.name)
    .map((other) => s("path", {
      class: "waits", d: path(places.get(node.name), places.get(other), size + 7, 18),
      "marker-end": "url(#waits)",
    })));
  const many = names.length > MANY;
  const viewBox = many ? "-10 -40 420 424" : "0 0 400 350";
  const title = `Graph of ${names.length} nodes`;
  show("graph", s("svg", { viewBox, role: "group", "aria-label": title },
    s("defs", {}, arrowhead("waits", ""), arrowhead("plain", "plain")),
    links, waits,
    board.nodes.map((node) => drawNode(node, places.get(node.name), size, chosen, many))));
  const states = new Map(board.nodes.map((node) => [stateOf(node)[2], node]));
  show("key", [...states.values()].map((node) => h("li", {}, stateText(node))),
    waits.length > 0 && h("li", { class: "wait" }, "⇢ waits for"));
}
