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
