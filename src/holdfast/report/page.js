"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set(); // numbers of the methods not shown
  const AXES = {
    rounds: { name: "rounds", title: "round", hover: "round %{x}" },
    megabytes: { name: "MB", title: "megabytes, down and up", hover: "%{x:,.4~g} MB" },
    seconds: { name: "seconds", title: "seconds, without compilation", hover: "%{x:.4~g} s" },
  };
  const chosen = { axis: "rounds", metric: data.metric, log: false, clientMetric: null, swept: null, figure: null };

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
  const readable = (name) => name.replaceAll("_", " ");
  const unbroken = (text) => text.replaceAll(" ± ", "\u00a0±\u00a0");
  const narrow = () => innerWidth <= 640;

  // Plotly reads a little markup in its texts; labels must come out as they are.
  const plain = (text) =>
    String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

  function faded(hex, opacity) {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    return `rgba(${r},${g},${b},${opacity})`;
  }

  // ---------------------------------------------------------------- methods

  const SHAPES = {
    circle: "M14 3a4 4 0 1 1 0 8a4 4 0 1 1 0-8z",
    square: "M10.5 3.5h7v7h-7z",
    diamond: "M14 2l5 5-5 5-5-5z",
    "triangle-up": "M14 2.5l4.8 8h-9.6z",
    "triangle-down": "M14 11.5l4.8-8h-9.6z",
    cross: "M12.3 2.5h3.4v2.8h2.8v3.4h-2.8v2.8h-3.4v-2.8h-2.8v-3.4h2.8z",
    x: "M11 2.5l3 3 3-3 1.5 1.5-3 3 3 3-1.5 1.5-3-3-3 3-1.5-1.5 3-3-3-3z",
    star: "M14 1.5l1.6 3.8 4 .3-3.1 2.6 1 4-3.5-2.2-3.5 2.2 1-4-3.1-2.6 4-.3z",
  };
  const DASHES = { solid: "", dash: "5 3", dot: "2 2", dashdot: "5 2 1 2" };

  function swatch(method) {
    return svg(
      "svg",
      { class: "swatch", viewBox: "0 0 28 14", "aria-hidden": "true", "data-method": data.methods.indexOf(method) },
      svg("path", { d: "M1 7h26", "stroke-width": 2, "stroke-dasharray": DASHES[method.dash], stroke: colour(method) }),
      svg("path", { d: SHAPES[method.symbol], fill: colour(method) }),
    );
  }

  function recolourSwatches() {
    for (const old of document.querySelectorAll(".swatch"))
      old.replaceWith(swatch(data.methods[Number(old.dataset.method)]));
  }

  function buildChips() {
    const box = byId("chips");
    data.methods.forEach((method, number) => {
      const chip = element("button", { type: "button", class: "chip", "aria-pressed": "true", title: method.label });
      chip.append(swatch(method), element("span", {}, method.label));
      chip.addEventListener("click", () => toggle(number));
      box.append(chip);
    });
    const all = element("button", { type: "button", class: "quiet", id: "show-all" }, "Show all");
    all.hidden = true;
    all.addEventListener("click", () => {
      hidden.clear();
      box.querySelector(".chip").focus();
      showHidden();
    });
    box.append(all);
  }

  function toggle(number) {
    if (!hidden.delete(number)) hidden.add(number);
    showHidden();
  }

  function showHidden() {
    document.querySelectorAll(".chip").forEach((chip, n) => chip.setAttribute("aria-pressed", String(!hidden.has(n))));
    byId("show-all").hidden = hidden.size === 0;
    for (const row of document.querySelectorAll("tr[data-method]"))
      row.classList.toggle("off", hidden.has(Number(row.dataset.method)));
    drawMethods();
  }

  // ---------------------------------------------------------------- highlights

  function buildHighlights() {
    for (const { title, value, method, note } of data.highlights) {
      const card = element("div", { class: "card" });
      card.append(
        element("div", { class: "what" }, readable(title)),
        element("div", { class: "value" }, unbroken(value)),
        element("div", { class: "who" }, swatch(data.methods[method]), element("span", {}, data.methods[method].label)),
      );
      if (note) card.append(element("div", { class: "beside" }, unbroken(note)));
      byId("highlights").append(card);
    }
  }

  // ---------------------------------------------------------------- tables

  function methodHeader(number) {
    const method = data.methods[number];
    const inside = element("div", {}, swatch(method), element("span", { title: method.label }, method.label));
    if (method.state) inside.append(element("span", { class: "badge" }, method.state));
    return element("th", { scope: "row" }, inside);
  }

  function buildTable(table, columns, rows, best) {
    const head = element("tr");
    const body = element("tbody");
    ["method", ...columns].forEach((name, place) => {
      const button = element("button", { type: "button" }, readable(name));
      const cell = element("th", { scope: "col", "aria-sort": "none" }, button);
      button.addEventListener("click", () => sortBy(table, rows, place));
      head.append(cell);
    });
    rows.forEach((cells, number) => {
      if (!cells) return;
      const row = element("tr", { "data-method": number }, methodHeader(number));
      row.classList.toggle("off", hidden.has(number));
      cells.forEach((cell, place) => {
        const shown = element("td", {}, cell.text === "-" ? "–" : cell.text);
        if (best[place] && rows.length > 1 && isBest(rows, place, number, best[place])) shown.classList.add("best");
        row.append(shown);
      });
      body.append(row);
    });
    table.replaceChildren(element("thead", {}, head), body);
  }

  function isBest(rows, place, number, direction) {
    const values = rows.map((cells) => (cells ? cells[place].value : null)).filter((v) => v !== null);
    return rows[number][place].value === (direction === "low" ? Math.min(...values) : Math.max(...values));
  }

  function sortBy(table, rows, place) {
    const heads = [...table.tHead.rows[0].cells];
    const ascending = heads[place].getAttribute("aria-sort") !== "ascending";
    heads.forEach((head, n) => head.setAttribute("aria-sort", n !== place ? "none" : ascending ? "ascending" : "descending"));
    const key = (row) => {
      const number = Number(row.dataset.method);
      return place === 0 ? data.methods[number].label : rows[number][place - 1].value;
    };
    const ordered = [...table.tBodies[0].rows].sort((a, b) => compare(key(a), key(b), ascending));
    table.tBodies[0].append(...ordered);
  }

  // What was not reached stays at the end in both directions: it is no number.
  function compare(a, b, ascending) {
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return ascending ? order : -order;
  }

  function buildStandings() {
    const { columns, rows } = data.table;
    const goal = data.target === null ? "Where each method ended" : `What it took to reach ${readable(data.metric)} ${data.target}`;
    byId("standings-title").textContent = goal;
    // Null where nobody said which way is better: then none of them is.
    const lower = data.lower[data.metric];
    const final = lower === null ? "" : lower ? "low" : "high";
    const best = columns.map((name) =>
      name.startsWith("final") ? final : name.startsWith("saving") ? "high" : name.endsWith("in all") ? "" : "low");
    buildTable(byId("standings-table"), columns, rows, best);
    const several = data.methods.some((m) => m.seeds > 1);
    const parts = [several ? "Mean ± standard deviation over seeds." : "A single seed."];
    if (data.window > 1) parts.push(`Final: the mean of the last ${data.window} evaluations; curves are of single ones.`);
    parts.push(...data.notes, "Megabytes count both directions. Click a heading to sort.");
    byId("standings-note").textContent = parts.join("\n");
  }

  // ---------------------------------------------------------------- charts

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

  function drawClients() {
    const about = data.clients[chosen.clientMetric];
    if (!about) return null;
    const traces = about.curves.flatMap((curve, number) => {
      if (!curve || hidden.has(number)) return [];
      const method = data.methods[number];
      return [{
        type: "scatter", mode: curve.values.length > 1 ? "lines+markers" : "markers", meta: "line",
        name: plain(method.label), x: curve.shares, y: curve.values,
        hovertemplate: `%{y:.4~g}<extra>${plain(method.label)}</extra>`,
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
    const missing = data.methods.filter((_, n) => !about.curves[n]).map((m) => m.label);
    byId("clients-note").textContent = [
      `Each of ${about.clients.toLocaleString("en")} clients’ model on test examples like its own, at the end of training; the mean of the seeds’ sorted curves.`,
      "The worst tenth is the mean over the tenth of clients served worst: an average can hide them.",
      missing.length ? `No complete run of ${missing.join(", ")} yet.` : "",
    ].filter(Boolean).join(" ");
  }

  // ---------------------------------------------------------------- splits

  function buildSplits() {
    data.splits.forEach((split, n) => {
      const box = byId("split-list");
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
      customdata: split.counts.map(() => split.order), text: split.counts.map((row, c) => row.map(() => plain(split.classes[c]))),
      hovertemplate: "client %{customdata}, class %{text}: %{z} examples<extra></extra>",
      colorscale: [[0, variable("--heat-low")], [1, variable("--heat-high")]],
      xgap: places.length <= 100 ? 1 : 0, ygap: split.classes.length <= 30 ? 1 : 0,
      colorbar: { thickness: 10, outlinewidth: 0, len: 0.78, y: 0, yanchor: "bottom", title: { text: narrow() ? "" : "examples", side: "right" }, tickfont: { color: variable("--soft") } },
    };
    const bars = {
      type: "bar", x: places, y: split.sizes, yaxis: "y2", marker: { color: variable("--bar") }, customdata: split.order,
      hovertemplate: "client %{customdata}: %{y} examples<extra></extra>",
    };
    const few = split.classes.length <= 30;
    const names = few ? { tickmode: "array", tickvals: heat.y, ticktext: split.classes.map(plain) } : {};
    return draw(box, [heat, bars], {
      hovermode: "closest", bargap: places.length <= 100 ? 0.15 : 0,
      xaxis: { ...quiet, title: { text: `${places.length} clients, by their commonest class` }, showticklabels: false, ticks: "", showline: false, range: [-0.5, places.length - 0.5] },
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

  // ---------------------------------------------------------------- configuration

  const TOML = /(#[^\n]*)|("(?:\\.|[^"\\\n])*"|'[^'\n]*')|(^[ \t]*\[\[?[^\]\n]+\]\]?)|(^[ \t]*[\w.-]+(?=[ \t]*=))|(\btrue\b|\bfalse\b|[-+]?\b\d[\w.+-]*)/gm;
  const KINDS = ["comment", "text", "table", "key", "number"];

  function highlighted(text) {
    const shown = element("code");
    let at = 0;
    for (const match of text.matchAll(TOML)) {
      const kind = KINDS[match.slice(1).findIndex((part) => part !== undefined)];
      shown.append(text.slice(at, match.index), element("span", { class: `toml-${kind}` }, match[0]));
      at = match.index + match[0].length;
    }
    shown.append(text.slice(at));
    return shown;
  }

  function buildConfiguration() {
    for (const { folder, text } of data.configurations) {
      const box = element("details");
      box.append(element("summary", {}, `${folder}/experiment.toml`), element("pre", { tabindex: "0" }, highlighted(text)));
      byId("configuration-list").append(box);
    }
  }

  function command(text) {
    const button = element("button", { type: "button", class: "quiet" }, "Copy");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text).then(() => (button.textContent = "Copied"), () => (button.textContent = "Select it"));
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    return element("div", { class: "command" }, element("pre", { tabindex: "0" }, text), button);
  }

  function buildReproduce() {
    const box = byId("reproduce-list");
    box.append(element("p", { class: "note" }, "The experiment file holds everything that was set, on the command line too. With the same versions on the same kind of machine the results are the same, seconds aside."));
    for (const about of data.environments) {
      if (data.environments.length > 1) box.append(element("h3", {}, about.folder));
      const facts = element("dl");
      const fact = (name, value) => {
        if (value !== undefined && value !== null && value !== "") facts.append(element("dt", {}, name), element("dd", {}, value));
      };
      fact("started by", about.command && element("code", {}, about.command));
      fact("on", about.started);
      fact("versions", Object.entries({ Python: about.python, ...about.packages }).filter(([, v]) => v).map(([n, v]) => `${n} ${v}`).join(", "));
      fact("machine", [about.processor, about.cores && `${about.cores} cores`, about.system].filter(Boolean).join(", "));
      fact("devices", (about.devices || []).join(", "));
      box.append(command(`holdfast run ${quoted(`${about.folder}/experiment.toml`)}`), facts);
    }
  }

  const quoted = (path) => (/^[\w./+-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);

  // ---------------------------------------------------------------- controls and theme

  function fill(select, names, current, change) {
    select.append(...names.map((name) => element("option", { value: name }, readable(name))));
    select.value = current;
    select.addEventListener("change", () => change(select.value));
  }

  function buildControls() {
    fill(byId("metric"), data.metrics, chosen.metric, (name) => { chosen.metric = name; redraw(drawCurves); });
    for (const [key, { name }] of Object.entries(AXES)) {
      const input = element("input", { type: "radio", name: "axis", value: key });
      input.checked = key === chosen.axis;
      input.addEventListener("change", () => { chosen.axis = key; redraw(drawCurves); });
      byId("axis").append(element("label", {}, input, element("span", {}, name)));
    }
    byId("log").addEventListener("change", (event) => { chosen.log = event.target.checked; redraw(drawCurves); });
    if (data.sweep) {
      byId("sweep").hidden = false;
      const names = (list) => list.map((one) => one.name);
      [chosen.swept, chosen.figure] = [data.sweep.keys[0].name, data.sweep.figures[0].name];
      fill(byId("sweep-key"), names(data.sweep.keys), chosen.swept, (name) => { chosen.swept = name; redraw(drawSweep); });
      fill(byId("sweep-figure"), names(data.sweep.figures), chosen.figure, (name) => { chosen.figure = name; redraw(drawSweep); });
    }
    const measured = Object.keys(data.clients);
    if (!measured.length) return;
    byId("clients").hidden = false;
    chosen.clientMetric = measured[0];
    fill(byId("client-metric"), measured, measured[0], (name) => { chosen.clientMetric = name; buildClients(); redraw(drawClients); });
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
  const drawMethods = () => redraw(drawCurves, drawSweep, drawClients);
  const drawAll = () => redraw(drawCurves, drawSweep, drawClients, drawSplits);

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

  buildHighlights();
  buildChips();
  buildStandings();
  buildSplits();
  buildControls();
  buildConfiguration();
  buildReproduce();
  buildTheme();
  let wasNarrow = narrow();
  addEventListener("resize", () => {
    if (wasNarrow !== narrow()) drawAll();
    wasNarrow = narrow();
  });
  unpackPlotly().then(drawAll).catch(apologise).finally(() => (document.documentElement.dataset.ready = "yes"));
})();
