// The answer, what can be told apart, and every site by name.

function buildVerdict() {
  const [answer, ...more] = data.verdict;
  byId("verdict").hidden = !answer;
  byId("verdict").textContent = unbroken(answer ?? "");
  byId("verdict-more").hidden = !more.length;
  byId("verdict-more").textContent = unbroken(more.join(" "));
}

function buildFlags() {
  byId("flags").hidden = !data.flags.length;
  byId("flags").replaceChildren(...data.flags.map((text) => element("li", {}, unbroken(text))));
}

function buildPairs() {
  byId("pairs").hidden = !data.pairs;
  if (!data.pairs) return;
  const { against, baseline, metric, over, lower } = data.pairs;
  chosen.against = against.includes(chosen.against) ? chosen.against : against.includes(baseline) ? baseline : against[0];
  const select = byId("against");
  select.replaceChildren(...against.map((n) => element("option", { value: n }, data.methods[n].name)));
  select.value = chosen.against;
  select.onchange = () => { chosen.against = Number(select.value); buildPairs(); redraw(drawPairs); };
  const beside = data.methods[chosen.against].name;
  const blank = { text: "", value: null };
  const rows = data.pairs.differences.map((found, number) => {
    const pair = found[chosen.against];
    const score = data.pairs.scores[number] ?? { text: "-", value: null };
    const scatter = data.scatter ? [data.scatter[number].splits, data.scatter[number].seeds] : [];
    if (number === chosen.against) return [score, blank, blank, blank, ...scatter];
    if (!pair) return null;
    return [
      score,
      { text: pair.text, value: pair.estimate },
      { text: pair.interval, value: pair.high - pair.low },
      { text: pair.says, value: pair.says },
      ...scatter,
    ];
  });
  const spreads = data.scatter ? ["scatter over splits", "over seeds"] : [];
  const columns = [metric, `difference to ${beside}`, "95 % interval", "so it is", ...spreads];
  buildTable(byId("pairs-table"), columns, rows, columns.map(() => ""));
  byId("pairs-note").textContent = [
    `On the same test rows, each client’s own by the model it would use there: ${over}.`,
    lower ? "Lower is better." : "",
    data.scatter ? `Scatter: the standard deviation of the final ${readable(data.metric)} between splits of the data, and between seeds of one split.` : "",
    "An interval that contains 0 leaves open which of the two is better. Each is of one pair: among many pairs, one in twenty leaves out 0 by chance.",
  ].filter(Boolean).join(" ");
}

function drawPairs() {
  if (!data.pairs) return null;
  const shown = data.pairs.differences.map((found, n) => [n, found[chosen.against]]).filter(([n, p]) => p && !hidden.has(n));
  const box = byId("pairs-chart");
  box.style.height = `${Math.max(9, 5 + 2.1 * shown.length)}rem`;
  const traces = shown.map(([n, pair]) => ({
    type: "scatter", mode: "markers", meta: "pair", name: plain(data.methods[n].name),
    x: [pair.estimate], y: [plain(data.methods[n].name)],
    error_x: { type: "data", symmetric: false, array: [pair.high - pair.estimate], arrayminus: [pair.estimate - pair.low], color: colour(data.methods[n]), thickness: 2, width: 5 },
    marker: { ...marks(data.methods[n]), maxdisplayed: 0 },
    hovertemplate: `${pair.text} (${pair.interval}): ${pair.says}<extra></extra>`,
  }));
  return draw(box, traces, {
    hovermode: "closest",
    xaxis: { title: { text: plain(`difference in ${data.pairs.metric} to ${data.methods[chosen.against].name}`) }, showgrid: true, zeroline: true, zerolinecolor: variable("--soft"), zerolinewidth: 1.5 },
    yaxis: { range: [shown.length - 0.4, -0.6], showgrid: false, type: "category" },
  });
}

function buildSites() {
  byId("sites").hidden = !data.sites;
  if (!data.sites) return;
  const { sites, metric, lower, few, named } = data.sites;
  byId("sites-title").textContent = named ? "Every site" : "Every client";
  const values = sites.flatMap((site) => site.cells.map((cell) => cell?.value)).filter(Number.isFinite);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  // Shaded lightly enough for the figures to stay readable: the better, the darker.
  const heat = (value) => 0.36 * (high > low ? (lower ? high - value : value - low) / (high - low) : 0);
  const count = (n) => ({ text: n === null || n === undefined ? "-" : n.toLocaleString("en"), value: n ?? null });
  const mostlyFew = sites.filter((site) => site.tested < few).length > sites.length / 2; // a badge at each says nothing
  const rows = sites.map((site) => {
    const head = element("th", { scope: "row" }, element("div", {}, element("span", { title: site.name }, site.name)));
    if (site.tested < few && !mostlyFew) head.firstChild.append(element("span", { class: "badge" }, "few rows"));
    const cells = site.cells.map((cell) => cell
      ? { text: cell.text, value: cell.value, title: `95 % interval over test rows ${cell.interval}`, heat: heat(cell.value) }
      : { text: "-", value: null });
    return { head, key: site.name, cells: [count(site.trained), count(site.tested), ...cells] };
  });
  const headings = data.methods.map((method) => [swatch(method), method.name]);
  fillTable(byId("sites-table"), [named ? "site" : "client", "training rows", "test rows", ...headings], [rows]);
  byId("sites-note").textContent = [
    `${metric[0].toUpperCase()}${metric.slice(1)} on each client’s own test rows by the model it would use there, mean over runs; the better, the stronger the colour. Point at a figure for its interval.`,
    lower ? "Lower is better." : "",
    sites.some((s) => s.tested < few) ? `With fewer than ${few} test rows a figure says little.` : "",
    "Click a heading to sort.",
  ].filter(Boolean).join(" ");
}
