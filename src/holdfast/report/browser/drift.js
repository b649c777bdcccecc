// How clients' models drift apart: one line for each layer, and how alike every two models are.

const driftOf = () => data.drift.methods[chosen.driftOf];
const called = (layer) => layer || "whole model";

function choose(select, options, current, change) {
  select.replaceChildren(...options.map(([value, words]) => element("option", { value }, words)));
  select.value = current;
  select.onchange = () => change(select.value);
}

function buildDrift() {
  const able = numbersOf(data.drift?.methods);
  byId("drift").hidden = !able.length;
  if (!able.length) return;
  const again = () => { buildDrift(); redraw(drawDrift); };
  chosen.driftOf = stillOf(chosen.driftOf, able);
  chooseMethod(byId("drift-method"), able, chosen.driftOf, (n) => { chosen.driftOf = n; again(); });
  const families = data.drift.families.filter((f) => driftOf().lines[f.column]);
  chosen.driftFigure = still(chosen.driftFigure, families.map((f) => f.column));
  choose(byId("drift-figure"), families.map((f) => [f.column, f.name]), chosen.driftFigure, (name) => { chosen.driftFigure = name; again(); });
  byId("drift-words").textContent = families.find((f) => f.column === chosen.driftFigure).words;
  byId("drift-note").textContent = [
    data.methods[chosen.driftOf].seeds > 1 ? "Means over seeds." : "",
    "Layers from the first (blue) to the last (red); the whole model is dashed where it has a value.",
  ].filter(Boolean).join(" ");
  buildDriftPairs(again);
}

function buildDriftPairs(again) {
  const { layers, matrices } = driftOf();
  byId("drift-pairs").hidden = !matrices.length;
  if (!matrices.length) return;
  const rounds = matrices.map((m) => String(m.round));
  chosen.driftLayer = layers.includes(chosen.driftLayer) ? chosen.driftLayer : layers.at(-1);
  chosen.driftRound = rounds.includes(chosen.driftRound) ? chosen.driftRound : rounds.at(-1);
  choose(byId("drift-layer"), layers.map((l) => [l, l]), chosen.driftLayer, (layer) => { chosen.driftLayer = layer; again(); });
  choose(byId("drift-round"), rounds.map((t) => [t, t]), chosen.driftRound, (round) => { chosen.driftRound = round; again(); });
  byId("drift-map-note").textContent =
    `Models that clients trained in the round, and in the last row the server’s model after it${data.methods[chosen.driftOf].seeds > 1 ? "; of the first seed" : ""}. Dark: the two see the test examples alike, 1 being the same but for a rotation. Light rows are clients whose layer is unlike everybody’s; look at which data they have.`;
}

function layerColour(place, several) {
  const share = several > 1 ? place / (several - 1) : 1;
  return `hsl(${Math.round(215 - 210 * share)}, ${dark() ? 70 : 65}%, ${dark() ? 62 : 42}%)`;
}

function drawDrift() {
  if (!numbersOf(data.drift?.methods).length) return null;
  const family = data.drift.families.find((f) => f.column === chosen.driftFigure);
  const lines = driftOf().lines[chosen.driftFigure];
  const layers = lines.filter((l) => l.layer);
  const traces = lines.map((l) => {
    const place = layers.indexOf(l);
    return {
      type: "scatter", mode: l.rounds.length > 1 ? "lines" : "markers", meta: l.layer ? "layer" : "whole", name: plain(called(l.layer)), x: l.rounds, y: l.values,
      hovertemplate: `%{y:.4~g}<extra>${plain(called(l.layer))}</extra>`,
      marker: { size: 9, color: place < 0 ? variable("--soft") : layerColour(place, layers.length) },
      line: { width: place === layers.length - 1 ? 2.75 : 1.75, dash: place < 0 ? "dash" : "solid", color: place < 0 ? variable("--soft") : layerColour(place, layers.length) },
    };
  });
  const named = lines.length <= (narrow() ? 8 : 24);
  const few = Math.max(0, ...lines.flatMap((l) => l.rounds)) <= 8;
  return [draw(byId("drift-chart"), traces, {
    hovermode: "closest", showlegend: named,
    legend: { orientation: "h", x: 0, yref: "container", y: 0, yanchor: "bottom", font: { color: variable("--ink"), size: narrow() ? 10 : 12 } },
    xaxis: { title: { text: "round" }, rangemode: "tozero", ...(few ? { dtick: 1 } : {}) },
    yaxis: { title: { text: plain(family.name) }, rangemode: family.column === "update_cosine" ? "normal" : "tozero" },
  }), drawDriftPairs()].filter(Boolean);
}

function drawDriftPairs() {
  const { layers, matrices } = driftOf();
  if (!matrices.length) return null;
  const { clients, layers: several } = matrices.find((m) => String(m.round) === chosen.driftRound);
  const names = [...clients, "server"];
  const places = names.map((_, i) => i);
  const few = names.length <= (narrow() ? 12 : 24);
  const axis = { tickmode: few ? "array" : "auto", tickvals: places, ticktext: names.map(plain), showgrid: false, zeroline: false, showline: false };
  const matrix = several[layers.indexOf(chosen.driftLayer)];
  // One scale for all layers and rounds, so that they can be compared.
  const least = Math.floor(10 * Math.min(0.9, ...matrices.flatMap((m) => m.layers.flat(2)).filter((v) => v !== null))) / 10;
  byId("drift-map").style.height = `${Math.max(18, Math.min(34, 9 + 1.6 * names.length))}rem`;
  return draw(byId("drift-map"), [{
    type: "heatmap", x: places, y: places, z: matrix, zmin: Math.max(0, least), zmax: 1, xgap: 1, ygap: 1,
    text: matrix.map((row) => row.map((v) => (v === null ? "" : v.toFixed(2)))), texttemplate: names.length <= (narrow() ? 8 : 16) ? "%{text}" : "",
    customdata: matrix.map((row, i) => row.map((_, j) => [plain(names[i]), plain(names[j])])),
    hovertemplate: "%{customdata[0]} and %{customdata[1]}: %{z}<extra></extra>",
    colorscale: [[0, variable("--heat-low")], [1, variable("--heat-high")]],
    colorbar: { thickness: 10, outlinewidth: 0, tickfont: { color: variable("--soft") } },
  }], {
    hovermode: "closest",
    xaxis: { ...axis, title: { text: "client" } },
    yaxis: { ...axis, title: { text: "client" }, autorange: "reversed" },
  });
}
