// How sure methods may be: prediction sets or intervals, how often they hold the truth and how large they are.

const percent = (share) => `${Number((100 * share).toFixed(1))}\u00a0%`;
const confidenceOf = () => data.confidence?.[chosen.confidence] ?? null;
const CONFIDENCE_FIGURES = { size: "size against coverage", coverage: "coverage against what was asked" };

function buildConfidence() {
  byId("confidence").hidden = !data.confidence;
  if (!data.confidence) return;
  chosen.confidence = data.confidence[chosen.confidence] ? chosen.confidence : 0;
  const about = confidenceOf();
  const select = byId("confidence-population");
  select.parentElement.style.display = data.confidence.length < 2 ? "none" : "";
  select.replaceChildren(...data.confidence.map(({ name }, n) => element("option", { value: n }, name)));
  select.value = chosen.confidence;
  select.onchange = () => { chosen.confidence = Number(select.value); buildConfidence(); redraw(drawConfidence); };
  fill(byId("confidence-figure"), Object.keys(CONFIDENCE_FIGURES), chosen.confidenceFigure, (name) => { chosen.confidenceFigure = name; redraw(drawConfidence); });
  for (const option of byId("confidence-figure").options) option.textContent = CONFIDENCE_FIGURES[option.value];
  explainConfidence(about);
  const size = about.sets ? "labels in a set" : "width of an interval";
  const least = about.clients.some((clients) => clients);
  const columns = ["coverage asked", "coverage", size, ...(about.sets ? ["one label", "empty"] : []), ...(least ? ["worst client"] : [])];
  buildTable(byId("confidence-table"), columns, about.rows, columns.map(() => ""));
  buildConfidentClients(about, size);
}

function explainConfidence(about) {
  const { sets, asked, by, calibrated, tested, chance } = about;
  byId("confidence-what").textContent = sets
    ? `A model that names one label is sometimes wrong, and does not say when. Here it names a set of labels: large where it is unsure, small where it is sure. On held-out rows the sets were made just large enough that ${percent(asked)} of them hold the right label. Coverage is how often they did on other rows; at the same coverage, the method with smaller sets knows more.`
    : `A model that predicts one number does not say how far off it may be. Here it gives an interval. On held-out rows the intervals were made just wide enough that ${percent(asked)} of them hold the right number. Coverage is how often they did on other rows; at the same coverage, the method with narrower intervals knows more.`;
  const whose = {
    server: `the server, with ${calibrated.toLocaleString("en")} rows of its own`,
    clients: `all clients together, with ${calibrated.toLocaleString("en")} rows: each sent a count of how well its rows fit, and no row`,
    "each client": `every client for itself, with its own rows (${calibrated.toLocaleString("en")} in all)`,
  }[by];
  byId("confidence-note").textContent = [
    `Calibrated by ${whose}; tested on ${tested.toLocaleString("en")} others.`,
    Number.isFinite(chance) && chance !== null ? `With so many rows, coverage within ${percent(asked - chance)} to ${percent(Math.min(1, asked + chance))} is what chance allows.` : "",
    sets ? "A set is empty where no label fits as well as labels did before: such a row is unlike the others." : "",
    about.rounded > 0.01 ? `Counts in few cells round thresholds up: coverage may be up to ${percent(about.rounded)} higher than asked.` : "",
    "Mean over runs.",
  ].filter(Boolean).join(" ");
}

function buildConfidentClients(about, size) {
  const able = numbersOf(about.clients);
  byId("confidence-each").hidden = !able.length && !numbersOf(about.classes).length;
  const methods = [...new Set([...able, ...numbersOf(about.classes)])].sort((a, b) => a - b);
  if (!methods.length) return;
  chosen.confidenceOf = stillOf(chosen.confidenceOf, methods);
  chooseMethod(byId("confidence-method"), methods, chosen.confidenceOf, (n) => { chosen.confidenceOf = n; buildConfidentClients(about, size); });
  const count = (n) => ({ text: n === null ? "-" : n.toLocaleString("en"), value: n });
  const rowOf = ({ name, tested, calibrated, short, cells }) => {
    const head = element("th", { scope: "row" }, element("div", {}, element("span", { title: name }, name)));
    if (short) head.firstChild.append(element("span", { class: "badge" }, "less than asked"));
    return { head, key: name, cells: [...(calibrated === undefined || calibrated === null ? [] : [count(calibrated)]), count(tested), ...cells] };
  };
  const clients = about.clients[chosen.confidenceOf] ?? [];
  const classes = about.classes[chosen.confidenceOf] ?? [];
  const held = clients.some((c) => c.calibrated !== null) ? ["calibration rows"] : [];
  const alone = clients.some((c) => c.cells.length > 2) ? ["coverage by its own rows", `${size} by its own rows`] : [];
  byId("confidence-clients").parentElement.hidden = !clients.length;
  byId("confidence-classes").parentElement.hidden = !classes.length;
  fillTable(byId("confidence-clients"), [data.sites?.named ? "site" : "client", ...held, "test rows", "coverage", size, ...alone], [clients.map(rowOf)]);
  fillTable(byId("confidence-classes"), ["class", "test rows", "coverage", size], [classes.map(rowOf)]);
  const short = clients.filter((c) => c.short).length;
  byId("confidence-each-note").textContent = [
    "What is promised holds of all rows together, not of every client and not of every class.",
    short ? `${short === 1 ? "One client gets" : `${short} clients get`} less than asked by more than chance allows.` : clients.length ? "No client gets less than asked by more than chance allows." : "",
    short && about.by !== "each client" ? "by = \"each client\" in [conformal] calibrates for each by itself." : "",
    alone.length ? "The last two columns are what every client would get if it calibrated with its own rows alone: right for it, and with few rows larger sets." : "",
    "Click a heading to sort.",
  ].filter(Boolean).join(" ");
}

function drawConfidence() {
  const about = confidenceOf();
  if (!about) return null;
  const bySize = chosen.confidenceFigure === "size";
  const size = about.sets ? "mean number of labels in a set" : "mean width of an interval";
  const traces = about.curves.flatMap((curve, number) => {
    if (!curve || hidden.has(number)) return [];
    const method = data.methods[number];
    return [{
      type: "scatter", mode: "lines+markers", meta: "line", name: plain(method.name),
      x: bySize ? curve.size : curve.asked, y: curve.coverage,
      customdata: curve.asked.map((asked, n) => [percent(asked), curve.size[n] === null ? "–" : figure(curve.size[n])]),
      hovertemplate: `asked %{customdata[0]}: coverage %{y:.1%}, size %{customdata[1]}<extra>${plain(method.name)}</extra>`,
      line: { color: colour(method), width: 2.25, dash: method.dash }, marker: { ...marks(method), maxdisplayed: 0 },
    }];
  });
  const ends = about.curves.flatMap((curve) => (curve ? curve.asked : []));
  const diagonal = { type: "line", xref: "x", yref: "y", x0: Math.min(...ends), y0: Math.min(...ends), x1: Math.max(...ends), y1: Math.max(...ends), line: { color: variable("--soft"), width: 1.5, dash: "dot" }, layer: "below" };
  return draw(byId("confidence-chart"), traces, {
    hovermode: "closest",
    xaxis: bySize ? { title: { text: size }, showgrid: true } : { title: { text: "coverage asked" }, tickformat: ".0%", showgrid: true },
    yaxis: { title: { text: "coverage" }, tickformat: ".0%" },
    shapes: bySize ? [] : [diagonal],
  });
}
