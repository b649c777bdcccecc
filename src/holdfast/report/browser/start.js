function fill(select, names, current, change) {
  select.replaceChildren(...names.map((name) => element("option", { value: name }, readable(name))));
  select.value = current;
  select.onchange = () => change(select.value);
}

// What was chosen before stays chosen where it is still there.
const still = (choice, names) => (names.includes(choice) ? choice : names[0]);

function buildControls() {
  chosen.metric = still(chosen.metric, data.metrics);
  fill(byId("metric"), data.metrics, chosen.metric, (name) => { chosen.metric = name; redraw(drawCurves); });
  byId("axis").replaceChildren(byId("axis").querySelector("legend"));
  for (const [key, { name }] of Object.entries(AXES)) {
    const input = element("input", { type: "radio", name: "axis", value: key });
    input.checked = key === chosen.axis;
    input.addEventListener("change", () => { chosen.axis = key; redraw(drawCurves); });
    byId("axis").append(element("label", {}, input, element("span", {}, name)));
  }
  byId("log").onchange = (event) => { chosen.log = event.target.checked; redraw(drawCurves); };
  byId("whole").onchange = (event) => { chosen.whole = event.target.checked; redraw(drawCurves); };
  if (data.sweep) {
    byId("sweep").hidden = false;
    const names = (list) => list.map((one) => one.name);
    chosen.swept = still(chosen.swept, names(data.sweep.keys));
    chosen.figure = still(chosen.figure, names(data.sweep.figures));
    fill(byId("sweep-key"), names(data.sweep.keys), chosen.swept, (name) => { chosen.swept = name; redraw(drawSweep); });
    fill(byId("sweep-figure"), names(data.sweep.figures), chosen.figure, (name) => { chosen.figure = name; redraw(drawSweep); });
  }
  const measured = Object.keys(data.clients);
  // Of a few sites the table says it all.
  byId("clients").hidden = !measured.length || (data.sites !== null && data.sites.sites.length < 10);
  if (!measured.length) return;
  chosen.clientMetric = still(chosen.clientMetric, measured);
  fill(byId("client-metric"), measured, chosen.clientMetric, (name) => { chosen.clientMetric = name; buildClients(); redraw(drawClients); });
  buildClients();
}

function buildTheme() {
  const button = byId("theme");
  const show = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light theme" : "Dark theme";
  };
  show(document.documentElement.dataset.theme);
  const change = (theme) => { show(theme); recolourSwatches(); drawAll(); };
  button.addEventListener("click", () => change(dark() ? "light" : "dark"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => change(event.matches ? "dark" : "light"));
}

// ---------------------------------------------------------------- drawing

// Until plotly is unpacked there is nothing to draw with; everything is drawn once it is.
function redraw(...charts) {
  return window.Plotly ? Promise.all(charts.flatMap((chart) => chart())) : Promise.resolve();
}
const drawMethods = () => redraw(drawCurves, drawPairs, drawSweep, drawClients, drawConfidence);
const drawAll = () => redraw(drawCurves, drawPairs, drawSweep, drawClients, drawClasses, drawDrift, drawConfidence, drawSplits);

async function unpackPlotly() {
  const packed = Uint8Array.from(atob(byId("plotly").textContent), (c) => c.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = element("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
}

function apologise(error) {
  for (const box of document.querySelectorAll(".chart"))
    box.replaceChildren(element("p", { class: "note" }, `The charts need a browser of 2023 or later (${error}). The tables are complete.`));
}

function build() {
  byId("summary").textContent = unbroken(data.summary);
  buildVerdict();
  buildFlags();
  buildSettings();
  buildHighlights();
  buildChips();
  buildStandings();
  buildPairs();
  buildSites();
  buildClasses();
  buildDrift();
  buildConfidence();
  buildPrivacy();
  buildLedger();
  buildSplits();
  buildControls();
  buildConfiguration();
  buildReproduce();
}

build();
buildTheme();
follow();
let wasNarrow = narrow();
addEventListener("resize", () => {
  if (wasNarrow !== narrow()) drawAll();
  wasNarrow = narrow();
});
unpackPlotly().then(drawAll).catch(apologise).finally(() => (document.documentElement.dataset.ready = "yes"));
