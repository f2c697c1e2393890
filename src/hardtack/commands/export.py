"""`hardtack export`: results for a spreadsheet, a paper or RobustBench; models for other software."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hardtack.base.errors import UserError
from hardtack.base.files import local_path
from hardtack.base.registry import verbs
from hardtack.commands.words import Runs, say, split_folders

MODEL_FORMATS = {"format=onnx", "format=torch", "format=hub"}


@verbs.register("export", settings=("hardtack.results.export:ExportConfig", "hardtack.exports.subject:ModelExport"))
def export_words(words: Runs) -> None:
    """Export numbers or a model: [bold]hardtack export runs/ format=latex[/bold], or runs/x format=onnx.

    Numbers: format=csv (one line per result), latex (booktabs tables of comparable numbers) or robustbench (model info
    JSON; authors, link, venue, name, reported, architecture, footnote, additional_data are settings). output=FILE
    writes to a file. Models: format=onnx, torch (torch.export) or hub (a folder in Hugging Face's layout); what was
    written is read back and compared with the model on clean and stored adversarial images.
    """
    runs, settings = split_folders(words)
    if MODEL_FORMATS & set(settings):
        from hardtack.base.config import parse_words
        from hardtack.exports import export_run

        if len(runs) > 1:
            raise UserError(f"a model is exported from one run at a time, found {', '.join(runs)}")
        say(export_run(runs[0] if runs else None, parse_words(settings)))
        return
    say(export(runs, settings))


def export(runs: Sequence[str | Path], words: Iterable[str] = ()) -> str:
    """Write the file that `output` names and return a line about it; without `output` return the text itself."""
    from hardtack.base.config import build
    from hardtack.base.files import write_text
    from hardtack.results import read_runs
    from hardtack.results.export import ExportConfig, csv_text
    from hardtack.results.robustbench import write_model_infos

    config: ExportConfig = build(ExportConfig, _settings(words))
    if config.format == "robustbench":
        return write_model_infos(read_runs(runs), config, config.output)
    if config.format == "latex":
        from hardtack.report.damage import with_sound_runs
        from hardtack.report.latex import latex_text

        text = with_sound_runs(read_runs(runs), latex_text)
    else:
        text = csv_text(read_runs(runs))
    if config.output is None:
        return text.rstrip()
    return f"exported: {write_text(local_path(config.output), text)}"


def _settings(words: Iterable[str]) -> dict[str, str]:
    """Values as typed, not read as YAML: a title may hold a colon, and a name may look like a number."""
    pairs = [word.partition("=") for word in words]
    for key, equals, _ in pairs:
        if not equals:
            raise UserError(f"'{key}' is not of the form key=value (run folders come first)")
    return {key: value for key, _, value in pairs}
