"""`holdfast watch`: the report page while a run goes on."""

import threading
import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import complete
from holdfast.cli.console import out
from holdfast.errors import HoldfastError


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A folder of `holdfast run`, finished or not.",
            autocompletion=complete.run_folders,
        ),
    ],
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Of the page; 8642 or, if it is taken, a free one."),
    ] = None,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 3.0,
    browser: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser of this machine.")
    ] = False,
) -> None:
    """Show the report page of a run while it goes on; Ctrl-C ends the showing, not the run.

    The page is served to this machine alone. It follows the run, and keeps what was chosen on it.

    Examples:

    [bold]holdfast watch runs/digits[/]
    [bold]holdfast watch runs/digits --port 9000 --open[/]
    """
    from holdfast.report.live import PORT, Watched, server

    watched = Watched(folder, every)
    try:
        serving = server(watched, PORT if port is None else port)
    except HoldfastError:
        if port is not None:
            raise
        serving = server(watched)
    with serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{serving.server_address[1]}/"
        out.print(f"watching  {folder}", highlight=False, markup=False, soft_wrap=True)
        out.print(
            f"page      {address}   (Ctrl-C ends)", highlight=False, markup=False, soft_wrap=True
        )
        if browser:
            webbrowser.open(address)
        told = ""
        try:
            while True:
                progress = watched.progress()
                state = progress.in_words().partition(":")[0]
                if state != told:
                    out.print(progress.in_words(), highlight=False, markup=False)
                told = state
                time.sleep(every)
        except KeyboardInterrupt:
            out.print(
                "stopped watching; `holdfast report` writes the page to a file.", highlight=False
            )
        finally:
            serving.shutdown()
