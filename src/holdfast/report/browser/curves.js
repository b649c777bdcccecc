// On a logarithmic axis what has an upper end is shown by how far it is from there: 1 - accuracy.
const distanceTo = () => (chosen.log ? data.most[chosen.metric] ?? null : null);
const placed = (value) => (distanceTo() === null ? value : distanceTo() - value);
const axisName = () => (distanceTo() === null ? readable(chosen.metric) : `${distanceTo()} − ${readable(chosen.metric)}`);
const lowerIsBetter = () => (distanceTo() === null ? data.lower[chosen.metric] : true);

function curveOf(number) {
  const found = data.curves[number].metrics[chosen.metric];
  if (!found) return null;
  const x = data.curves[number].grids[found.grid][chosen.axis];
  return { ...found, x, y: found.mean.map(placed), scatter: found.deviation ?? found.mean.map(() => 0) };
}

function band(number, curve) {
  const floor = Math.min(...curve.y.filter((v) => v > 0)) / 2; // a logarithm has no place for 0
  const low = curve.y.map((m, i) => m - curve.scatter[i]).map((v) => (chosen.log ? Math.max(v, floor) : v));
  const high = curve.y.map((m, i) => m + curve.scatter[i]);
  return {
    type: "scatter", mode: "lines", hoverinfo: "skip", meta: "band",
    x: [...curve.x, ...curve.x.toReversed()],
    y: [...high, ...low.toReversed()],
    fill: "toself", fillcolor: faded(colour(data.methods[number]), dark() ? 0.22 : 0.17), line: { width: 0 },
  };
}

function line(number, curve) {
  const method = data.methods[number];
  const seeds = (i) => (Array.isArray(curve.seeds) ? ` (${curve.seeds[i]} seeds)` : "");
  const where = narrow() ? `<br>${AXES[chosen.axis].hover}` : "";
  return {
    type: "scatter", mode: curve.y.length > 1 ? "lines+markers" : "markers", meta: "line",
    name: plain(method.name), x: curve.x, y: curve.y,
    customdata: curve.mean.map((value, i) => figureAndSpread(value, curve.scatter[i]) + seeds(i)),
    hovertemplate: `%{customdata}${where}<extra>${plain(method.name)}</extra>`,
    line: { color: colour(method), width: 2.25, dash: method.dash }, marker: marks(method),
  };
}

function targetLine(last) {
  return {
    type: "scatter", mode: "lines+text", hoverinfo: "skip", meta: "target", cliponaxis: false,
    x: [0, last], y: [placed(data.target), placed(data.target)],
    text: [` target ${data.target}`, ""], textposition: "top right", textfont: { color: variable("--soft") },
    line: { color: variable("--soft"), width: 1.25, dash: "dash" },
  };
}

// Of the round that was kept, if that is another than the last.
const endOf = (number, curve) => (chosen.metric === data.metric ? data.methods[number].final : null) ?? curve.mean.at(-1);

function keptRounds(number, curve) {
  const method = data.methods[number];
  const rounds = data.curves[number].grids[data.curves[number].metrics[chosen.metric].grid].rounds;
  const at = [...new Set(method.kept)].map((round) => rounds.indexOf(round)).filter((i) => i >= 0);
  return {
    type: "scatter", mode: "markers", meta: "kept", name: plain(method.name),
    x: at.map((i) => curve.x[i]), y: at.map((i) => curve.y[i]), customdata: at.map((i) => rounds[i]),
    hovertemplate: `round %{customdata} is kept<extra>${plain(method.name)}</extra>`,
    marker: { symbol: "circle-open", size: 15, color: colour(method), line: { width: 2.25 } },
  };
}

// Where training alone or on everybody's data ended, across the whole picture: rounds and bytes mean nothing there.
function referenceLine(number, curve, last) {
  const method = data.methods[number];
  const end = placed(endOf(number, curve));
  return {
    type: "scatter", mode: "lines", meta: "reference", name: plain(method.name),
    x: [0, last], y: [end, end],
    customdata: [0, 1].map(() => figureAndSpread(endOf(number, curve), curve.scatter.at(-1))),
    hovertemplate: `%{customdata} in the end<extra>${plain(method.name)}</extra>`,
    line: { color: colour(method), width: 1.75, dash: "longdashdot" },
  };
}

function referenceName(number, curve) {
  const method = data.methods[number];
  const end = endOf(number, curve);
  const y = chosen.log ? Math.log10(placed(end)) : placed(end);
  return {
    xref: "paper", x: 1, xanchor: "right", yref: "y", y, yanchor: "bottom", showarrow: false,
    text: plain(`${method.name} ${Number(end.toPrecision(3))}`),
    font: { color: colour(method), size: narrow() ? 10 : 12 }, bgcolor: faded(variable("--ground"), 0.75),
  };
}

