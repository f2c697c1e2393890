"""Weights arrive whole, fit, or are refused with the reason; nothing in a file is ever executed."""

import argparse
import os
import pickle

import pytest
import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models import find_weights, load_model, load_weights, read_metadata, rebuild, save_weights, wrap


@pytest.fixture
def model():
    return load_model("vit_digits", depth=1, seed=0)


def other():
    return load_model("vit_digits", depth=1, seed=1)


def same(a, b):
    theirs = b.state_dict()
    return all(torch.equal(value, theirs[key]) for key, value in a.state_dict().items())


def test_equal_weights_make_equal_files_and_nothing_else_is_left(model, tmp_path):
    file = tmp_path / "deep" / "a.safetensors"
    first = save_weights(file, model, metadata={"b": 1, "a": [2.5], "n": torch.tensor(3)})
    assert save_weights(file, model, metadata={"n": 3, "a": [2.5], "b": 1}) == first
    assert sorted(os.listdir(file.parent)) == ["a.safetensors", "a.safetensors.sha256"]
    assert (file.parent / "a.safetensors.sha256").read_text() == f"{first}  a.safetensors\n"
    assert read_metadata(file)["architecture"]["options"]["depth"] == 1


def test_a_failed_save_leaves_the_old_file(model, tmp_path, monkeypatch):
    file = tmp_path / "a.safetensors"
    save_weights(file, model)

    def full(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("safetensors.torch.save", full)
    with pytest.raises(OSError):
        save_weights(file, other())
    target = other()
    load_weights(target, file)
    assert same(target, model) and len(os.listdir(tmp_path)) == 2


def test_wrappers_names_are_fitted(model, tmp_path):
    state, body = model.state_dict(), model.body.state_dict()
    forms = {
        "bare": body,
        "classifier": state,
        "parallel": {f"module.{k}": v for k, v in body.items()},
        "compiled": {f"module._orig_mod.{k}": v for k, v in state.items()},
        "lightning": {"state_dict": {f"model.{k}": v for k, v in body.items()}, "epoch": 3},
        "sequential": {"model": {f"1.{k}": v for k, v in body.items()}},
        "arguments": {"model": body, "args": argparse.Namespace(lr=0.1)},
    }
    for name, checkpoint in forms.items():
        torch.save(checkpoint, tmp_path / f"{name}.pt")
        target = other()
        load_weights(target, tmp_path / f"{name}.pt")
        assert same(target, model), name
    # and out of wrappers, into a plain module
    save_weights(tmp_path / "c.safetensors", torch.compile(model))
    target = other()
    load_weights(target.body, tmp_path / "c.safetensors")
    assert same(target, model)


def test_averaged_weights_come_first_and_can_be_declined(model, tmp_path):
    file = tmp_path / "both.pth"
    torch.save({"model": other().state_dict(), "model_ema": model.state_dict()}, file)
    target = other()
    with pytest.warns(UserWarning, match="took 'model_ema'"):
        assert load_weights(target, file).entry == "model_ema"
    assert same(target, model)
    load_weights(target, file, entry="model")
    assert same(target, other())
    with pytest.raises(UserError, match="no weights under 'net'"):
        load_weights(target, file, entry="net")


def test_a_misfit_lists_the_names_and_changes_nothing(model, tmp_path):
    file = tmp_path / "a.safetensors"
    save_weights(file, model)
    target = load_model("vit_digits", depth=2, num_classes=3, class_token=True, seed=2)
    before = {key: value.clone() for key, value in target.state_dict().items()}
    with pytest.raises(UserError) as caught:
        load_weights(target, file)
    message = str(caught.value)
    assert "13 missing" in message and "body.cls_token" in message and "and 5 more" in message
    assert "body.head.weight ((10, 64) in the file, (3, 64) in the model)" in message
    assert "\n" not in message
    assert all(torch.equal(before[key], value) for key, value in target.state_dict().items())
    with pytest.raises(UserError, match=r"unexpected: body\.blocks\.1"):
        save_weights(tmp_path / "b.safetensors", load_model("vit_digits", depth=2))
        load_weights(model, tmp_path / "b.safetensors")


def test_what_fits_is_loaded_when_asked(model, tmp_path):
    file = tmp_path / "a.safetensors"
    save_weights(file, model)
    target = load_model("vit_digits", depth=1, num_classes=3, seed=2)
    with pytest.warns(UserWarning, match="only in part"):
        loaded = load_weights(target, file, strict=False)
    assert set(loaded.wrong_shape) == {"body.head.weight", "body.head.bias"}
    assert torch.equal(target.body.pos_embed, model.body.pos_embed)


class Malicious:
    def __reduce__(self):
        return (os.system, ("touch was_executed",))


@pytest.mark.parametrize("write", [torch.save, lambda value, file: file.write_bytes(pickle.dumps(value))])
def test_code_in_a_checkpoint_is_refused(write, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write({"state_dict": model.state_dict(), "extra": Malicious()}, tmp_path / "evil.pt")
    with pytest.raises(UserError, match=r"evil.pt was not loaded.*could run code"):
        load_weights(model, tmp_path / "evil.pt")
    assert not (tmp_path / "was_executed").exists()


def test_damaged_files_are_refused(model, tmp_path):
    file = tmp_path / "a.safetensors"
    save_weights(file, model)
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    file.write_bytes(flipped)
    with pytest.raises(UserError, match="does not match its checksum"):
        load_weights(model, file)
    (tmp_path / "a.safetensors.sha256").unlink()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="cannot be read"):
        load_weights(model, file)
    with pytest.raises(UserError, match="cannot be read"):
        rebuild(file)
    for name, content in {"b.pt": b"", "c.pt": b"nonsense", "d.safetensors": b"nonsense"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=r"cannot be read|not loaded"):
            load_weights(model, tmp_path / name)
    torch.save(model.state_dict(), tmp_path / "e.pt")
    content = (tmp_path / "e.pt").read_bytes()
    (tmp_path / "e.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"cannot be read|not loaded"):
        load_weights(model, tmp_path / "e.pt")
    torch.save({"epoch": 3}, tmp_path / "f.pt")
    with pytest.raises(UserError, match="holds no weights; its keys are: epoch"):
        load_weights(model, tmp_path / "f.pt")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x.mean((2, 3))))


