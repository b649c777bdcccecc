function layout(extra) {
  const axis = {
    gridcolor: variable("--grid"),
    linecolor: variable("--line"),
    zeroline: false,
    automargin: true,
    tickfont: { color: variable("--soft") },
  };
  const { xaxis, yaxis, ...rest } = extra;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: narrow() ? 11 : 13, color: variable("--ink") },
    margin: { l: 8, r: narrow() ? 8 : 16, t: 12, b: 8 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: variable("--bar"), activecolor: variable("--ink") },
    showlegend: false,
    hovermode: narrow() ? "closest" : "x unified",
    hoverlabel: { bgcolor: variable("--panel"), bordercolor: variable("--line"), font: { color: variable("--ink") } },
    dragmode: narrow() ? false : "zoom", // on a phone, a finger scrolls the page
    xaxis: { ...axis, showgrid: false, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}

const SETTINGS = {
  responsive: true,
  displaylogo: false,
  modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]], // and none that leaves the page
};

function draw(box, traces, arrangement) {
  return Plotly.react(box, traces, layout(arrangement), { ...SETTINGS, displayModeBar: narrow() ? false : "hover" });
}

function marks(method) {
  return { symbol: method.symbol, size: narrow() ? 7 : 9, maxdisplayed: 8, color: colour(method) };
}
