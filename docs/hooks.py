"""What mkdocs cannot do alone: pages from docstrings, studies from `papers/`, equations as MathML."""

import html as markup
import inspect
import logging
import posixpath
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import api_pages
import notebook_pages
import pydantic
from latex2mathml.converter import convert
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

from holdfast.config import catalogue, schema, signatures
from holdfast.config.entries import entry

log = logging.getLogger("mkdocs.hooks")
ROOT = Path(__file__).resolve().parent.parent

# Methods by the module they are written in.
GROUPS = {
    "baselines": "FedAvg, its relatives and the two ends",
    "drift": "Against client drift",
    "server_learning": "The server learns too",
    "mixed": "A loss at the server",
    "personal": "Personal models, few bytes, meta-learning",
}
# Pages that list names: title, what stands above, and the kinds on them.
LISTS = {
    "data": (
        "Data sets",
        "Loaders for `[data]`; more in [Data and partitions](../data.md).",
        ["data"],
    ),
    "partitions": (
        "Partitions",
        "Who has which examples, for `[partition]`; pictures are in [Data and partitions](../data.md).",
        ["partition"],
    ),
    "models": (
        "Models",
        "What is trained, for `[model]`, and losses of parameters alone, for `[server]`.",
        ["model", "loss"],
    ),
    "cohorts": ("Cohorts", "Who takes part in a round, for `[cohort]`.", ["cohort"]),
    "schedules": (
        "Schedules",
        "Numbers that change over rounds; they stand wherever a number may.",
        ["schedule"],
    ),
    "wires": (
        "Wires and compressors",
        "How replies travel. A compressor turns numbers into fewer bits; a wire keeps that from "
        "losing the optimum. What the ledger counts is the code.",
        ["wire", "compressor", "clip"],
    ),
    "aggregates": (
        "Means and attacks",
        "How replies become one at the server, for `aggregate` of an `[[algorithm]]`, and clients that lie, "
        "for `[attack]`; what they are for is in [Whom to trust](../trust.md).",
        ["aggregate", "attack"],
    ),
    "evaluators": (
        "Evaluators",
        "What is measured besides the server's model on the test set, for `[[evaluate.also]]`.",
        ["evaluator"],
    ),
    "metrics": (
        "Metrics",
        "What can be said of a whole test set's predictions, for `metrics` in `[evaluate]`, by "
        "definitions of scikit-learn. A function of your own is `file.py:function`.",
        ["metric"],
    ),
    "solvers": (
        "Solvers and optimisers",
        "How clients find their own optimum, and optimisers for local steps and the server's step.",
        ["solver", "optimizer"],
    ),
}
# Studies in this order; others that appear under `papers/` follow.
STUDIES = {
    "fsl": "Server learning (FSL)",
    "mixed": "Mixed federated learning",
    "flix": "FLIX",
    "feddyn": "FedDyn",
    "fedpvr": "FedPVR",
    "feddc": "FedDC",
}


def studies() -> dict[str, str]:
    """Folders of `papers/` that have a page, with its title."""
    there = {path.parent.name for path in ROOT.glob("papers/*/README.md")}
    ordered = [*(n for n in STUDIES if n in there), *sorted(there - set(STUDIES))]
    return {name: STUDIES.get(name, name) for name in ordered}


# ---- pages ---------------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """Every generated page: its place in the site and its Markdown."""
    made = {"methods/index.md": methods_index(), "reference/index.md": names_index()}
    for name in catalogue.KINDS["algorithm"]:
        made[f"methods/{name}.md"] = method(name)
    for name in LISTS:
        made[f"reference/{name}.md"] = names(name)
    made["studies/index.md"] = studies_index()
    for name in studies():
        made[f"studies/{name}/index.md"] = (ROOT / "papers" / name / "README.md").read_text("utf-8")
    made["contributing.md"] = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    return made | api_pages.pages()


