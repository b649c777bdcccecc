// Classes one by one, and what each client sent and received: of one method at a time.

function chooseMethod(select, able, current, change) {
  select.replaceChildren(...able.map((n) => element("option", { value: n }, data.methods[n].name)));
  select.value = current;
  select.onchange = () => change(Number(select.value));
}

const numbersOf = (several) => (several ?? []).map((one, n) => (one && (!Array.isArray(one) || one.length) ? n : null)).filter((n) => n !== null);
const stillOf = (choice, able) => (able.includes(choice) ? choice : able.find((n) => !isReference(n)) ?? able[0]);

function buildClasses() {
  const able = numbersOf(data.classes);
  byId("classes").hidden = !able.length;
  if (!able.length) return;
  chosen.classesOf = stillOf(chosen.classesOf, able);
  chooseMethod(byId("classes-method"), able, chosen.classesOf, (n) => { chosen.classesOf = n; buildClasses(); redraw(drawClasses); });
  const { names, rows } = data.classes[chosen.classesOf];
  const made = rows.map((cells, c) => ({ head: element("th", { scope: "row" }, element("div", {}, element("span", { title: names[c] }, names[c]))), key: names[c], cells }));
  fillTable(byId("classes-table"), ["class", "test rows", "recall", "precision", "F1"], [made]);
  byId("classes-note").textContent =
    "Rows are true classes, columns what was predicted; the stronger the colour, the more of its class. Every client’s own test rows by the model it would use there, mean over runs. Recall: of a class’s rows, the share predicted to be it; precision: of the rows predicted to be it, the share that is.";
}

function drawClasses() {
  if (!numbersOf(data.classes).length) return null;
  const { names, counts, shares } = data.classes[chosen.classesOf];
  const few = names.length <= 20 && !(narrow() && names.length > 10);
  const places = names.map((_, i) => i);
  const short = names.map((name) => plain(name.length > 18 ? `${name.slice(0, 17)}…` : name));
  const axis = { tickmode: few ? "array" : "auto", tickvals: places, ticktext: short, showgrid: false, zeroline: false };
  byId("classes-chart").style.height = `${Math.max(16, Math.min(34, 9 + 2.1 * names.length))}rem`;
  return draw(byId("classes-chart"), [{
    type: "heatmap", x: places, y: places, z: shares, zmin: 0, zmax: 1, xgap: 1, ygap: 1,
    text: counts.map((row) => row.map((n) => (few ? Number(n.toPrecision(3)).toLocaleString("en") : ""))), texttemplate: "%{text}",
    customdata: counts.map((row, t) => row.map((n, p) => [plain(names[t]), plain(names[p]), Number(n.toPrecision(4)).toLocaleString("en")])),
    hovertemplate: "%{customdata[0]} predicted to be %{customdata[1]}: %{customdata[2]} rows (%{z:.1%})<extra></extra>",
    colorscale: [[0, variable("--heat-low")], [1, variable("--heat-high")]],
    showscale: false,
  }], {
    hovermode: "closest",
    xaxis: { ...axis, title: { text: "predicted class" }, showline: false },
    yaxis: { ...axis, title: { text: "true class" }, autorange: "reversed" },
  });
}

function buildLedger() {
  const able = numbersOf(data.ledger);
  byId("ledger").hidden = !able.length;
  if (!able.length) return;
  chosen.ledgerOf = stillOf(chosen.ledgerOf, able);
  chooseMethod(byId("ledger-method"), able, chosen.ledgerOf, (n) => { chosen.ledgerOf = n; buildLedger(); });
  const rows = data.ledger[chosen.ledgerOf].map(({ name, cells }) => (
    { head: element("th", { scope: "row" }, element("div", {}, element("span", { title: name }, name))), key: name, cells }));
  fillTable(byId("ledger-table"), [data.sites?.named ? "site" : "client", "rounds it took part in", "MB received", "MB returned"], [rows]);
}