def test_tied_weights_stay_tied(tmp_path):
    model, target, x = wrap(Tied()), wrap(Tied()), torch.rand(2, 3, 4, 4)
    save_weights(tmp_path / "a.safetensors", model)
    load_weights(target, tmp_path / "a.safetensors")
    assert torch.equal(target(x), model(x))
    assert target.body.first.weight is target.body.second.weight
    torch.save({"first.weight": torch.eye(3)}, tmp_path / "half.pt")
    load_weights(target, tmp_path / "half.pt")
    assert torch.equal(target.body.second.weight, torch.eye(3))
    with pytest.raises(UserError, match=r"your own module .*Tied"):
        rebuild(tmp_path / "a.safetensors")


def test_run_folders_and_missing_files(model, tmp_path):
    run = tmp_path / "run"
    save_weights(run / "checkpoints" / "last.safetensors", model)
    assert find_weights(run).stem == "last"
    save_weights(run / "checkpoints" / "best.safetensors", model)
    assert find_weights(run).stem == "best" and find_weights(run, checkpoint="last").stem == "last"
    assert same(rebuild(run), model)
    with pytest.raises(UserError, match="it holds: best, last"):
        find_weights(run, checkpoint="epoch3")
    with pytest.raises(UserError, match="did you mean 'run'"):
        find_weights(tmp_path / "ruun")
    with pytest.raises(UserError, match=r"\.safetensors"):
        save_weights(tmp_path / "a.pt", model)


@pytest.mark.parametrize("kind", ["compiled", "module attribute"])
def test_what_was_saved_from_a_wrapped_part_loads_into_it_again(kind, tmp_path):
    """The names that torch.compile and parallel wrappers add are dropped on both sides of the comparison."""

    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = torch.nn.Linear(12, 3)

        def forward(self, x):
            return self.module(x.flatten(1))

    net = Holder() if kind == "module attribute" else torch.compile(Holder(), backend="eager")
    model = wrap(net, num_classes=3)
    save_weights(tmp_path / "w.safetensors", model)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    loaded = load_weights(model, tmp_path / "w.safetensors")
    assert not loaded.missing and not loaded.unexpected
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("other", [{"heads": 2}, {"activation": "relu"}])
def test_weights_of_another_function_are_refused_though_they_fit(other, tmp_path):
    save_weights(tmp_path / "a.safetensors", load_model("vit_digits", depth=1, seed=0))
    with pytest.raises(UserError, match=f"{next(iter(other))} .* → .*adapt=true"):
        load_model("vit_digits", depth=1, weights=tmp_path / "a.safetensors", **other)
    adapted = load_model("vit_digits", depth=1, weights=tmp_path / "a.safetensors", adapt=True, **other)
    assert next(iter(other)) in adapted.fitted.summary()
    # what only training notices is no other function
    load_model("vit_digits", depth=1, weights=tmp_path / "a.safetensors", drop_path=0.2)


class Clashing(nn.Module):
    """Parts whose names are those that wrappers put in front of all names."""

    def __init__(self):
        super().__init__()
        self.module, self.weight = nn.Linear(12, 4), nn.Parameter(torch.rand(4))
        self.model, self.body = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.body(self.model(self.module(x.flatten(1)) * self.weight))


@pytest.mark.parametrize("stored", [lambda net: net, nn.DataParallel, wrap])
@pytest.mark.parametrize("given", [lambda net: net, nn.DataParallel, wrap])
@pytest.mark.parametrize("file", ["a.pt", "a.safetensors"])
def test_parts_may_have_the_names_of_wrappers(stored, given, file, tmp_path):
    first, second = Clashing(), Clashing()
    if file == "a.pt":
        torch.save(stored(first).state_dict(), tmp_path / file)
    else:
        save_weights(tmp_path / file, stored(first))
    load_weights(given(second), tmp_path / file)
    assert same(first, second)
