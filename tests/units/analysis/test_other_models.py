"""Further models beside the analysed one: names, labels, and loading for the same classes and images."""

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.analysis.other_models import Other, Resized, read_others
from hardtack.base.errors import UserError
from hardtack.evaluation.class_subset import ClassSubset
from hardtack.models.weights import save_weights


@pytest.fixture
def run(tmp_path):
    file = tmp_path / "mine" / "checkpoints" / "best.safetensors"
    file.parent.mkdir(parents=True)
    save_weights(file, ht.load_model("vit_digits", num_classes=10, image_size=8, seed=0))
    return tmp_path / "mine"


def test_names_and_labels_are_read_from_text_and_back(run):
    given = [str(run), str(run / "checkpoints" / "best.safetensors"), {"name": "timm:resnet10t", "pretrained": False}]
    others = read_others(given)
    assert [one.label for one in others] == ["mine (1)", "mine (2)", "timm:resnet10t (no weights)"]
    assert [one.is_untrained for one in others] == [False, False, True]
    assert [Other.parse(str(one)).fingerprint() for one in others] == [one.fingerprint() for one in others]
    assert [one.label for one in read_others(f"{run}, timm:resnet10t")] == ["mine", "timm:resnet10t"]
    assert read_others("") == read_others(()) == read_others({}) == ()


def test_a_fingerprint_is_that_of_the_weights(run):
    (other,) = read_others(str(run))
    before = other.fingerprint()
    other_weights = ht.load_model("vit_digits", num_classes=10, image_size=8, seed=1)
    save_weights(run / "checkpoints" / "best.safetensors", other_weights)
    assert other.fingerprint() != before


def test_a_fingerprint_of_a_function_is_that_of_its_code(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def build(): ...\n")
    other = Other.parse(f"{file}:build")
    before = other.fingerprint()
    file.write_text("def build(): return 1\n")
    assert other.fingerprint() != before


def test_a_run_is_loaded_and_resized_where_it_takes_other_images(run):
    like, x = ht.load_model("vit_digits", num_classes=10, image_size=16, seed=0), torch.rand(2, 3, 16, 16)
    (other,) = read_others(str(run))
    model = other.load(like, (3, 16, 16))
    assert isinstance(model, Resized) and model(x).shape == (2, 10)
    assert not isinstance(other.load(like, (3, 8, 8)), Resized)


def test_a_module_is_copied_and_restricted_to_the_same_classes():
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 6))
    module.num_classes = 6
    whole = nn.Sequential(nn.Flatten(), nn.Linear(12, 6))
    whole.num_classes = 6
    model = Other.parse(module).load(ClassSubset(whole, torch.tensor([1, 4])), (3, 2, 2))
    x = torch.rand(5, 3, 2, 2)
    assert torch.equal(model(x), module(x)[:, [1, 4]])
    assert all(a is not b for a, b in zip(model.parameters(), module.parameters(), strict=True))


@pytest.mark.parametrize(
    "given, said",
    [
        ("runs/nowhere", "no weights file or run folder runs/nowhere"),
        ([{"pretrained": True}], "'others.name' is missing"),
        ([{"name": "a", "wieghts": "b"}], "others.wieghts"),
        ([{"name": "vit_digits", "weights": "nowhere.safetensors"}], "nowhere.safetensors"),
        ([3], "expected a mapping"),
    ],
)
def test_mistakes_name_the_model(given, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    like = ht.load_model("vit_digits", num_classes=10, image_size=8, seed=0)
    with pytest.raises(UserError, match=said):
        for other in read_others(given):
            other.load(like, (3, 8, 8))
