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

function buildSettings() {
  byId("settings").replaceChildren();
  for (const { folder, facts } of data.settings) {
    if (data.settings.length > 1) byId("settings").append(element("h3", {}, folder));
    const list = element("dl", { class: "setting" });
    for (const { about, text } of facts) list.append(element("dt", {}, about), element("dd", {}, text));
    byId("settings").append(list);
  }
}

function buildConfiguration() {
  byId("configuration-list").replaceChildren();
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
  box.replaceChildren();
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
