"""What a user has of a result: numbers as dictionaries and data frames, and the table and curve of a notebook."""

import importlib.util
import json
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import hardtack as ht

X = torch.rand(24, 3, 6, 8, generator=torch.Generator().manual_seed(0))
Y = X.mean((2, 3)).argmax(1)


def brightest(x):
    """Which colour is the brightest: right on all clean images."""
    return 100 * x.mean((2, 3))


@pytest.fixture(scope="module")
def measured():
    return ht.evaluate(
        brightest, (X, Y), suite="sweep", threat="linf:0.02", attack={"steps": 3, "start": "clean"}, quiet=True
    )


def routes():
    """The same images as a user may have them; what they are read as is the same to the bit."""
    from torch.utils.data import DataLoader, TensorDataset

    pixels = (X * 255).byte()
    last = pixels.permute(0, 2, 3, 1).numpy()
    yield pixels.float() / 255, Y
    yield last, Y.numpy().astype(np.uint8)
    yield last.astype(np.int32), Y.tolist()
    yield (last / 255).astype(np.float32), Y[:, None]
    yield DataLoader(TensorDataset(pixels, Y), batch_size=5, shuffle=True)
    yield [{"image": image, "label": int(label)} for image, label in zip(last, Y, strict=True)]
    if importlib.util.find_spec("datasets"):
        import datasets
        from PIL import Image

        columns = {"image": [Image.fromarray(image) for image in last], "label": Y.tolist()}
        yield datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())


def test_the_same_images_give_the_same_verdicts_whatever_they_come_as(tmp_path):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, 3))
    torch.nn.init.normal_(net[1].weight, generator=torch.Generator().manual_seed(0))
    found = [
        ht.evaluate(net, data, threat="linf:0.02", attack={"steps": 2}, n=20, audit=0, quiet=True) for data in routes()
    ]
    assert len(found) >= 6 and {each.results[0].n for each in found} == {20}
    first = found[0].verdicts
    for each in found[1:]:
        assert all(np.array_equal(each.verdicts[name], first[name]) for name in ("label", "robust", "clean_prediction"))
        assert each.results[-1].value == found[0].results[-1].value
        assert "0 … 255" in each.results[0].data_description or each.results[0].data in ("tensors", "arrays/given")
    kept = ht.evaluate(net, next(routes()), suite="clean", folder=tmp_path / "run", quiet=True)
    again = ht.evaluate(net, next(routes()), suite="clean", folder=tmp_path / "run", quiet=True)
    assert again.results == kept.results, "recalled from the folder"
    with pytest.raises(ht.UserError, match="results in a folder need a model with weights"):
        ht.evaluate(brightest, (X, Y), folder=tmp_path / "run", quiet=True)


class Seen(HTMLParser):
    """The texts of a piece of HTML, whose tags must be closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.texts, self.tags = [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts += [data.strip()] * bool(data.strip())


def test_a_result_as_a_dictionary(measured):
    values = json.loads(json.dumps(measured.to_dict(), allow_nan=False))
    assert values["clean_accuracy"] == measured.clean_accuracy == 1.0 and values["n"] == 24
    assert values["robust_accuracy"] == measured.robust_accuracy
    assert [row["threat"] for row in values["results"] if row["metric"] == "robust_accuracy"][-1] == "linf:0.04"
    assert values["flags"] == [dict(flag) for flag in measured.flags]


def test_a_result_as_a_data_frame(measured):
    pytest.importorskip("pandas")
    numbers, images = measured.to_frame(), measured.to_frame("images")
    robust = numbers[numbers.metric == "robust_accuracy"].set_index("threat").value
    assert robust.is_monotonic_decreasing and robust["linf:0"] == 1.0
    assert list(images["label"]) == Y.tolist() and images["robust"].mean() == robust.iloc[-1]
    with pytest.raises(ht.UserError, match="'results' or 'images', found 'rows'"):
        measured.to_frame("rows")


def test_without_pandas_a_sentence_names_it(measured, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ht.UserError, match=r"pip install 'hardtack\[frames\]'; to_dict\(\)"):
        measured.to_frame()


def test_a_result_in_a_notebook(measured):
    seen = Seen(measured._repr_html_())
    assert {"value", "95 % interval", "n", "robust accuracy linf:0.02", "100.00%", "24"} <= set(seen.texts)
    points = [text for text in seen.texts if text.startswith("linf:") and text.endswith("%")]
    robust = [result for result in measured.results if result.metric == "robust_accuracy"]
    assert points == [f"{each.threat}: {each.value:.2%}" for each in robust] and seen.tags.count("circle") == 7
    assert "script" not in seen.tags and "accuracy over the linf radius" in seen.texts
    one = ht.evaluate(brightest, (X, Y), threat="linf:0.02", attack={"steps": 3}, quiet=True)
    assert "svg" not in Seen(one._repr_html_()).tags


def test_names_of_strangers_are_text_in_a_notebook(measured):
    from hardtack.results.notebook import table_html

    bad = '<img src=x onerror="alert(1)">\x1b[2J'
    flags = [{"level": bad, "code": bad, "message": bad}]
    html = table_html(bad, [(bad, measured.results[0])] * 41, flags=flags, notes=[bad])
    seen = Seen(html)
    assert "img" not in seen.tags and "\x1b" not in html and "and 1 more: to_frame() has all of them" in html


def test_a_finding_as_a_dictionary_a_frame_and_a_table():
    model = ht.wrap(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, 3)), num_classes=3)
    finding = ht.analyze(model, (X, Y), "sparsity", quiet=True)
    values = json.loads(json.dumps(finding.to_dict(), allow_nan=False))
    assert values["analysis"] == "sparsity" and len(values["results"]) == len(finding.results)
    assert finding.results[0].metric.replace("_", " ") in " ".join(Seen(finding._repr_html_()).texts)
    pandas = pytest.importorskip("pandas")
    frame = finding.to_frame()
    assert isinstance(frame, pandas.DataFrame) and np.allclose(frame.value, [r.value for r in finding.results])
