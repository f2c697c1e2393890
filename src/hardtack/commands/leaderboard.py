"""`hardtack leaderboard`: a static site over hundreds of runs and studies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hardtack.base.registry import verbs
from hardtack.commands.words import say

if TYPE_CHECKING:
    from hardtack.report.site import SiteReport, Verified

_MOST_TOLD = 8


@verbs.register("leaderboard")
def leaderboard_words(
    runs: Annotated[list[Path] | None, typer.Argument(help="run folders, or folders of run folders")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="the folder of the site")] = Path("site"),
    reported: Annotated[
        list[Path] | None,
        typer.Option("--reported", help="RobustBench's model info (files or folders) to show beside the runs"),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="run hardtack verify on every run, for the badge 'verified'")
    ] = False,
    title: Annotated[str, typer.Option("--title", help="the heading of the index")] = "Leaderboard",
    open_page: Annotated[bool, typer.Option("--open", help="open the index in a browser")] = False,
) -> None:
    """Write a static site over many runs: [bold]hardtack leaderboard runs/ --output site[/bold].

    The index filters and sorts by data, threat, attack, architecture and parameters, and draws robust against clean
    accuracy with the Pareto front. Each run and each study has a page. Badges say what was checked about the evidence
    of a number. The site opens from the disk. A repeated call writes only what changed.
    """
    report = write_leaderboard(runs or [], output, reported=reported or [], verify=verify, title=title)
    say(f"{report}\nsite: {report.index}")
    for line in report.problems[:_MOST_TOLD]:
        say(f"problem: {line}")
    if len(report.problems) > _MOST_TOLD:
        say(f"problem: {len(report.problems) - _MOST_TOLD} more, which the index names")
    if open_page:
        typer.launch(report.index.resolve().as_uri())


def write_leaderboard(
    runs: str | Path | Iterable[str | Path],
    output: str | Path = "site",
    *,
    reported: Iterable[str | Path] = (),
    verify: bool = False,
    title: str = "Leaderboard",
    quiet: bool = False,
) -> SiteReport:
    """Write the site over these runs, and the studies among them, to a folder: `ht.write_leaderboard("runs/", "site")`.

    The settings are those of `hardtack leaderboard`. Returns what was written, with the path of the index.
    """
    from hardtack.base.errors import UserError
    from hardtack.base.files import local_path
    from hardtack.report.site import write_site
    from hardtack.results.reported import reported_runs
    from hardtack.studies.state import study_folders

    named = [runs] if isinstance(runs, str | Path) else list(runs)
    folders, listed = [local_path(path) for path in named], list(reported)
    if not folders and not listed:
        raise UserError("name a folder of runs: hardtack leaderboard runs/ --output site")
    return write_site(
        folders,
        local_path(output),
        title=title,
        studies=study_folders(folders),
        reported=reported_runs(listed) if listed else [],
        verify=_verifier() if verify else None,
        quiet=quiet,
    )


def _verifier() -> Callable[[Path], Mapping[str, Verified]]:
    """What `hardtack verify` says of the evaluations of a run, by id; one that needs more than the folder says so."""
    from hardtack.base.errors import UserError
    from hardtack.report.site import Verified
    from hardtack.results import read_results

    def ask(folder: Path) -> dict[str, Verified]:
        from hardtack.evaluation.verification import verify  # imports torch: only where a run has to be verified

        try:
            ids = dict.fromkeys(result.evaluation for result in read_results(folder))
        except UserError:
            return {}
        told: dict[str, Verified] = {}
        for id in ids:
            try:
                outcome = verify(folder, [f"evaluation={id}"])[0]
                lacking = [line for line in outcome.wrong if line.startswith("not verifiable")]
                failed = lacking[0] if lacking and len(lacking) == len(outcome.wrong) else ""
                shown: Literal["adversarial", "clean", "none"] = "adversarial" if outcome.attacked else "clean"
                told[id] = Verified(
                    wrong=outcome.wrong, unverifiable=outcome.unverifiable, failed=failed,
                    shown="none" if outcome.summary else shown,
                )  # fmt: skip
            except UserError as error:
                told[id] = Verified(failed=str(error))
        return told

    return ask
