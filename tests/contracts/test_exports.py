"""A model of every family can be exported: one graph for any number of images, with the logits of the model."""

import json

import pytest
import torch

from hardtack.commands.list import FACTS
from hardtack.evaluation.provenance import Provenance
from hardtack.exports import program
from hardtack.exports.comparison import Reference
from hardtack.exports.images import random_images
from hardtack.exports.subject import Subject
from hardtack.models import load_model


def smallest_of_each_family():
    table = json.loads(FACTS.read_text(encoding="utf-8"))
    by_size = sorted(table, key=lambda name: table[name]["gflops"], reverse=True)
    return sorted({table[name]["family"]: name for name in by_size}.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", smallest_of_each_family())
def test_every_family_is_a_program_for_any_number_of_images(name, tmp_path):
    model = load_model(name, num_classes=10, seed=0)
    size = model.image_size or 32
    sets = [random_images(count, (3, size, size)) for count in (1, 5)]
    subject = Subject(model=model, name=name, shape=(3, size, size), provenance=Provenance(model=name), sets=sets)
    program.write(subject, tmp_path / "model.pt2", {})
    one, five = Reference(model, sets).compare(program.read(tmp_path / "model.pt2"), "the program")
    assert (one.same, five.same) == (1, 5) and torch.is_grad_enabled()
