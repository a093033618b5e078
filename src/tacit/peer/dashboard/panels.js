// The parts of the page beside graph and curves.

const DAY = 86400;
const SOON = 14; // days

function tile(name, value, detail, progress) {
  return h("div", { class: "tile" }, h("dt", {}, name), h("dd", { class: "big" }, value),
    progress && h("dd", {}, h("progress", { ...progress, "aria-label": name })),
    h("dd", { class: "small" }, detail));
}

const mean = (numbers) => numbers.reduce((sum, n) => sum + n, 0) / numbers.length;
const told = (nodes, key) => nodes.map((node) => node[key]).filter(known);

function scoreTile(nodes, key, name) {
  const values = told(nodes, key);
  if (!values.length) return null;
  const text = (n) => (key === "loss" ? number(n, 3) : percent(n));
  const range = [Math.min(...values), Math.max(...values)].map(text).join(" to ");
  const own = values.length === 1;
  const baselines = key === "accuracy" ? told(nodes, "baseline") : [];
  const majority = baselines.length ? `; majority baseline ${percent(mean(baselines))}` : "";
  return tile(own ? name : `Mean ${name.toLowerCase()}`, metricText(key, mean(values)),
    (own ? "at the last evaluation" : range) + majority);
}

function drawSummary(board) {
  const active = board.nodes.filter((node) => known(node.step));
  const steps = told(active, "step");
  const [slowest, fastest] = [Math.min(...steps), Math.max(...steps)];
  const all = Math.max(1, ...told(active, "steps"));
  const rounds = `${whole(Math.min(...told(active, "round")))} / ${whole(Math.max(...told(active, "rounds")))}`;
  const spent = active.filter((node) => node.privacy)
    .sort((a, b) => b.privacy.epsilon_spent - a.privacy.epsilon_spent)[0]?.privacy;
  const expiring = certificatesOf(board)[0];
  const speeds = told(active, "speed").filter((speed) => speed > 0);
  const rest = speeds.length && active.every((node) => node.state === "training")
    ? `, ${duration((all - slowest) / Math.min(...speeds))} left` : "";
  const behind = active.filter((node) => node.step < fastest).length;
  show("tiles",
    steps.length > 0 && tile("Round", rounds, `${whole(slowest)} / ${whole(all)}${rest}`,
      { max: all, value: slowest }),
    steps.length > 1 && tile("Lag", `${fastest - slowest}`, behind
      ? "iterations behind the first" : "all are equally far"),
    scoreTile(active, "loss", "Loss"),
    scoreTile(active, "accuracy", "Accuracy"),
    spent && tile("Privacy spent", `ε ${spent.epsilon_spent.toFixed(2)}`,
      `of ${spent.epsilon}, δ = ${spent.delta}`,
      { max: spent.epsilon, value: Math.min(spent.epsilon, spent.epsilon_spent) }),
    expiring && tile("Next certificate", left(expiring.expires, board.time),
      `of ${expiring.name}, ${date(expiring.expires)}`));
  const headline = document.getElementById("headline");
  const worst = board.alerts.some((alert) => alert.level === "error") ? "bad"
    : board.nodes.some((node) => node.state === "waiting") ? "wait" : "good";
  headline.className = `headline ${worst}`;
  if (headline.textContent !== board.headline) headline.textContent = board.headline;
  show("alerts", board.alerts.slice(0, 8).map((alert) => h("li", { class: `alert ${alert.level}` },
    h("b", {}, alert.level === "error" ? "Problem: " : "Note: "), alert.text)),
  board.alerts.length > 8 && h("li", { class: "alert" }, `And ${board.alerts.length - 8} more.`));
}

function drawDetails(board, name) {
  const node = board.nodes.find((one) => one.name === name);
  if (!node) return show("details");
  const waits = node.waiting_for.join(", ");
  const since = known(node.waiting_since) ? `, for ${duration(board.time - node.waiting_since)}` : "";
  const neighbours = [...new Set(board.edges.filter((edge) => edge.includes(name)).flat())]
    .filter((other) => other !== name);
  const facts = [
    ["Round", known(node.round) && `${whole(node.round)} of ${whole(node.rounds)}`],
    ["Iteration", known(node.step) && `${whole(node.step)} of ${whole(node.steps)}`],
    ["Speed", known(node.speed) && node.speed > 0 && `${number(node.speed, 2)} iterations/s`],
    ["Waits for", waits && waits + since],
    ["They say", node.claims.join("; ")],
    ["Problem", node.problem],
    ["Loss", known(node.loss) && number(node.loss)],
    ["Accuracy", known(node.accuracy) && percent(node.accuracy)],
    ["Majority baseline", known(node.baseline) && percent(node.baseline)],
    ["Privacy", node.privacy && `ε ${node.privacy.epsilon_spent.toFixed(2)} of ${node.privacy.epsilon}, `
      + `${whole(node.privacy.sums)} sums`],
    ["Sent", known(node.bytes_sent) && bytes(node.bytes_sent)],
    ["Received", known(node.bytes_received) && bytes(node.bytes_received)],
    ["Rejected", known(node.rejected) && whole(node.rejected)],
    ["Saved", known(node.saved) && (node.saved < 0 ? "not yet" : `iteration ${whole(node.saved)}`)],
    ["Running for", known(node.uptime_seconds) && duration(node.uptime_seconds)],
    ["Certificate", known(node.expires) && `${left(node.expires, board.time)}, ${date(node.expires)}`],
    ["Neighbours", neighbours.join(", ")],
    ["Roster", known(node.generation) && `generation ${node.generation}`],
    ["Address", node.address],
    ["Version", node.version],
  ];
  return show("details", h("h3", {}, node.name), h("p", {}, stateText(node)),
    h("dl", { class: "facts" }, facts.filter(([, value]) => value)
      .map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)])));
}

