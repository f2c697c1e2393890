"""Images with damaged patches: what is stored is what suite=patches measures, and masks are those of an occluder."""

import numpy as np
import pytest
import torch

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.models import Occluder, load_model, save_occluder
from tiny_runs import images, labels

CPU = Runtime(device="cpu")
RVT = ("rvt_tiny_32", {"widths": (16, 32), "depths": (1, 1), "heads": (2, 2)})
FAN = ("fan_tiny_hybrid_32", {"width": 16, "depth": 1, "heads": 2, "stem_depths": (1, 1)})


def build(name="vit_digits", options=None, side=8):
    options = {"patch_size": 2, "depth": 1, "width": 16, "heads": 2} if options is None else options
    return load_model(name, num_classes=4, image_size=side, seed=0, **options).eval()


def look(model, x, y, **settings):
    return ht.analyze(model, (x, y), "patch_examples", runtime=CPU, quiet=True, **settings)


@pytest.mark.parametrize("name, options", [RVT, FAN])
def test_confidences_are_those_of_suite_patches_behind_the_same_mask(name, options):
    model, x, y = build(name, options, 32), images(5, side=32), labels(5)
    found = look(model, x, y, shown=2)
    kinds = ("pgd", "noise", "occlude")
    measured = ht.evaluate(
        model, (x, y), suite="patches", patches={"kinds": kinds, "masks": 1}, runtime=CPU, quiet=True
    ).verdicts
    expected = [measured["clean_confidence"], *(measured[f"confidence@{kind}"] for kind in kinds)]
    assert found.facts["shown_as"] == ["clean", *kinds]
    assert found.arrays["confidence"] == pytest.approx(np.stack(expected, axis=1), abs=1e-5)
    assert found.of("true_class_confidence", "occlude").value == pytest.approx(np.mean(expected[3]), abs=1e-5)
    assert found.of("true_class_confidence", "pgd").threat == "linf:8/255"
    assert found.arrays["predicted"].shape == (5, 4)
    assert found.arrays["mask"].shape == (5, 8, 8) and found.arrays["mask"].sum(axis=(1, 2)).tolist() == [7] * 5


def test_only_the_patches_of_the_mask_change_and_pictures_show_them():
    x, y = images(4), labels(4)
    found = look(build(), x, y, kinds=["occlude", "drop"], share=0.25, shown=3)
    mask, shown = found.arrays["mask"], found.arrays["shown"]
    assert shown.shape == (3, 3, 8, 8, 3) and shown.dtype == np.uint8 and mask.sum() == 4 * 4
    pixels = mask.repeat(2, axis=1).repeat(2, axis=2)[:3, :, :, None]
    clean, occluded, dropped = (shown[:, at] for at in range(3))
    assert np.array_equal(np.where(pixels, 0, clean), dropped)
    assert np.array_equal(np.where(pixels, 0, occluded), dropped)
    assert np.array_equal(clean, (255 * x[:3]).round().permute(0, 2, 3, 1).numpy().astype(np.uint8))
    other = look(build(), x, y, kinds=["occlude"], share=0.25, mask=1).arrays["mask"]
    assert not np.array_equal(other, mask)


def test_an_occluder_chooses_the_patches(tmp_path):
    torch.manual_seed(0)
    occluder, x = Occluder(8, 2, 0.3), images(5)
    save_occluder(tmp_path / "occluder.safetensors", occluder)
    found = look(build(), x, labels(5), occluder=str(tmp_path / "occluder.safetensors"), kinds=["occlude"])
    assert np.array_equal(found.arrays["mask"], occluder(x).detach().numpy() > 0)
    assert (found.facts["patches"], found.facts["chosen_by"]) == (5, "occluder")


def test_batches_make_no_difference():
    x, y = images(5), labels(5)
    whole, parts = (look(build(), x, y, batch_size=size) for size in (5, 2))
    for name, values in whole.arrays.items():
        assert parts.arrays[name] == pytest.approx(values, abs=1e-5), name


def test_mistakes_are_refused():
    with pytest.raises(UserError, match="share"):
        look(build(), images(2), labels(2), share=0)
    with pytest.raises(UserError, match="its own share"):
        look(build(), images(2), labels(2), share=0.2, occluder="x.safetensors")
