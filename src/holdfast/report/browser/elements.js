let data = JSON.parse(document.getElementById("data").textContent); // of a run that is watched, replaced as it goes on
const hidden = new Set(); // numbers of the methods not shown
const AXES = {
  rounds: { name: "rounds", title: "round", hover: "round %{x}" },
  megabytes: { name: "MB", title: "megabytes, down and up", hover: "%{x:,.4~g} MB" },
  seconds: { name: "seconds", title: "seconds, without compilation", hover: "%{x:.4~g} s" },
};
const chosen = { axis: "rounds", metric: data.metric, log: false, whole: false, clientMetric: null, against: null, classesOf: null, ledgerOf: null, confidence: 0, confidenceFigure: "size", confidenceOf: null, driftOf: null, driftFigure: null, driftLayer: null, driftRound: null, swept: null, figure: null };

// ---------------------------------------------------------------- elements

const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children); // strings become text, never markup
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const dark = () => document.documentElement.dataset.theme === "dark";
const colour = (method) => (dark() ? method.dark : method.light);
const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const readable = (name) => data.names[name] ?? name.replaceAll("_", " ");
const unbroken = (text) => text.replaceAll(" ± ", "\u00a0±\u00a0").replaceAll(/(\d) %/g, "$1\u00a0%");
const narrow = () => innerWidth <= 640;

// Ends of the scale are drawn as lines to compare with, where there is something to compare.
const references = () => (data.methods.some((m) => !m.reference) ? data.methods.filter((m) => m.reference) : []);
const isReference = (number) => references().includes(data.methods[number]);

// Four digits of a value and two of how far it scatters, if it does.
const figure = (value) => String(Number(value.toPrecision(4)));
const figureAndSpread = (value, spread) => (spread ? `${figure(value)} ± ${Number(spread.toPrecision(2))}` : figure(value));

// Plotly reads a little markup in its texts; labels must come out as they are.
const plain = (text) =>
  String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function faded(hex, opacity) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${opacity})`;
}
