function drawSweep() {
  if (!data.sweep) return null;
  const key = data.sweep.keys.find((k) => k.name === chosen.swept);
  const figure = data.sweep.figures.find((f) => f.name === chosen.figure);
  const known = (number) => (hidden.has(number) ? null : figure.values[number]);
  const traces = key.lines.filter((l) => l.methods.some(known)).map((l) => {
    const values = l.methods.map(known);
    return {
      type: "scatter", mode: "lines+markers", meta: "line", name: plain(l.label),
      x: l.x, y: values.map((v) => v && v[0]), // what is not known leaves a gap
      customdata: l.words.map((word, i) => [plain(word), values[i]?.[1] ?? 0]),
      error_y: { type: "data", array: values.map((v) => v?.[1] ?? 0), visible: values.some((v) => v?.[1] > 0), thickness: 1.25, width: 4, color: colour(l) },
      hovertemplate: `${plain(key.name)} %{customdata[0]}: %{y:.4~g}${values.some((v) => v && v[1] !== null) ? " ± %{customdata[1]:.2~g}" : ""}<extra>${plain(l.label)}</extra>`,
      line: { color: colour(l), width: 2.25, dash: l.dash }, marker: { ...marks(l), maxdisplayed: 0 },
    };
  });
  const seen = key.lines.flatMap((l) => l.methods);
  const without = data.methods.some((_, n) => !seen.includes(n));
  const missing = seen.some((n) => figure.values[n] === null);
  byId("sweep-note").textContent = [
    data.methods.some((m) => m.seeds > 1) ? "Means over seeds, bars ± one standard deviation." : "One seed.",
    missing ? "Left out: points that diverged or did not get there with every seed." : "",
    without ? `Methods without several values of ${readable(key.name)} are not shown.` : "",
  ].filter(Boolean).join(" ");
  const named = { tickmode: "array", tickvals: key.ticks, ticktext: key.words.map(plain) };
  return draw(byId("sweep-chart"), traces, {
    hovermode: "closest", showlegend: true,
    legend: { orientation: "h", x: 0, yref: "container", y: 0, yanchor: "bottom", font: { color: variable("--ink") } },
    xaxis: { title: { text: plain(readable(key.name)) }, type: key.scale, ...(key.scale === "category" ? {} : named) },
    yaxis: { title: { text: plain(readable(figure.name)) } },
  });
}
