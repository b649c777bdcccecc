"""`holdfast deploy`: the same experiment at real sites, on Flower."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from holdfast.cli.console import err, out, said_in_one_line
from holdfast.cli.following import line, show
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.deploy.connection import Connection

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Run an experiment at real sites, on Flower: the method that was simulated, to the bit. "
    "New: the page on deployment says what has been tried.",
)

Superlink = Annotated[str, typer.Option(help="Host and port of the SuperLink.")]
Certificate = Annotated[
    Path | None, typer.Option("--ca", help="Certificate of the CA that signed the SuperLink's.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without TLS and keys; on this machine only.")
]
Rounds = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of rounds, those before a restart included; as the app says if not given.",
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="Which method of an experiment file, by its label; as the app says if not given."
    ),
]
Home = Annotated[Path, typer.Option(help="For Flower's own files.")]


def new(
    folder: Annotated[Path, typer.Argument(help="The folder to write.")] = Path("federation"),
    experiment: Annotated[
        Path | None,
        typer.Option(help="An experiment file; its simulated clients become sites to try it with."),
    ] = None,
    sites: Annotated[
        int | None, typer.Option(min=1, help="Number of made-up sites, without an experiment file.")
    ] = None,
) -> None:
    """Write a federation to start from, which runs as it is: of an experiment file, or with made-up sites.

    Examples:

    [bold]holdfast deploy new federation && holdfast deploy local federation[/]
    [bold]holdfast deploy new federation --experiment experiment.toml[/]
    """
    if experiment is None:
        from holdfast.deploy.starting import write_federation

        write_federation(folder, 3 if sites is None else sites)
    elif sites is not None:
        raise HoldfastError(
            f"deploy new: --sites {sites} beside --experiment, whose clients are the sites; leave --sites "
            f"out."
        )
    else:
        from holdfast.config.new_federation import write_federation_of

        made = write_federation_of(folder, experiment)
        out.print(f"sites: {escape(', '.join(made.names))}", highlight=False)
        if len(made.labels) > 1:
            first, *others = map(escape, made.labels)
            out.print(f"method: {first}; another by --method: {', '.join(others)}", highlight=False)
        out.print(f"digest, for \\[allow] of a site: {made.digest}", highlight=False)
    shown = escape(str(folder))
    out.print(f"wrote {shown}: `app` goes to everybody, a file of `sites` to each site")
    out.print(f"try it here: [bold]holdfast deploy local {shown}[/]")


def keys(
    folder: Annotated[Path, typer.Argument(help="Where they go.")],
    site: Annotated[list[str], typer.Option(help="Name of a site; give several.")],
    host: Annotated[
        list[str],
        typer.Option(
            help="Name or address under which sites reach the server; localhost and 127.0.0.1 besides."
        ),
    ] = [],  # noqa: B006
) -> None:
    """Make certificates and a key for every site; what is there stays.

    Example:

    [bold]holdfast deploy keys keys --site north --site south --host fed.example.org[/]
    """
    from holdfast.deploy.keys import write_keys

    # Where the server's own processes and commands reach its SuperLink, behind a proxy.
    for path in write_keys(folder, site, [*dict.fromkeys([*host, "localhost", "127.0.0.1"])]):
        out.print(f"wrote {escape(str(path))}")
    out.print("ca.crt goes to every site, NAME.key to its own site; all else stays at the server.")


def local(
    folder: Annotated[Path, typer.Argument(help="A folder of `holdfast deploy new`.")],
    rounds: Rounds = None,
    method: Method = None,
    sites: Annotated[
        int | None,
        typer.Option(min=1, help="How many; the folder is written first if it is not there."),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Start a whole federation on this machine, run it, and end what was started.

    It goes on from where a run of before has stopped. Ctrl-C leaves no process.

    Needs [bold]pip install "holdfast\\[flower]"[/].

    Examples:

    [bold]holdfast deploy local federation --rounds 10[/]
    [bold]holdfast deploy local federation --sites 3[/]
    """
    from holdfast.deploy.local import LocalFederation
    from holdfast.deploy.starting import run_config
    from holdfast.sweeps.naming import folder_name

    if sites is not None and not folder.exists():
        new(folder, sites=sites)
    files = {path.stem: path for path in sorted((folder / "sites").glob("*.toml"))}
    if not files or not (folder / "app").is_dir():
        raise HoldfastError(
            f"{folder} has no app and sites; make one with holdfast deploy new {folder}."
        )
    if sites not in (None, len(files)):
        raise HoldfastError(
            f"{folder} has {len(files)} sites, and --sites says {sites}; leave it out, or name a folder "
            f"that is not there yet."
        )
    given = run_config(folder / "app", rounds, method)
    # Of every method that is named a run of its own, for `holdfast compare`.
    saved = folder / ("run" if method is None else f"run-{folder_name(method)}")
    out.print(
        f"starting a SuperLink and {len(files)} sites; logs are in {folder / 'local'}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    try:
        with LocalFederation(folder / "local", files, insecure) as federation:
            lines = federation.connection.run(
                folder / "app", **given | {"folder": str(saved.resolve())}
            )
            show(lines, folder.name or "run", int(given["rounds"]))
    except KeyboardInterrupt:
        err.print(
            f"stopped, and so is all that was started; go on with: holdfast deploy local {folder} "
            f"--rounds {given['rounds']}{f' --method {method}' if method else ''}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from None
    results = saved / "results"
    out.print(f"results   {results}", markup=False, highlight=False, soft_wrap=True)
    out.print(
        f"look at it: holdfast report {results}", markup=False, highlight=False, soft_wrap=True
    )


def run(
    app_folder: Annotated[Path, typer.Argument(metavar="APP", help="The app's folder.")],
    folder: Annotated[Path, typer.Option(help="The run's folder, on the SuperLink's machine.")],
    superlink: Superlink = "127.0.0.1:8000",
    certificate: Certificate = None,
    rounds: Rounds = None,
    method: Method = None,
    quorum: Annotated[
        float | None, typer.Option(help="Share of the sites whose replies are enough.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds after which a round closes with a quorum.")
    ] = None,
    insecure: Insecure = False,
    home: Home = Path(".holdfast"),
) -> None:
    """Run an app in a federation that is up; one that was stopped goes on from its folder.

    Ctrl-C ends the showing, not the run.

    Example:

    [bold]holdfast deploy run app --folder runs/trial --superlink fed:8000 --ca keys/ca.crt[/]
    """
    from holdfast.deploy.starting import run_config

    if not (app_folder / "pyproject.toml").is_file():
        raise HoldfastError(
            f"{app_folder} is no app: it has no pyproject.toml; make one with holdfast deploy new."
        )
    connection = _connection(home, superlink, certificate, insecure)
    there = connection.sites()
    if not there:
        raise HoldfastError(
            f"deploy: no site is registered at {superlink}; holdfast deploy register KEY.pub, then start "
            f"the sites."
        )
    online = sum(site["status"] == "online" for site in there)
    if online < len(there):
        err.print(
            f"{online} of {len(there)} registered sites are there; a run waits for those it needs.",
            highlight=False,
            soft_wrap=True,
        )
    given = run_config(app_folder, rounds, method) | {"folder": str(folder.resolve())}
    for name, value in (("quorum", quorum), ("deadline", deadline)):
        if value is not None:
            given[name] = value
    number = connection.submit(app_folder, **given)
    err.print(f"run {number}", highlight=False)
    try:
        show(connection.follow(number), folder.name, int(given["rounds"]))
    except KeyboardInterrupt:
        err.print(
            f"no longer shown; run {number} goes on. End it: FLWR_HOME={home / 'flower'} flwr stop {number}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from None


def register(
    key: Annotated[list[Path], typer.Argument(metavar="KEY.pub", help="Public keys of sites.")],
    superlink: Superlink = "127.0.0.1:8000",
    certificate: Certificate = None,
    insecure: Insecure = False,
    home: Home = Path(".holdfast"),
) -> None:
    """Let sites in: the SuperLink turns away whose key it does not know.

    Example:

    [bold]holdfast deploy register keys/north.pub keys/south.pub --ca keys/ca.crt[/]
    """
    for one in key:
        if not one.is_file():
            raise HoldfastError(f"deploy: there is no key {one}; holdfast deploy keys makes them.")
    connection = _connection(home, superlink, certificate, insecure)
    for one in key:
        connection.register(one)
        out.print(f"registered {one}", markup=False, highlight=False, soft_wrap=True)


def status(
    superlink: Superlink = "127.0.0.1:8000",
    certificate: Certificate = None,
    insecure: Insecure = False,
    home: Home = Path(".holdfast"),
) -> None:
    """Which sites are there, and which runs.

    Example:

    [bold]holdfast deploy status --superlink fed:8000 --ca keys/ca.crt[/]
    """
    connection = _connection(home, superlink, certificate, insecure)
    sites, runs = connection.sites(), connection.runs()
    if not sites:
        line("no site is registered")
    for site in sites:
        since = site["online-at"] if site["status"] == "online" else site["offline-at"]
        called = f"{site['name']}  {site['node-id']}".strip()
        line(f"site {called}  {site['status']}{'' if since == 'N/A' else f'  since {since}'}")
    if not runs:
        line("no run was submitted")
    for one in runs:
        line(f"run {one['run-id']}  {one['status']}  {one['fab-name']}  {one['status-details']}")


def _connection(
    home: Path, superlink: str, certificate: Path | None, insecure: bool
) -> "Connection":
    from holdfast.deploy.connection import Connection

    if certificate is None and not insecure:
        raise HoldfastError(
            "deploy: give --ca CERTIFICATE, or --insecure for a SuperLink on this machine without TLS."
        )
    connection = Connection(home, superlink, None if insecure else certificate)
    connection.check()
    return connection


_COMMANDS: dict[str, Callable[..., None]] = {
    "new": new,
    "keys": keys,
    "local": local,
    "register": register,
    "run": run,
    "resume": run,
    "status": status,
}
_RESUME = """Go on with a run that was stopped, from its folder: the same as [bold]run[/].

Example:

[bold]holdfast deploy resume app --folder runs/trial --ca keys/ca.crt[/]
"""
for _name, _function in _COMMANDS.items():
    app.command(_name, help=_RESUME if _name == "resume" else None)(said_in_one_line(_function))
