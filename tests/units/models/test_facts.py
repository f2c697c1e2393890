"""Multiply-adds by hand, and figures that papers print."""

import json

import pytest
import torch
from torch import nn

from hardtack.base.registry import models
from hardtack.commands.list import FACTS
from hardtack.models.facts import MultiplyAdds, known, measure, table_row


def test_multiply_adds_of_layers_are_those_of_pencil_and_paper():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Flatten(), nn.Linear(8 * 36, 5))
    with MultiplyAdds() as counted:
        net(torch.zeros(2, 3, 6, 6))
    assert counted.total == 2 * (8 * 36 * 27 + 8 * 36 * 5)


def test_attention_counts_its_two_products():
    q = torch.zeros(1, 2, 7, 4)
    with torch.device("meta"), MultiplyAdds() as counted:
        meta = q.to("meta")
        nn.functional.scaled_dot_product_attention(meta, meta, meta)
    assert counted.total == 2 * (2 * 7 * 7 * 4)


@pytest.mark.parametrize(
    "name, millions, gflops",
    [
        ("deit_small_patch16_224", 22.05, 4.61),
        ("xcit_small_12_patch16_224", 26.25, 4.82),
        ("xcit_medium_12_patch16_224", 46.40, 8.54),
        ("xcit_large_12_patch16_224", 103.79, 18.97),
        ("cait_s12_patch16_224", 25.61, 4.76),
        ("resnet50_224", 25.56, 4.09),
    ],
)
def test_the_papers_figures(name, millions, gflops):
    facts = known()[name]
    assert round(facts.parameters / 1e6, 2) == millions
    assert facts.gflops == pytest.approx(gflops, rel=0.01)


def test_another_size_and_another_head():
    small = measure("vit_tiny_patch4_32", image_size=64, num_classes=3, depth=2)
    assert small.tokens == "256" and small.blocks == 2 and small.image_size == 64
    assert small.parameters == measure("vit_tiny_patch4_32", image_size=64, depth=2).parameters - 7 * 193
    assert measure("resnet8_cifar", image_size=64).gflops == pytest.approx(
        4 * known()["resnet8_cifar"].gflops, rel=0.01
    )


def test_the_table_says_what_the_registry_says():
    """`hardtack list models` reads the table alone."""
    table = json.loads(FACTS.read_text(encoding="utf-8"))
    ours = [entry for entry in models.entries() if entry.make.__module__.startswith("hardtack.")]
    for entry in ours:
        assert table[entry.name] == table_row(entry, known()[entry.name]), entry.name
    assert len(table) == len(ours)
