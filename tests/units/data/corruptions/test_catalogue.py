"""The registry of corruptions: fixed streams of random numbers, and types that a user adds."""

from __future__ import annotations

import pytest
import torch
from pictures import pictures

from hardtack.base.errors import UserError
from hardtack.base.registry import corruptions
from hardtack.data.corruptions import COMMON, EXTRA, GROUPS, corrupt, names
from hardtack.data.corruptions.catalogue import stream_of


@pytest.fixture
def added():
    """Registers functions as a user's file does, and removes them after the test."""
    before = dict(corruptions._entries)
    yield corruptions
    corruptions._entries = before


def grey(x, keys, severity, constants):
    return x + (x.mean(dim=1, keepdim=True) - x) * severity / 5


def test_streams_of_published_types_are_those_of_version_0_1():
    # results of version 0.1 were made with these numbers: another number means other images
    published = [stream_of(corruptions.get(name)) for name in COMMON + EXTRA]
    assert published == list(range(1, 20))


def test_a_listing_states_help_without_an_import():
    listed = {entry.name: entry for entry in corruptions.listing()}
    assert set(listed) == set(COMMON + EXTRA) and all(entry.help for entry in listed.values())


def test_an_added_type_works_and_changes_no_other(added):
    x, index = pictures(4), torch.arange(4)
    before = {name: corrupt(x, index, name, 3) for name in COMMON + EXTRA}
    added.register("grey", help="colours fade")(grey)
    added.register("aaa_noise")(lambda x, keys, severity, constants: x)
    assert names() == (*COMMON, *EXTRA, "aaa_noise", "grey")
    assert GROUPS["all"] == COMMON + EXTRA
    faded = corrupt(x, index, "grey", 5)
    assert torch.equal(faded * 255, (faded * 255).round())
    assert (faded - x.mean(dim=1, keepdim=True)).abs().max() < 1.01 / 255
    for name, images in before.items():
        assert torch.equal(corrupt(x, index, name, 3), images), name


def test_streams_of_added_types_follow_from_the_name_alone(added):
    def make(x, keys, severity, constants):
        return keys.float().view(-1, 1, 1, 1).expand_as(x).clone()

    for name in ("one_type", "other_type"):
        added.register(name)(make)
    first, second = (stream_of(added.get(name)) for name in ("one_type", "other_type"))
    assert first != second and min(first, second) > 2000
    assert first == 4294967296 + 0x6C3CE293C672  # a hash of the name: the same on every machine and in every session


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda x, keys, severity, constants: x[:, :1], r"shape \(2, 3, 32, 32\), found \(2, 1"),
        (lambda x, keys, severity, constants: None, "found NoneType"),
    ],
)  # fmt: skip
def test_a_wrong_return_value_is_refused(added, wrong, message):
    added.register("bad")(wrong)
    with pytest.raises(UserError, match=message):
        corrupt(pictures(2), torch.arange(2), "bad", 1)


def test_unknown_names_and_severities_are_refused():
    with pytest.raises(UserError, match=r"no corruption 'fogg'.*did you mean 'fog'"):
        corrupt(pictures(1), torch.arange(1), "fogg", 1)
    with pytest.raises(UserError, match="severity must be 1, 2, 3, 4 or 5, found 6"):
        corrupt(pictures(1), torch.arange(1), "fog", 6)
