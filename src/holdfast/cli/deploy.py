"""`holdfast deploy`: the same experiment at real sites, on Flower."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from holdfast.cli.console import out, said_in_one_line
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.deploy.local import Connection

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
Home = Annotated[Path, typer.Option(help="For Flower's own files.")]


def new(
    folder: Annotated[Path, typer.Argument(help="The folder to write.")] = Path("federation"),
) -> None:
    """Write a federation to start from: an app and three made-up sites, which runs as it is.

    Example:

    [bold]holdfast deploy new federation && holdfast deploy local federation[/]
    """
    from holdfast.deploy.starting import write_federation

    write_federation(folder)
    shown = escape(str(folder))
    out.print(f"wrote {shown}: `app` goes to everybody, a file of `sites` to each site")
    out.print(f"try it here: [bold]holdfast deploy local {shown}[/]")


def keys(
    folder: Annotated[Path, typer.Argument(help="Where they go.")],
    site: Annotated[list[str], typer.Option(help="Name of a site; give several.")],
    host: Annotated[
        list[str], typer.Option(help="Names and addresses under which sites reach the server.")
    ] = ["localhost", "127.0.0.1"],  # noqa: B006
) -> None:
    """Make certificates and a key for every site; what is there stays.

    Example:

    [bold]holdfast deploy keys keys --site north --site south --host fed.example.org[/]
    """
    from holdfast.deploy.keys import write_keys

    for path in write_keys(folder, site, host):
        out.print(f"wrote {escape(str(path))}")
    out.print("ca.crt goes to every site, NAME.key to its own site; all else stays at the server.")


def local(
    folder: Annotated[Path, typer.Argument(help="A folder of `holdfast deploy new`.")],
    rounds: Annotated[int, typer.Option(help="Number of rounds.")] = 5,
    insecure: Insecure = False,
) -> None:
    """Start a whole federation on this machine, run it, and end what was started.

    It goes on from where a run of before has stopped. Needs [bold]pip install "holdfast[flower]"[/].

    Example:

    [bold]holdfast deploy local federation --rounds 10[/]
    """
    from holdfast.deploy.local import LocalFederation

    sites = {path.stem: path for path in sorted((folder / "sites").glob("*.toml"))}
    if not sites or not (folder / "app").is_dir():
        raise HoldfastError(
            f"{folder} has no app and sites; make one with holdfast deploy new {folder}."
        )
    run = (folder / "run").resolve()
    out.print(
        f"starting a SuperLink and {len(sites)} sites; logs are in {escape(str(folder / 'local'))}"
    )
    with LocalFederation(folder / "local", sites, insecure) as federation:
        for line in federation.connection.run(folder / "app", rounds=rounds, folder=str(run)):
            _show(line)
    shown = escape(str(folder / "run" / "results"))
    out.print(
        f"saved in {escape(str(folder / 'run'))}; look at it: [bold]holdfast report {shown}[/]"
    )


def run(
    app_folder: Annotated[Path, typer.Argument(metavar="APP", help="The app's folder.")],
    folder: Annotated[Path, typer.Option(help="The run's folder, on the SuperLink's machine.")],
    superlink: Superlink = "127.0.0.1:8000",
    certificate: Certificate = None,
    rounds: Annotated[int, typer.Option(help="Number of rounds, those before included.")] = 10,
    insecure: Insecure = False,
    home: Home = Path(".holdfast"),
) -> None:
    """Run an app in a federation that is up; one that was stopped goes on from its folder.

    Example:

    [bold]holdfast deploy run app --folder /srv/runs/trial --superlink fed:8000 --ca keys/ca.crt[/]
    """
    connection = _connection(home, superlink, certificate, insecure)
    for line in connection.run(app_folder, rounds=rounds, folder=str(folder.resolve())):
        _show(line)


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
    for words in (("supernode", "list"), ("list",)):
        out.print(escape(connection.flwr(*words).strip()), highlight=False)


def _connection(
    home: Path, superlink: str, certificate: Path | None, insecure: bool
) -> "Connection":
    from holdfast.deploy.local import Connection

    if certificate is None and not insecure:
        raise HoldfastError(
            "deploy: give --ca CERTIFICATE, or --insecure for a SuperLink on this machine without TLS."
        )
    return Connection(home, superlink, None if insecure else certificate)


def _show(line: str) -> None:
    """What the server says of a round, and what is wrong; not what Flower says of itself."""
    said, _, rest = line.partition("holdfast round=")
    if rest and not said:
        out.print(f"round {rest}", highlight=False, soft_wrap=True)
    elif line.startswith(("round ", "deploy: ", "Error")) or "HoldfastError" in line:
        out.print(escape(line), highlight=False, soft_wrap=True)


_COMMANDS: dict[str, Callable[..., None]] = {
    "new": new,
    "keys": keys,
    "local": local,
    "run": run,
    "resume": run,
    "status": status,
}
for _name, _function in _COMMANDS.items():
    app.command(_name)(said_in_one_line(_function))