def grouped() -> dict[str, list[str]]:
    """Names of methods by the title of their group, in the order of `GROUPS`."""
    found: dict[str, list[str]] = {title: [] for title in GROUPS.values()}
    for name, function in catalogue.KINDS["algorithm"].items():
        module = inspect.unwrap(function).__module__.rpartition(".")[2]
        found[GROUPS[module]].append(name)
    return found


def methods_index() -> str:
    """All methods, a line each."""
    lines = [
        "# Methods",
        "",
        "Every method by name, from `hf.algorithms`. What it does, what travels, its arguments and its "
        "reference are on its page; `holdfast show NAME` prints the same. "
        "[Choose a method](../choose.md) says when to take which.",
    ]
    for title, members in grouped().items():
        lines += ["", f"## {title}", "", "| method | what it does |", "|---|---|"]
        lines += [
            f"| [`{n}`]({n}.md) | {cell(catalogue.page('algorithm', n).title)} |" for n in members
        ]
    return "\n".join(lines) + "\n"


def method(name: str) -> str:
    """The page of one method."""
    page = catalogue.page("algorithm", name)
    lines = [f"# {name}", "", page.title, "", *body(page)]
    if page.travels:
        lines += ["## What travels", "", sentence(page.travels), ""]
    if page.tells:
        lines += ["## What it tells of a client", "", sentence(page.tells), ""]
    lines += ["## Arguments", "", *arguments(page)]
    if page.reduces_to:
        lines += ["## Reduces to", "", sentence(page.reduces_to), ""]
    lines += ["## In an experiment file", "", *in_file("algorithm", name)]
    if "hf.Server" in page.travels:
        lines += [
            "What the server has of its own stands in [`[server]`](../experiments.md#server).",
            "",
        ]
    lines += ["## In Python", "", "```python", signature(page), "```", ""]
    if page.example:
        lines += ["```pycon", page.example, "```", ""]
    if page.reference:
        lines += ["## Reference", "", page.reference, ""]
    lines += [
        "Next: [Choose a method](../choose.md), [all methods](index.md), "
        "[the experiment file](../experiments.md)."
    ]
    return "\n".join(lines) + "\n"


def names_index() -> str:
    """Which lists there are."""
    lines = ["# Names", "", "What an experiment file may ask for, and Python too. In a terminal: "]
    lines += ["`holdfast list` shows all, `holdfast show NAME` explains one.", ""]
    lines += ["| | |", "|---|---|", "| [Methods](../methods/index.md) | `[[algorithm]]` |"]
    lines += [
        f"| [{title}]({name}.md) | {cell(about)} |" for name, (title, about, _) in LISTS.items()
    ]
    return "\n".join(lines) + "\n"


def names(name: str) -> str:
    """The page of one or two kinds: a line each at the top, then each with its arguments."""
    title, about, kinds = LISTS[name]
    lines = [f"# {title}", "", about]
    for kind in kinds:
        known = catalogue.KINDS[kind]
        if len(kinds) > 1:
            lines += ["", f"## {catalogue.TITLES[kind]}"]
        lines += ["", "| name | |", "|---|---|"]
        lines += [
            f"| [`{n}`](#{n.lower()}) | {cell(catalogue.page(kind, n).title)} |" for n in known
        ]
    for kind in kinds:
        for n in catalogue.KINDS[kind]:
            lines += ["", *name_entry(kind, n)]
    lines += ["", "Next: [the experiment file](../experiments.md), [methods](../methods/index.md)."]
    return "\n".join(lines) + "\n"


def name_entry(kind: str, name: str) -> list[str]:
    """One name on the page of its kind."""
    page = catalogue.page(kind, name)
    lines = [f"## {name} {{ #{name.lower()} }}", "", page.title, ""]
    if kind != "optimizer":  # optax has documentation of its own
        lines += body(page)
        if page.travels:
            lines += [f"*Travels:* {page.travels}", ""]
        if page.tells:
            lines += [f"*Tells:* {page.tells}", ""]
        lines += arguments(page)
    lines += [*in_file(kind, name), "```python", signature(page), "```"]
    if page.example:
        lines += ["", "```pycon", page.example, "```"]
    if page.reference:
        lines += ["", f"*Reference:* {page.reference}"]
    return lines


