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
  box.replaceChildren();
  data.methods.forEach((method, number) => {
    const chip = element("button", { type: "button", class: "chip", "aria-pressed": String(!hidden.has(number)), title: method.label });
    chip.append(swatch(method), element("span", {}, method.name));
    chip.addEventListener("click", () => toggle(number));
    box.append(chip);
  });
  const all = element("button", { type: "button", class: "quiet", id: "show-all" }, "Show all");
  all.hidden = hidden.size === 0;
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
  byId("highlights").replaceChildren();
  for (const { title, value, method, note } of data.highlights) {
    const card = element("div", { class: "card" });
    card.append(
      element("div", { class: "what" }, title),
      element("div", { class: "value" }, unbroken(value)),
      element("div", { class: "who" }, swatch(data.methods[method]), element("span", {}, data.methods[method].name)),
    );
    if (note) card.append(element("div", { class: "beside" }, unbroken(note)));
    byId("highlights").append(card);
  }
}