// From the first fifth on: in the rise before it lines are all over the place, and it would flatten what follows.
function whereLinesDiffer(contest, lines) {
  const last = Math.max(...contest.map(([, c]) => c.x.at(-1)));
  const settled = contest.flatMap(([, c]) =>
    c.y.flatMap((v, i) => (c.x[i] >= 0.2 * last ? [v - c.scatter[i], v + c.scatter[i]] : [])));
  const whole = contest.flatMap(([, c]) => c.y.map((v, i) => [v - c.scatter[i], v + c.scatter[i]]).flat());
  const seen = [...settled, ...lines].filter((v) => Number.isFinite(v) && (!chosen.log || v > 0));
  if (!seen.length) return null;
  const scale = (v) => (chosen.log ? Math.log10(v) : v);
  const [low, high] = [scale(Math.min(...seen)), scale(Math.max(...seen))];
  const all = whole.filter((v) => Number.isFinite(v) && (!chosen.log || v > 0)).map(scale);
  const room = 0.06 * (high - low || Math.abs(high) || 1);
  // A picture that shows nearly everything shows everything.
  return high - low > 0.75 * (Math.max(...all) - Math.min(...all)) ? null : [low - room, high + room];
}

function valueRange(contest, lines) {
  if (chosen.whole) return null;
  if (data.range && chosen.metric === data.metric && !chosen.log) return data.range;
  return contest.length ? whereLinesDiffer(contest, lines) : null;
}

function drawCurves() {
  const shown = data.methods.map((_, number) => [number, curveOf(number)]).filter(([n, c]) => c && !hidden.has(n));
  const contest = shown.filter(([n]) => !isReference(n));
  const ends = shown.filter(([n]) => isReference(n));
  const last = Math.max(...(contest.length ? contest : ends).map(([, c]) => c.x.at(-1)), 0);
  const aim = data.target !== null && chosen.metric === data.metric;
  const traces = [
    ...contest.filter(([, c]) => c.deviation).map(([n, c]) => band(n, c)),
    ...(aim ? [targetLine(last)] : []),
    ...ends.map(([n, c]) => referenceLine(n, c, last)),
    ...contest.map(([n, c]) => line(n, c)),
    ...contest.filter(([n]) => data.methods[n].kept.length).map(([n, c]) => keptRounds(n, c)),
  ];
  const axis = AXES[chosen.axis];
  const range = valueRange(contest, [...(aim ? [placed(data.target)] : []), ...ends.map(([n, c]) => placed(endOf(n, c)))]);
  describeCurves(range !== null);
  // Rounds are whole: of few, no ticks between them.
  const few = chosen.axis === "rounds" && Math.max(0, ...traces.flatMap((t) => t.x ?? [])) <= 8;
  return draw(byId("curves-chart"), traces, {
    xaxis: { title: { text: axis.title }, rangemode: "tozero", ...(few ? { dtick: 1 } : {}), unifiedhovertitle: { text: axis.hover } },
    yaxis: { title: { text: plain(axisName()) }, type: chosen.log ? "log" : "linear", ...(range ? { range } : { autorange: true }) },
    annotations: ends.map(([n, c]) => referenceName(n, c)),
    // the tools stand above the names of the lines
    margin: { l: 8, r: narrow() ? 8 : 16, t: narrow() ? 12 : 34, b: 8 },
  });
}

function describeCurves(zoomed) {
  const several = data.methods.some((m) => m.seeds > 1);
  const unequal = data.curves.some((c) => Array.isArray(c.metrics[chosen.metric]?.seeds));
  const without = data.methods.filter((_, n) => !data.curves[n].metrics[chosen.metric]).map((m) => m.name);
  const start = data.curves.some((c) => c.metrics[chosen.metric] && c.grids[c.metrics[chosen.metric].grid].rounds[0] === 0);
  const parts = [
    several ? "Lines are means over seeds, bands ± one standard deviation." : "One seed; no band.",
    start ? "Round 0 is the model before training." : "",
    zoomed ? "The axis shows the values where lines differ; tick “whole range” for all of them." : "",
    references().length ? `${listed(references().map((m) => m.name))}: where it ended, as a line to compare with.` : "",
    data.methods.some((m) => m.kept.length) ? "Rings: the rounds that were kept, of which all results at the end are." : "",
    unequal ? "Seeds are of unequal length: the mean is over those that got so far." : "",
    without.length ? `Not measured by ${without.join(", ")}.` : "",
    lowerIsBetter() ? "Lower is better." : "",
  ];
  byId("curves-note").textContent = parts.filter(Boolean).join(" ");
}