def in_file(kind: str, name: str) -> list[str]:
    """How an experiment file asks for a name; nothing where such a file would be refused."""
    text = entry(kind, name)
    if kind == "metric":  # its place is a list of names
        return ["```toml", text, "```", ""]
    (table,) = tomllib.loads(text).values()
    # `[[evaluate.also]]` and the like: a list or a table around it.
    while isinstance(table, list) or (
        len(table) == 1 and isinstance(next(iter(table.values())), dict | list)
    ):
        table = table[0] if isinstance(table, list) else next(iter(table.values()))
    table = dict(table)
    table.setdefault("name", table.pop("schedule", name))
    function = catalogue.KINDS[kind][name]
    try:
        signatures.arguments(function, schema.ALSO.get(kind)).model_validate(table)
    except (ValueError, TypeError, NameError, pydantic.PydanticUserError) as refused:
        reason = " ".join(str(refused).split())[:100]
        log.info("%s %s: its entry would be refused, so it is left out: %s", kind, name, reason)
        return []
    return ["```toml", text, "```", ""]


def studies_index() -> str:
    """What was measured, paper by paper."""
    lines = ["# Studies", "", "What the papers report beside what was measured here, and where "]
    lines += [
        "authors' code differs from their paper. Each says how to run it again. All of them on one "
    ]
    lines += ["page, a row for every table and figure: [The papers, reproduced](../papers.md).", ""]
    lines += [f"- [{title}]({name}/index.md)" for name, title in studies().items()]
    return "\n".join(lines) + "\n"


def body(page: Any) -> list[str]:
    """The equation and what is said about it; words that lead up to the equation stay before it."""
    paragraphs = [p.strip() for p in page.body.split("\n\n") if p.strip()]
    before = next((i for i, p in enumerate(paragraphs, 1) if p.endswith((",", ":"))), 0)
    parts = [*paragraphs[:before], *equation(page), *paragraphs[before:]]
    return [line for part in parts for line in (part, "")]


def equation(page: Any) -> list[str]:
    """An equation, each of its lines displayed."""
    together = r"\begin" in page.equation
    lines = [page.equation] if together else page.equation.split(r"\\")
    return [f"$$ {line.strip()} $$" for line in lines if line.strip()]


def arguments(page: Any) -> list[str]:
    """A table of arguments with defaults, and what the docstring says of each."""
    function = catalogue.KINDS[page.kind][page.name]
    parameters = inspect.signature(function).parameters
    in_file = catalogue.settings(function)
    if not parameters:
        return ["No arguments.", ""]
    lines = ["| argument | default | |", "|---|---|---|"]
    for name, parameter in parameters.items():
        said = page.arguments.get(name, "")
        if name not in in_file and name not in ("data",):
            said = f"{said} Python only.".strip()
        lines.append(f"| `{name}` | {default(parameter)} | {cell(sentence(said))} |")
    others = [f"*{n}:* {t}" for n, t in page.arguments.items() if n not in parameters]
    return [*lines, "", *(line for other in others for line in (other, ""))]


def default(parameter: inspect.Parameter) -> str:
    """A default as it would be typed."""
    if parameter.default is parameter.empty:
        return "required"
    if parameter.default is None:
        return ""
    shown = re.sub(r"Algorithm\(.*name='(\w+)'.*\)", r"\1", repr(parameter.default))
    return f"`{shown}`"


