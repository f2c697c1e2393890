"""`hardtack import`: numbers that others report, as run folders."""

from __future__ import annotations

from hardtack.base.registry import verbs
from hardtack.commands.words import Files, say, split_folders


@verbs.register("import", settings="hardtack.results.reported:ImportConfig")
def import_reported_words(words: Files) -> None:
    """Read numbers that others report: [bold]hardtack import model_info/cifar10/Linf output=runs/reported[/bold].

    Takes RobustBench's model info (files or folders) and writes a run folder for each model; such numbers have
    separate tables in the report. norm=linf, l2 or corruptions names the leaderboard of a file whose folder does not.
    """
    from hardtack.base.config import parse_words
    from hardtack.results.reported import import_reported

    files, settings = split_folders(words)
    folders = import_reported(files, parse_words(settings))
    last = f" to {folders[-1]}" if len(folders) > 1 else ""
    models = "1 model" if len(folders) == 1 else f"{len(folders)} models"
    say(f"reported: {models}, {folders[0]}{last}\nhardtack report shows them beside your own runs")
