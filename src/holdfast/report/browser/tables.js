function methodHeader(number) {
  const method = data.methods[number];
  const inside = element("div", {}, swatch(method), element("span", { title: method.label }, method.name));
  if (method.state) inside.append(element("span", { class: "badge" }, method.state));
  return element("th", { scope: "row" }, inside);
}

// A table that can be sorted: headings, and rows of { head, key, cells, attributes }; `groups` are rows kept together.
function fillTable(table, headings, groups) {
  const head = element("tr");
  headings.forEach((heading, place) => {
    const button = element("button", { type: "button" }, ...(Array.isArray(heading) ? heading : [heading]));
    button.addEventListener("click", () => sortBy(table, groups, place));
    head.append(element("th", { scope: "col", "aria-sort": "none" }, button));
  });
  const bodies = groups.map((rows) => {
    const body = element("tbody");
    for (const row of rows) {
      row.element = element("tr", row.attributes ?? {}, row.head, ...row.cells.map(tableCell));
      body.append(row.element);
    }
    return body;
  });
  table.replaceChildren(element("thead", {}, head), ...bodies);
}

function tableCell(cell) {
  const shown = element("td", cell.title ? { title: cell.title } : {}, cell.text === "-" ? "–" : cell.text);
  if (cell.best) shown.classList.add("best");
  if (cell.heat !== undefined && cell.heat !== null) {
    shown.classList.add("heat");
    shown.style.setProperty("--heat", `${Math.round(100 * cell.heat)}%`);
  }
  return shown;
}

function sortBy(table, groups, place) {
  const heads = [...table.tHead.rows[0].cells];
  const ascending = heads[place].getAttribute("aria-sort") !== "ascending";
  heads.forEach((head, n) => head.setAttribute("aria-sort", n !== place ? "none" : ascending ? "ascending" : "descending"));
  const key = (row) => (place === 0 ? row.key : row.cells[place - 1].value);
  groups.forEach((rows, n) => {
    const ordered = [...rows].sort((a, b) => compare(key(a), key(b), ascending));
    table.tBodies[n].append(...ordered.map((row) => row.element));
  });
}

// What was not reached stays at the end in both directions: it is no number.
function compare(a, b, ascending) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return ascending ? order : -order;
}

// One row per method; the ends of the scale stand below the others and are never the best.
function buildTable(table, columns, rows, best) {
  const contest = rows.map((cells, number) => (cells && !isReference(number) ? cells : null));
  const made = rows.map((cells, number) => cells && {
    head: methodHeader(number),
    key: data.methods[number].name,
    attributes: { "data-method": number, ...(hidden.has(number) ? { class: "off" } : {}) },
    cells: cells.map((cell, place) => ({ ...cell, best: isBest(contest, place, number, best[place]) })),
  });
  const groups = [made.filter((row, n) => row && !isReference(n)), made.filter((row, n) => row && isReference(n))];
  fillTable(table, ["method", ...columns], groups.filter((rows) => rows.length));
}

function isBest(rows, place, number, direction) {
  const values = rows.map((cells) => (cells ? cells[place].value : null)).filter((v) => v !== null);
  if (!direction || new Set(values).size < 2 || !rows[number]) return false;
  return rows[number][place].value === (direction === "low" ? Math.min(...values) : Math.max(...values));
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
  // Nobody is the best where test rows leave that open.
  const open = data.highlights.some((h) => h.open);
  buildTable(byId("standings-table"), columns, rows, columns.map((name, n) => (open && name.startsWith("final") ? "" : best[n])));
  const several = data.methods.some((m) => m.seeds > 1);
  const over = data.scatter ? "all runs, of every split and seed" : "seeds";
  const parts = [several ? `Mean ± standard deviation over ${over}.` : "A single seed."];
  if (data.window > 1) parts.push(`Final: the mean of the last ${data.window} evaluations; curves are of single ones.`);
  parts.push(...data.notes, "Megabytes count both directions. Click a heading to sort.");
  byId("standings-note").textContent = parts.join("\n");
}

const listed = (names) => (names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);