def signature(page: Any) -> str:
    """What to write in Python, wrapped where it is long."""
    text = page.signature.replace("hf.compressors.", "hf.wires.").replace(
        "hf.optimizers.", "optax."
    )
    text = re.sub(r"=Algorithm\(.*?name='(\w+)'[^)]*\)", "=...", text)
    if len(text) <= 88:
        return text
    name, _, inside = text.partition("(")
    parts = re.split(r", (?![^(\[{]*[)\]}])", inside.removesuffix(")"))
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), ")"])


def sentence(text: str) -> str:
    """With a capital and a full stop, unless it begins with code, mathematics or a letter for a number."""
    if not text:
        return text
    capital = re.match(r"[a-z]{2}|a ", text) is not None
    text = text[0].upper() + text[1:] if capital else text
    return text if text.endswith(".") else f"{text}."


def cell(text: str) -> str:
    """Text for a table, where a bar outside code and mathematics would end the cell."""
    kept = re.compile(rf"`[^`]+`|{MATHS.pattern}", re.DOTALL)
    return outside(kept, " ".join(text.split()), lambda part: part.replace("|", r"\|"))


# ---- mathematics ---------------------------------------------------------------------------------

MATHS = re.compile(r"\$\$(.+?)\$\$|(?<![\\$\w])\$(?!\s)([^$`]+?)(?<!\s)\$(?![\w$])", re.DOTALL)
# Fenced blocks, and code in a line too.
FENCED = re.compile(r"^[ \t]*(```+|~~~+).*?^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(rf"{FENCED.pattern}|(`+)(?!`).+?(?<!`)\2(?!`)", re.MULTILINE | re.DOTALL)


def mathml(latex: str, display: str = "inline") -> str:
    """A formula as MathML, which browsers draw themselves."""
    latex = re.sub(r"\\arg(?![a-zA-Z])", r"\\operatorname{arg}", " ".join(latex.split()))
    drawn = convert(latex, display=display).replace(r">\|<", ">&#x02016;<")
    # Without a font for mathematics nothing stretches over a letter, so the bar is a border.
    return re.sub(
        r'<mover>(<mrow>(?:(?!<mover>).)*?</mrow>)<mo accent="true">&#x02015;</mo></mover>',
        r'<mrow class="bar">\1</mrow>',
        drawn,
    )


def take_out_maths(text: str) -> tuple[str, list[str]]:
    """Markdown with a word in place of every formula outside code, and the formulas as MathML."""
    formulas: list[str] = []

    def replace(match: re.Match[str]) -> str:
        block, inline = match[1], match[2]
        drawn = mathml(block, "block") if block else mathml(inline)
        formulas.append(drawn)
        return f"formula{len(formulas) - 1}atlumrof"

    return outside(CODE, text, lambda part: MATHS.sub(replace, part)), formulas


def outside(kept: re.Pattern[str], text: str, change: Callable[[str], str]) -> str:
    """Text with everything changed but what a pattern finds."""
    out, end = "", 0
    for found in kept.finditer(text):
        out += change(text[end : found.start()]) + found[0]
        end = found.end()
    return out + change(text[end:])


def put_back_maths(html: str, formulas: list[str]) -> str:
    """The page with its formulas."""

    def alone(match: re.Match[str]) -> str:
        return f'<div class="equation">{formulas[int(match[1])]}</div>'

    html = re.sub(r"<p>formula(\d+)atlumrof</p>", alone, html)
    return re.sub(r"formula(\d+)atlumrof", lambda m: formulas[int(m[1])], html)


DOCSTRING_MATHS = re.compile(
    r'<(span|div) class="arithmatex">\\(?:\((.*?)\\\)|\[(.*?)\\\])</\1>', re.DOTALL
)


def draw_docstring_maths(html: str) -> str:
    """Formulas that Markdown found in docstrings, as MathML; each line of a displayed one by itself."""

    def draw(match: re.Match[str]) -> str:
        inline, block = match[2], match[3]
        if inline is not None:
            return mathml(markup.unescape(inline))
        latex = markup.unescape(block)
        lines = [latex] if r"\begin" in latex else latex.split(r"\\")
        drawn = [mathml(line, "block") for line in lines if line.strip()]
        return "".join(f'<div class="equation">{line}</div>' for line in drawn)

    return DOCSTRING_MATHS.sub(draw, html)


# ---- links ---------------------------------------------------------------------------------------


def mend_links(text: str, uri: str) -> str:
    """Links to files of the repository: to their page in the site where there is one, else only text."""
    study = re.fullmatch(r"studies/(\w+)/index\.md", uri)
    if "/" in uri and not study:
        return text
    origin = f"papers/{study[1]}" if study else "" if uri == "contributing.md" else "docs"

    def mend(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        page = page_of(posixpath.normpath(posixpath.join(origin, target)))
        if page is None:
            return label
        return f"[{label}]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{anchor})"

    link = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:)([^)\s#]+)(#[^)\s]*)?\)")
    return outside(FENCED, text, lambda part: link.sub(mend, part))


def page_of(path: str) -> str | None:
    """Where in the site a file of the repository is; None where it is not."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    study = re.fullmatch(r"papers/(\w+)/(README\.md|results/[\w-]+\.png)", path)
    if study and study[1] in studies():
        return f"studies/{study[1]}/{study[2].replace('README', 'index')}"
    return "contributing.md" if path == "CONTRIBUTING.md" else None


# ---- what mkdocs calls ---------------------------------------------------------------------------

_formulas: dict[str, list[str]] = {}


def on_config(config: Any, **_: Any) -> Any:
    """Fill in the navigation."""
    methods = [{"All methods": "methods/index.md"}]
    methods += [{t: [f"methods/{n}.md" for n in members]} for t, members in grouped().items()]
    lists: list[Any] = ["reference/index.md"]
    lists += [{title: f"reference/{name}.md"} for name, (title, _, _) in LISTS.items()]
    measured: list[Any] = ["studies/index.md", {"The papers, reproduced": "papers.md"}]
    measured += [{title: f"studies/{name}/index.md"} for name, title in studies().items()]
    api: list[Any] = ["api/index.md"]
    api += [{title: f"api/{page}.md"} for page, title in api_pages.titles().items()]
    books = [{title: f"notebooks/{name}.md"} for name, title in notebook_pages.TITLES.items()]
    filled = {
        "Notebooks": ["notebook.md", *books],
        "Methods": ["methods/index.md", *methods[1:]],
        "Names": lists,
        "API reference": api,
        "Studies": measured,
    }
    config.nav = [
        {title: filled.get(title, content)}
        for item in config.nav
        for title, content in item.items()
    ]
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the generated pages, and the pictures of studies."""
    for uri, text in (pages() | notebook_pages.pages()).items():
        files.append(File.generated(config, uri, content=text))
    script = "javascripts/plotly.min.js"
    files.append(File.generated(config, script, abs_src_path=str(notebook_pages.plotly())))
    for name in studies():
        folder = ROOT / "papers" / name
        for picture in sorted(folder.glob("results/*.png")):
            uri = f"studies/{name}/{picture.relative_to(folder).as_posix()}"
            files.append(File.generated(config, uri, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Before Markdown is read: links out of the site, and formulas, whose signs it would take for its own."""
    uri = page.file.src_uri
    text, _formulas[uri] = take_out_maths(mend_links(markdown, uri))
    return text


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """After Markdown was read: the formulas of the page, and those of docstrings."""
    uri = page.file.src_uri
    drawn = draw_docstring_maths(put_back_maths(html, _formulas.pop(uri, [])))
    return notebook_pages.put_back(drawn, uri)


@event_priority(-100)
def on_post_build(config: Any, **_: Any) -> None:
    """After the search plugin: its index as a script too, which pages opened from disk may load."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text("utf-8")
    (folder / "search_index.js").write_text(f"var __index = {index}", "utf-8")