function drawNodes(board, chosen) {
  const furthest = Math.max(...told(board.nodes, "step"));
  const scored = ["loss", "accuracy", "baseline"].filter((key) => told(board.nodes, key).length);
  const head = ["node", "state", "round", "iteration", "lag", ...scored, "sent"];
  const row = (node) => h("tr", { class: node.name === chosen ? "chosen" : null },
    h("th", { scope: "row" }, h("button", {
      type: "button", "data-node": node.name, "data-key": `row ${node.name}`,
      "aria-pressed": String(node.name === chosen),
    }, short(node.name, 24))),
    h("td", {}, stateText(node)),
    h("td", { class: "extra" }, whole(node.round)),
    h("td", {}, whole(node.step)),
    h("td", { class: "extra" }, known(node.step) ? whole(furthest - node.step) : "–"),
    scored.map((key) => h("td", { class: "extra" }, metricText(key, node[key]))),
    h("td", { class: "extra" }, bytes(node.bytes_sent)));
  const hidden = new Set(["round", "lag", "loss", "accuracy", "baseline", "sent"]);
  show("nodes", h("table", {}, h("thead", {}, h("tr", {}, head.map((name) =>
    h("th", { scope: "col", class: hidden.has(name) ? "extra" : null }, name)))),
  h("tbody", {}, board.nodes.map(row))));
}

function drawBudget(board) {
  const promised = board.nodes.filter((node) => node.privacy);
  if (!promised.length) {
    return show("budget", h("p", { class: "empty" },
      "No guarantee of differential privacy was promised for this training."));
  }
  return show("budget", h("ul", { class: "rows" }, promised.map((node) => h("li", {},
    h("div", { class: "line" }, h("span", {}, node.name),
      h("span", {}, `ε ${node.privacy.epsilon_spent.toFixed(2)} of ${node.privacy.epsilon}`)),
    h("progress", {
      max: node.privacy.epsilon, "aria-label": `Privacy spent by ${node.name}`,
      value: Math.min(node.privacy.epsilon, node.privacy.epsilon_spent),
      class: node.privacy.epsilon_spent >= 0.95 * node.privacy.epsilon ? "late" : null,
    })))), h("p", { class: "muted" },
  `δ = ${promised[0].privacy.delta}. Each node adds the same noise; ε counts the sums that it took part in.`));
}

const date = (seconds) => new Date(1000 * seconds).toISOString().slice(0, 10);

function left(expires, now) {
  const days = (expires - now) / DAY;
  if (days < 0) return "expired";
  return days < 2 ? `in ${duration(expires - now)}` : `in ${Math.floor(days)} days`;
}

// All known certificates, the first to expire first.
function certificatesOf(board) {
  const nodes = board.nodes.filter((node) => known(node.expires));
  return [...nodes, ...board.certificates].sort((a, b) => a.expires - b.expires);
}

function drawCertificates(board) {
  const colour = (days) => (days < 0 ? "bad" : days < SOON ? "wait" : null);
  const found = certificatesOf(board);
  if (!found.length) return show("certificates", h("p", { class: "empty" }, "None is known here."));
  return show("certificates", h("ul", { class: "rows" }, found.map((one) => h("li", {},
    h("div", { class: "line" }, h("span", {}, one.name), h("span",
      { class: colour((one.expires - board.time) / DAY) },
      `${left(one.expires, board.time)} · ${date(one.expires)}`))))));
}

function drawEvents(board, seriousOnly) {
  const signs = { info: ["·", "quiet"], warning: ["!", "wait"], error: ["×", "bad"] };
  const events = [...board.events].reverse().filter((one) => !seriousOnly || one.level !== "info");
  if (!events.length) return show("events", h("p", { class: "empty" }, "Nothing has happened yet."));
  const today = new Date().toDateString();
  return show("events", h("ol", { class: "log" }, events.map((one) => {
    const when = new Date(one.time);
    const [sign, colour] = signs[one.level] || signs.info;
    const text = when.toDateString() === today
      ? when.toLocaleTimeString("en-GB") : when.toLocaleDateString("en-GB");
    return h("li", {}, h("time", { datetime: one.time, title: one.time }, text),
      h("p", {}, h("span", { class: `sign ${colour}`, "aria-hidden": "true" }, sign),
        one.level !== "info" && h("span", { class: "hidden" }, `${one.level}: `),
        one.node && h("b", {}, `${one.node} `), one.text));
  })));
}
