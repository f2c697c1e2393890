"""`hardtack watch`: a local page that follows running jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hardtack.base.registry import verbs
from hardtack.commands.words import say


@verbs.register("watch")
def watch(
    runs: Annotated[list[Path] | None, typer.Argument(help="run folders, or folders of run folders (runs)")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="of this machine; 0: any")] = None,
    once: Annotated[bool, typer.Option("--once", help="print the state of all jobs and end; serve nothing")] = False,
    open_page: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
) -> None:
    """Follow running jobs on a page of this machine: [bold]hardtack watch runs/[/bold].

    Trainings: epoch, time left, curves of loss and accuracies. Evaluations: pieces done, accuracy so far. Runs that
    start later appear by themselves. Folders are read and never changed. The page is served to this machine alone;
    Ctrl-C ends it, and the jobs go on.
    """
    from hardtack.report.watch import Watcher, WatchServer, status_lines

    watcher = Watcher([_watched(path) for path in runs or [Path("runs")]])
    if once:
        for line in status_lines(watcher.state()):
            say(line)
        return
    server = WatchServer(watcher, port)
    try:
        say(f"watching {', '.join(str(path) for path in runs or [Path('runs')])}: {server.address} (Ctrl-C ends it)")
        if open_page:
            typer.launch(server.address)
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        say("watch: ended; the jobs go on")
    finally:
        server.server_close()


def _watched(path: Path) -> Path:
    """A folder that may still be missing, if no other one has almost this name."""
    from hardtack.base.errors import UserError, did_you_mean
    from hardtack.base.files import local_path

    path = local_path(path)
    if path.is_file():
        raise UserError(f"{path} is a file; name a folder of runs: hardtack watch runs/")
    if not path.is_dir():
        parent = path.resolve().parent
        if not parent.is_dir():
            raise UserError(f"there is no folder {parent}")
        if near := did_you_mean(path.name, [item.name for item in parent.iterdir() if item.is_dir()]):
            raise UserError(f"there is no folder {path}{near}")
        say(f"{path} does not exist yet; runs appear when it does")
    return path
