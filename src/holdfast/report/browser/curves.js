function curveOf(number) {
  const found = data.curves[number].metrics[chosen.metric];
  if (!found) return null;
  return { ...found, x: data.curves[number].grids[found.grid][chosen.axis] };
}

function band(number, curve) {
  const floor = Math.min(...curve.mean.filter((v) => v > 0)) / 2; // a logarithm has no place for 0
  const low = curve.mean.map((m, i) => m - curve.deviation[i]).map((v) => (chosen.log ? Math.max(v, floor) : v));
  const high = curve.mean.map((m, i) => m + curve.deviation[i]);
  return {
    type: "scatter", mode: "lines", hoverinfo: "skip", meta: "band",
    x: [...curve.x, ...curve.x.toReversed()],
    y: [...high, ...low.toReversed()],
    fill: "toself", fillcolor: faded(colour(data.methods[number]), dark() ? 0.22 : 0.17), line: { width: 0 },
  };
}

function line(number, curve) {
  const method = data.methods[number];
  const seeds = Array.isArray(curve.seeds) ? curve.seeds : curve.mean.map(() => curve.seeds);
  const spread = curve.deviation ? " ± %{customdata[0]:.2~g}" : "";
  const partly = Array.isArray(curve.seeds) ? " (%{customdata[1]} seeds)" : "";
  const where = narrow() ? `<br>${AXES[chosen.axis].hover}` : "";
  return {
    type: "scatter", mode: curve.mean.length > 1 ? "lines+markers" : "markers", meta: "line",
    name: plain(method.label), x: curve.x, y: curve.mean,
    customdata: seeds.map((n, i) => [curve.deviation ? curve.deviation[i] : 0, n]),
    hovertemplate: `%{y:.4~g}${spread}${partly}${where}<extra>${plain(method.label)}</extra>`,
    line: { color: colour(method), width: 2.25, dash: method.dash }, marker: marks(method),
  };
}

function targetLine(curves) {
  const last = Math.max(...curves.map(([, c]) => c.x.at(-1)), 0);
  return {
    type: "scatter", mode: "lines+text", hoverinfo: "skip", meta: "target", cliponaxis: false,
    x: [0, last], y: [data.target, data.target],
    text: [` target ${data.target}`, ""], textposition: "top right", textfont: { color: variable("--soft") },
    line: { color: variable("--soft"), width: 1.25, dash: "dash" },
  };
}

function drawCurves() {
  const shown = data.methods.map((_, number) => [number, curveOf(number)]).filter(([n, c]) => c && !hidden.has(n));
  const traces = [
    ...shown.filter(([, c]) => c.deviation).map(([n, c]) => band(n, c)),
    ...(data.target !== null && chosen.metric === data.metric ? [targetLine(shown)] : []),
    ...shown.map(([n, c]) => line(n, c)),
  ];
  const axis = AXES[chosen.axis];
  describeCurves();
  return draw(byId("curves-chart"), traces, {
    xaxis: { title: { text: axis.title }, rangemode: "tozero", unifiedhovertitle: { text: axis.hover } },
    yaxis: { title: { text: plain(readable(chosen.metric)) }, type: chosen.log ? "log" : "linear" },
  });
}

function describeCurves() {
  const several = data.methods.some((m) => m.seeds > 1);
  const unequal = data.curves.some((c) => Array.isArray(c.metrics[chosen.metric]?.seeds));
  const without = data.methods.filter((_, n) => !data.curves[n].metrics[chosen.metric]).map((m) => m.label);
  const parts = [
    several ? "Lines are means over seeds, bands ± one standard deviation." : "One seed; no band.",
    unequal ? "Seeds are of unequal length: the mean is over those that got so far." : "",
    without.length ? `Not measured by ${without.join(", ")}.` : "",
    data.lower[chosen.metric] ? "Lower is better." : "",
  ];
  byId("curves-note").textContent = parts.filter(Boolean).join(" ");
}
