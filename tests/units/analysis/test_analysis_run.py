"""Running analyses: killed ones are resumed, the piece size does not matter, and findings are stored and read."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import hardtack as ht
from hardtack.analysis import Conclusion, OverImages
from hardtack.analysis.analysis import mean_score
from hardtack.analysis.landscape.directions import filter_direction
from hardtack.base.errors import UserError
from hardtack.base.registry import Registry, analyses
from hardtack.base.runtime import Runtime
from hardtack.commands.cli import main
from hardtack.evaluation.class_subset import ClassSubset
from hardtack.results import read_results, read_run

CPU = Runtime(device="cpu")


@dataclass(frozen=True, kw_only=True)
class Brightness(OverImages):
    """Mean pixel of each image."""

    def begin(self, context):
        return _Brightness(self, context)


class _Brightness:
    def __init__(self, settings, context):
        self.context = context
        self.length, self.at_once = context.count, settings.batch_size or 3

    def rows(self, start, stop):
        x, y, index = self.context.images(start, stop)
        assert not self.context.model.training
        pixel = x.mean(dim=(1, 2, 3)).double()
        return {"index": index.numpy(), "label": y.numpy(), "pixel": pixel.numpy()}

    def conclude(self, arrays):
        return Conclusion(
            scores=[mean_score("brightness", arrays["pixel"])], facts={"images": self.length}, notes=["only a toy"]
        )


@pytest.fixture
def toy(monkeypatch):
    registry = Registry("analyses", "analysis")
    registry.register("brightness")(Brightness)
    monkeypatch.setattr("hardtack.analysis.run.analyses", registry)
    model = ht.load_model("vit_digits", num_classes=10, image_size=8, seed=0)
    return model, (torch.rand(11, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(11) % 10)


def test_a_finding_has_arrays_and_a_result_with_its_interval(toy):
    model, (x, y) = toy
    found = ht.analyze(model.train(), (x, y), "brightness", n=7, runtime=CPU, quiet=True)
    assert model.training
    assert found.arrays["pixel"] == pytest.approx(x[:7].mean(dim=(1, 2, 3)).double().numpy(), abs=1e-6)
    (result,) = found.results
    assert (result.suite, result.n, result.metric) == ("analysis", 7, "brightness")
    assert result.low < result.value < result.high
    assert found.of("brightness") is result and found.of("darkness") is None
    assert "only a toy" in str(found) and "brightness" in str(found)


def test_one_image_has_no_interval(toy):
    model, (x, y) = toy
    (result,) = ht.analyze(model, (x, y), "brightness", n=1, runtime=CPU, quiet=True).results
    assert result.low is None and result.high is None and result.value == pytest.approx(x[0].mean().item())


def test_the_piece_size_does_not_change_the_arrays(toy):
    model, data = toy
    one, many = (ht.analyze(model, data, "brightness", batch_size=b, runtime=CPU, quiet=True) for b in (1, 20))
    assert np.array_equal(one.arrays["pixel"], many.arrays["pixel"])


def test_a_killed_analysis_is_resumed(toy, tmp_path, monkeypatch):
    model, data = toy
    model_run = tmp_path / "run"
    with monkeypatch.context() as patch:
        seen = []
        rows = _Brightness.rows
        dying = lambda self, start, stop: seen.append(start) or (_die() if start >= 6 else rows(self, start, stop))  # noqa: E731
        patch.setattr(_Brightness, "rows", dying)
        with pytest.raises(KeyboardInterrupt):
            ht.analyze(model, data, "brightness", folder=model_run, runtime=CPU, quiet=True)
    assert seen == [0, 3, 6] and not read_results(model_run)
    again = []
    monkeypatch.setattr(_Brightness, "rows", lambda self, a, b: again.append(a) or rows(self, a, b))
    found = ht.analyze(model, data, "brightness", folder=model_run, runtime=CPU, quiet=True)
    assert again == [6, 9]
    whole = ht.analyze(model, data, "brightness", runtime=CPU, quiet=True)
    assert np.array_equal(found.arrays["pixel"], whole.arrays["pixel"])
    assert not list(model_run.glob("analysis/.*"))
    known = ht.analyze(model, data, "brightness", folder=model_run, runtime=CPU, quiet=True)
    assert again == [6, 9, 0, 3, 6, 9] and known.id == found.id
    assert np.array_equal(known.arrays["pixel"], found.arrays["pixel"]) and known.results == found.results


def _die():
    raise KeyboardInterrupt


def test_other_weights_images_or_settings_are_another_analysis(toy, tmp_path):
    model, (x, y) = toy

    def id(model=model, x=x, **settings):
        return ht.analyze(model, (x, y), "brightness", folder=tmp_path, runtime=CPU, quiet=True, **settings).id

    first = id()
    other = ht.load_model("vit_digits", num_classes=10, image_size=8, seed=1)
    assert len({first, id(model=other), id(x=x.flip(0)), id(n=5)}) == 4 and id() == first
    assert id(batch_size=2) == first  # after an OutOfMemoryError, say


def test_the_same_images_are_the_same_analysis_whichever_others_were_loaded(toy, tmp_path):
    model, _ = toy
    found = [
        ht.analyze(model, ht.load_data("digits", "test", image_size=8, limit=limit), "brightness", n=6, folder=tmp_path,
                   runtime=CPU, quiet=True)
        for limit in (6, 20, None)
    ]  # fmt: skip
    assert len({one.id for one in found}) == 1 and len(read_run(tmp_path).findings) == 1
    assert found[0].about["data_description"].endswith("; first 6")


def test_weights_that_are_not_finite_are_refused_by_name(toy):
    model, data = toy
    with torch.no_grad():
        model.get_parameter("body.head.weight")[0, 0] = torch.nan
    with pytest.raises(UserError, match=r"not finite, in body\.head\.weight"):
        ht.analyze(model, data, "brightness", runtime=CPU, quiet=True)


def test_findings_are_part_of_the_run(toy, tmp_path):
    model, data = toy
    found = ht.analyze(model, data, "brightness", folder=tmp_path, runtime=CPU, quiet=True)
    run = read_run(tmp_path)
    (finding,) = run.findings
    assert finding.facts == {"images": 11} and finding.results == found.results
    from hardtack.results import leaderboard, per_image, read_verdicts

    assert leaderboard([run]) == []  # numbers that explain are no competition
    vector = per_image(finding.results[0], read_verdicts(tmp_path / finding.results[0].verdicts))
    assert vector == pytest.approx(found.arrays["pixel"])


def test_a_finding_without_its_arrays_gives_a_warning_and_is_computed_again(toy, tmp_path):
    model, data = toy
    kept, lost = (
        ht.analyze(model, data, "brightness", n=n, folder=tmp_path, runtime=CPU, quiet=True).id for n in (3, 5)
    )
    (tmp_path / "analysis" / f"{lost}.npz").write_bytes(b"half of it")
    with pytest.warns(UserWarning, match="missing or damaged"):
        run = read_run(tmp_path)
    assert [finding.id for finding in run.findings] == [kept]
    assert run.problems and all(lost in problem for problem in run.problems)
    ht.analyze(model, data, "brightness", n=5, folder=tmp_path, runtime=CPU, quiet=True)
    assert {finding.id for finding in read_run(tmp_path).findings} == {kept, lost}


class Restless(torch.nn.Module):
    """Answers with noise, or less the mean of its batch."""

    def __init__(self, noise):
        super().__init__()
        self.net, self.noise = torch.nn.Linear(192, 10), noise

    def forward(self, x):
        logits = self.net(x.flatten(1))
        return logits + torch.randn_like(logits) if self.noise else logits - logits.mean(dim=0, keepdim=True)


@pytest.mark.parametrize("noise, code", [(True, "random_outputs"), (False, "batch_dependent")])
def test_random_logits_are_flagged(toy, tmp_path, noise, code):
    def found(folder=None):
        return ht.analyze(model, toy[1], "brightness", n=1, folder=folder, runtime=CPU, quiet=True)

    model = Restless(noise)
    for finding in (found(), found(tmp_path), found(tmp_path), *read_run(tmp_path).findings):
        assert [flag["code"] for flag in finding.results[0].flags] == [code]
        assert f"RED FLAG {code}" in str(finding)
    assert not ht.analyze(toy[0], toy[1], "brightness", runtime=CPU, quiet=True).results[0].flags


def test_an_analysis_of_weights_does_not_run_the_model(toy):
    model, data = Restless(noise=True), (torch.rand(6, 3, 5, 5), torch.arange(6) % 2)  # not the images it takes
    found = ht.analyze(model, data, analyses.get("complexity").make(), runtime=CPU, quiet=True)
    assert not found.results[0].flags


def test_logits_that_are_not_finite_are_refused(toy):
    class Nowhere(Restless):
        def forward(self, x):
            return super().forward(x) / 0

    with pytest.raises(UserError, match="NaN or infinite logits"):
        ht.analyze(Nowhere(noise=False), toy[1], "brightness", runtime=CPU, quiet=True)


def test_missing_images_are_refused(toy):
    with pytest.raises(UserError, match="needs images"):
        ht.analyze(toy[0], None, "brightness", runtime=CPU)
    with pytest.raises(UserError, match="takes a model"):
        ht.analyze("vit", toy[1], "brightness", runtime=CPU)
    with pytest.raises(UserError, match="did you mean 'brightness'"):
        ht.analyze(toy[0], toy[1], "brightnes", runtime=CPU)


def test_invalid_images_are_refused_by_analyses(toy):
    model, (x, y) = toy
    with pytest.raises(UserError, match=r"must lie in \[0,1\]"):
        ht.analyze(model, (255 * x, y), "brightness", runtime=CPU, quiet=True)
    with pytest.raises(UserError, match="labels must lie in 0 … 9"):
        ht.analyze(model, (x, y + 5), "brightness", runtime=CPU, quiet=True)


def test_scores_that_are_not_finite_are_left_out_with_a_note(toy, tmp_path, monkeypatch):
    model, (x, y) = toy
    nothing = Conclusion(
        scores=[mean_score("lost", np.array([np.nan, 1.0])), mean_score("kept", np.array([1.0, 2.0]))],
        facts={"rates": [float("inf"), 1.0]},
    )
    monkeypatch.setattr(_Brightness, "conclude", lambda self, arrays: nothing)
    ht.analyze(model, (x, y), "brightness", folder=tmp_path, runtime=CPU, quiet=True)
    (finding,) = read_run(tmp_path).findings
    assert [one.metric for one in finding.results] == ["kept"] and finding.facts == {"rates": [None, 1.0]}
    assert "lost is not a finite number" in finding.notes[0]


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "name an analysis"),
        (["sparsty", "model=vit_digits"], "did you mean 'sparsity'"),
        (["model=vit_digits", "sparsity", "threshold=1"], "did you mean sparsity.threshold"),
        (["model=vit_digits", "sparsity", "sparsity.treshold=1"], "sparsity.treshold"),
        (["model=vit_digits", "sparsity", "sparsity=1"], "sparsity.KEY"),
        (["model=vit_digits", "sparsity", "n=3"], "uses no images"),
        (["nowhere", "sparsity"], "nowhere"),
        (["sparsity"], "name a run folder or a model"),
        (["sparsity", "nowhere"], "there is no analysis 'nowhere'"),
        (["runs/nowhere", "sparsty"], "did you mean 'sparsity'"),
        (["a", "sparsity", "b"], "one run folder at a time, found a and b"),
    ],
)
def test_mistakes_are_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    assert main(["analyze", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_the_command_stores_findings(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", "model=vit_digits", "sparsity", "output=here"]) == 0
    said = capsys.readouterr().out
    assert "sparsity global" in said and "FLAG untrained" in said
    (finding,) = read_run("here").findings
    assert finding.about["words"] == ["sparsity", "model=vit_digits"]
    assert main(["report", "here"]) == 0


def test_an_analysis_that_is_not_possible_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["model=timm:resnet10t", "data=digits", "n=2", "output=here"]
    assert main(["analyze", *words, "attention", "sparsity"]) == 2
    said = capsys.readouterr()
    assert "sparsity global" in said.out and "attention: ResNet has no attention" in said.err
    assert [finding.analysis for finding in read_run("here").findings] == ["sparsity"]


def test_an_error_in_one_analysis_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    def broken(self, context):
        raise ZeroDivisionError("of a stranger's")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hardtack.analysis.saliency.analysis.Saliency.begin", broken)
    words = ["model=timm:resnet10t", "data=digits", "n=2", "output=here"]
    assert main(["analyze", *words, "saliency", "attention", "sparsity"]) == 1
    said = capsys.readouterr()
    assert "sparsity global" in said.out and "saliency: ZeroDivisionError: of a stranger's" in said.err
    assert "attention: ResNet has no attention" in said.err and "fault of hardtack" in said.err
    assert [finding.analysis for finding in read_run("here").findings] == ["sparsity"]


def test_a_model_with_a_class_subset_is_analysed_as_the_same_network():
    model = ht.load_model("vit_digits", num_classes=10, image_size=8, seed=0)
    some = ClassSubset(model, torch.tensor([0, 3, 5]))
    data = (torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(3))

    def seen(model, name, **settings):
        return ht.analyze(model, data, name, runtime=CPU, quiet=True, **settings)

    assert seen(some, "jacobian").facts["layers"] == seen(model, "jacobian").facts["layers"]
    assert seen(some, "sparsity").facts["names"] == seen(model, "sparsity").facts["names"]
    one, other = (filter_direction(given, seed=0, number=0) for given in (some, model))
    assert all(torch.equal(one[f"model.{name}"], part) for name, part in other.items())
