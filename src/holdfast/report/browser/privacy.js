// ---------------------------------------------------------------- privacy

function buildPrivacy() {
  byId("privacy").hidden = !data.privacy;
  if (!data.privacy) return;
  const { columns, rows, words } = data.privacy;
  buildTable(byId("privacy-table"), columns, rows, columns.map(() => ""));
  const named = (numbers) => numbers.map((number) => data.methods[number].name).join(", ");
  byId("privacy-words").replaceChildren(...words.map(({ text, methods }) =>
    element("p", {}, element("strong", {}, `${named(methods)}: `), text)));
  const none = named([...rows.keys()].filter((number) => !rows[number]));
  byId("privacy-note").textContent = [
    none ? `Without noise, and without a guarantee: ${none}.` : "",
    "The less epsilon, the less can be learnt: with an epsilon of 1 no outcome becomes more than 2.7 times as likely, with 8 nearly 3,000 times.",
    "It speaks of what training releases, not of figures measured on clients’ data, such as those on this page, nor of what was done before training.",
  ].filter(Boolean).join(" ");
}
