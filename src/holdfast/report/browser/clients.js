function drawClients() {
  const about = data.clients[chosen.clientMetric];
  if (!about) return null;
  const traces = about.curves.flatMap((curve, number) => {
    if (!curve || hidden.has(number)) return [];
    const method = data.methods[number];
    return [{
      type: "scatter", mode: curve.values.length > 1 ? "lines+markers" : "markers", meta: "line",
      name: plain(method.name), x: curve.shares, y: curve.values,
      hovertemplate: `%{y:.4~g}<extra>${plain(method.name)}</extra>`,
      line: { color: colour(method), width: 2.25, dash: method.dash }, marker: marks(method),
    }];
  });
  return draw(byId("clients-chart"), traces, {
    xaxis: {
      title: { text: "clients, from the worst served to the best" }, tickformat: ".0%", range: [-0.01, 1.01],
      unifiedhovertitle: { text: "%{x:.0%} of clients" },
    },
    yaxis: { title: { text: plain(readable(chosen.clientMetric)) } },
    shapes: [{ type: "rect", xref: "x", yref: "paper", x0: 0, x1: 0.1, y0: 0, y1: 1, layer: "below", line: { width: 0 }, fillcolor: faded(variable("--soft"), 0.12) }],
    annotations: [{ x: 0.1, xref: "x", y: data.lower[chosen.clientMetric] ? 0.98 : 0.02, yref: "paper", xanchor: "left", showarrow: false, text: "← worst tenth", font: { color: variable("--soft") } }],
  });
}

function buildClients() {
  const about = data.clients[chosen.clientMetric];
  const better = data.lower[chosen.clientMetric] ? "low" : "high";
  buildTable(byId("clients-table"), about.table.columns, about.table.rows, about.table.columns.map(() => better));
  const missing = data.methods.filter((_, n) => !about.curves[n]).map((m) => m.name);
  byId("clients-note").textContent = [
    `Each of ${about.clients.toLocaleString("en")} clients’ model on test examples like its own, at the end of training; the mean of the seeds’ sorted curves.`,
    "The worst tenth is the mean over the tenth of clients served worst: an average can hide them.",
    missing.length ? `No complete run of ${missing.join(", ")} yet.` : "",
  ].filter(Boolean).join(" ");
}
