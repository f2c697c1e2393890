"""`hardtack list models` and `hardtack describe`, as a person reads them."""

import pytest

from hardtack.base.registry import models
from hardtack.commands.cli import main
from hardtack.models import load_model, save_weights


def said(capsys, *words):
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def names(text):
    return [line.split()[0] for line in text.splitlines()[1:] if line.strip()]


def test_all_models_are_listed_with_what_one_wants_to_know(capsys):
    code, out, _ = said(capsys, "list", "models")
    assert code == 0 and set(names(out)) == {*models.names(), "timm:NAME"}
    assert out.splitlines()[0].split() == [
        "name", "family", "parameters", "GFLOPs", "pixels", "tokens", "attention", "source", "papers",
    ]  # fmt: skip
    row = next(line for line in out.splitlines() if line.startswith("swin_tiny_patch4_window7_224"))
    assert "28.29 M" in row and "3136→784→196→49" in row and "window" in row and "timm" in row


@pytest.mark.parametrize(
    "words, some, none",
    [
        (["swin"], "swin.arg", "vit.arg"),
        (["paper=cauchy", "pixels=32"], "covit_t1_32", "covit_t1_224"),
        (["family=vit"], "vit.arg", "cauchy_vit_s1_32"),
        (["attention=channel", "source=ours"], "fan_tiny_hybrid_32", "swin.arg"),
    ],
)
def test_rows_are_chosen_by_word_and_by_column(words, some, none, capsys):
    code, out, _ = said(capsys, "list", "models", *words)
    assert code == 0 and some in names(out) and none not in names(out)


def test_another_size_is_counted_and_what_cannot_take_it_is_left_out(capsys):
    _, out, _ = said(capsys, "list", "models", "family=botnet", "image_size=64")
    assert "botnet50_cifar" in names(out) and all(" 64 " in line for line in out.splitlines()[1:])
    _, out, _ = said(capsys, "list", "models", "family=cpvt", "image_size=48")
    assert "cpvt_tiny_patch4_32" in names(out)


@pytest.mark.parametrize(
    "words, hint",
    [
        (["list", "models", "famly=vit"], "did you mean 'family'"),
        (["list", "models", "nothing_like_it"], "no model fits"),
        (["list", "models", "family=xcti"], "did you mean 'xcit'"),
        (["list", "models", "image_size=big"], "whole number"),
        (["list", "attacks", "zebra"], "none of the attacks"),
        (["describe", "vit_tiny_patch4_23"], "did you mean 'vit_tiny_patch4_32'"),
        (["describe", "vit_digits", "deph=2"], "did you mean 'depth'"),
        (["describe", "vit_digits", "patch_size=5"], "cannot be cut"),
    ],
)
def test_mistakes(words, hint, capsys):
    code, out, err = said(capsys, *words)
    assert code == 2 and hint in out + err


def test_a_model_is_drawn_with_its_shapes(capsys):
    code, out, _ = said(capsys, "describe", "vit_digits", "depth=3", "image_size=64", "num_classes=7")
    assert code == 0
    assert "3×64×64" in out and "0–2 ×3" in out and "64×64" in out and "attention → mlp" in out
    drawn, _, options = out.partition("options: ")
    assert drawn.strip().splitlines()[-1].split()[1:4] == ["head", "Linear", "7"]
    assert options.startswith("image_size=32  patch_size=8") and "drop_path=0.0" in options


def test_a_weights_file_and_a_timm_model_are_drawn(tmp_path, capsys):
    save_weights(tmp_path / "a.safetensors", load_model("resnet8_cifar", seed=0))
    code, out, _ = said(capsys, "describe", str(tmp_path / "a.safetensors"))
    assert code == 0 and "resnet8_cifar" in out and "64×8×8" in out and "convolution" in out
    code, out, _ = said(capsys, "describe", "timm:vit_tiny_patch16_224", "image_size=32", "patch_size=8", "depth=1")
    assert code == 0 and "17×192" in out
