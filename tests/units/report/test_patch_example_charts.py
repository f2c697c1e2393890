"""Charts of images with damaged patches: a view for each run, the probability below each picture."""

import hardtack as ht
from hardtack.analysis.patch_examples.chart import patch_examples_charts
from hardtack.base.runtime import Runtime
from hardtack.models import load_model
from hardtack.report import charts, write_figures
from hardtack.results import read_runs
from tiny_runs import images, labels


def shown(folder, **settings):
    model = load_model("vit_digits", num_classes=4, image_size=8, seed=0, patch_size=2, depth=1, width=16, heads=2)
    runtime = Runtime(device="cpu")
    return ht.analyze(
        model, (images(4), labels(4)), "patch_examples", folder=folder, runtime=runtime, quiet=True, **settings
    )


def test_every_run_has_a_view_with_its_confidences(tmp_path):
    found = [shown(tmp_path / "runs" / name, kinds=["noise", "occlude"], shown=2) for name in ("plain", "rspc")]
    (chart,) = patch_examples_charts(read_runs(tmp_path / "runs"))
    assert [view["name"] for view in chart["views"]] == ["plain", "rspc"]
    view = chart["views"][1]
    assert [one["name"] for one in view["columns"]] == ["clean", "noise added", "occluded by noise"]
    texts = [[cell["text"] for cell in one["cells"]] for one in view["rows"]]
    assert texts == [[f"{100 * value:.1f}%" for value in values] for values in found[1].arrays["confidence"][:2]]
    assert "2 of 16 patches of 2×2, chosen at random" in chart["caption"]
    assert charts.runs_in([chart]) == [0, 1]
    files = write_figures([tmp_path / "runs"], tmp_path / "figures", formats=["png"])
    assert any("patch" in file.name for file in files)


def test_other_damage_is_another_chart_and_no_pictures_no_chart(tmp_path):
    shown(tmp_path / "runs" / "a", kinds=["occlude"])
    shown(tmp_path / "runs" / "b", kinds=["drop"])
    assert len(patch_examples_charts(read_runs(tmp_path / "runs"))) == 2
    shown(tmp_path / "none" / "a", kinds=["occlude"], shown=0)
    assert patch_examples_charts(read_runs(tmp_path / "none")) == []
