function buildSplits() {
  const box = byId("split-list");
  box.replaceChildren();
  data.splits.forEach((split, n) => {
    if (data.splits.length > 1) box.append(element("h3", {}, split.folders.join(", ")));
    box.append(element("div", { class: split.counts ? "chart short" : "chart low", id: `split-${n}`, role: "img", "aria-labelledby": "splits-title" }));
    const partly = split.counts && split.order.length < split.clients
      ? `\nShown are the first ${split.order.length.toLocaleString("en")} of ${split.clients.toLocaleString("en")} clients.` : "";
    box.append(element("p", { class: "note lines" }, split.statistics + partly));
  });
}

function drawSplits() {
  return data.splits.map((split, n) => (split.counts ? drawHeatMap : drawSizes)(byId(`split-${n}`), split));
}

function drawHeatMap(box, split) {
  const places = split.order.map((_, i) => i);
  const quiet = { showgrid: false, zeroline: false, tickfont: { color: variable("--soft") } };
  const heat = {
    type: "heatmap", x: places, y: split.classes.map((_, i) => i), z: split.counts, zmin: 0,
    customdata: split.counts.map(() => split.names.map(plain)), text: split.counts.map((row, c) => row.map(() => plain(split.classes[c]))),
    hovertemplate: "client %{customdata}, class %{text}: %{z} examples<extra></extra>",
    colorscale: [[0, variable("--heat-low")], [1, variable("--heat-high")]],
    xgap: places.length <= 100 ? 1 : 0, ygap: split.classes.length <= 30 ? 1 : 0,
    colorbar: { thickness: 10, outlinewidth: 0, len: 0.78, y: 0, yanchor: "bottom", title: { text: narrow() ? "" : "examples", side: "right" }, tickfont: { color: variable("--soft") } },
  };
  const bars = {
    type: "bar", x: places, y: split.sizes, yaxis: "y2", marker: { color: variable("--bar") }, customdata: split.names.map(plain),
    hovertemplate: "client %{customdata}: %{y} examples<extra></extra>",
  };
  const few = split.classes.length <= 30;
  const names = few ? { tickmode: "array", tickvals: heat.y, ticktext: split.classes.map(plain) } : {};
  const called = split.named && places.length <= (narrow() ? 8 : 30)
    ? { tickmode: "array", tickvals: places, ticktext: split.names.map(plain), showticklabels: true, automargin: true } : { showticklabels: false };
  return draw(box, [heat, bars], {
    hovermode: "closest", bargap: places.length <= 100 ? 0.15 : 0,
    xaxis: { ...quiet, title: { text: `${places.length} clients, by their commonest class` }, ...called, ticks: "", showline: false, range: [-0.5, places.length - 0.5] },
    yaxis: { ...quiet, ...names, title: { text: "class" }, domain: [0, 0.78], range: [split.classes.length - 0.5, -0.5] },
    yaxis2: { ...quiet, domain: [0.82, 1], title: { text: "size" }, nticks: 3, rangemode: "tozero", automargin: true },
  });
}

function drawSizes(box, split) {
  const { edges, numbers } = split.histogram;
  const bars = {
    type: "bar", x: numbers.map((_, i) => (edges[i] + edges[i + 1] - 1) / 2), y: numbers, width: numbers.map((_, i) => (edges[i + 1] - edges[i]) * 0.92),
    customdata: numbers.map((_, i) => [edges[i], edges[i + 1] - 1]), marker: { color: variable("--bar") },
    hovertemplate: "%{y} clients with %{customdata[0]} to %{customdata[1]} examples<extra></extra>",
  };
  return draw(box, [bars], {
    hovermode: "closest",
    xaxis: { title: { text: "examples of a client" } },
    yaxis: { title: { text: "clients" }, rangemode: "tozero" },
  });
}
