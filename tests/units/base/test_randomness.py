"""Random numbers as pure functions of (key, stream, position): uniform, independent, the same for ever."""

import math

import pytest
import torch
from scipy import stats

from hardtack.base import randomness
from hardtack.base.randomness import bits, fold, integers, make_keys, normal, normal_pairs, permutation, uniform

KEYS = make_keys(torch.arange(64), 5)
MASK = (1 << 64) - 1
# Fixed seeds: these p-values never change, so a threshold of one in a thousand cannot flicker.
LEAST_P = 1e-3


# ---------------------------------------------------------------- the stream never changes silently


def mixed(z):
    """SplitMix64's finaliser in Python's own integers, from Steele et al. 2014."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def folded(key, *words):
    for word in words:
        key = mixed((key * 0x9E3779B97F4A7C15 + word + 1) & MASK)
    return key


@pytest.mark.parametrize("index, words, stream", [(0, (), 0), (7, (1, 2), 0), (123456, (2**40,), 3), (3, (-1,), 9)])
def test_bits_agree_with_plain_integers(index, words, stream):
    key = folded(index, *words, 0)
    expected = [mixed((folded(key, stream) + i + 1) * 0x9E3779B97F4A7C15 & MASK) for i in range(6)]
    found = bits(make_keys(torch.tensor([index]), *words), (2, 3), stream).flatten().tolist()
    assert [value & MASK for value in found] == expected


def test_golden_values():
    """Stored verdicts and resumed runs depend on these; a change here is a change of every result."""
    keys = make_keys(torch.tensor([0, 1]), 42)
    assert keys.tolist() == GOLDEN_KEYS
    assert uniform(keys, (2,)).tolist() == GOLDEN_UNIFORM
    assert torch.allclose(normal(keys, (2,)), torch.tensor(GOLDEN_NORMAL), atol=1e-6)
    assert permutation(8, 42, 0).tolist() == GOLDEN_ORDER


GOLDEN_KEYS = [6369761625881652083, -3475402485373202962]
GOLDEN_UNIFORM = [[0.7894653677940369, 0.6686670780181885], [0.34729743003845215, 0.2421138882637024]]
GOLDEN_NORMAL = [[0.5398011803627014, -0.6666842103004456], [0.23314043879508972, 0.41559723019599915]]
GOLDEN_ORDER = [1, 0, 6, 3, 5, 2, 7, 4]


# ---------------------------------------------------------------- shape of the distributions


def p_uniform(sample):
    return stats.kstest(sample.double().flatten().numpy(), "uniform").pvalue


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(lambda: uniform(KEYS, (512,)), id="keys and positions"),
        pytest.param(lambda: uniform(make_keys(torch.arange(32768)), ()), id="consecutive images"),
        pytest.param(lambda: uniform(make_keys(torch.zeros(1)), (32768,)), id="one image"),
        pytest.param(lambda: uniform(make_keys(torch.arange(32768) * 65536), ()), id="images far apart"),
        pytest.param(lambda: torch.cat([uniform(KEYS, (), s) for s in range(512)]), id="streams"),
        pytest.param(lambda: torch.cat([uniform(make_keys(KEYS, e), ()) for e in range(512)]), id="words"),
    ],
)
def test_uniform_is_uniform_along_every_axis(sample):
    values = sample()
    assert values.dtype == torch.float32 and values.min() >= 0 and values.max() < 1
    assert p_uniform(values) > LEAST_P
    counts = torch.histc(values.flatten(), bins=64, min=0, max=1)
    assert stats.chisquare(counts.numpy()).pvalue > LEAST_P


def test_every_bit_is_a_fair_coin():
    words = bits(make_keys(torch.arange(4096)), (4,)).flatten()
    heads = torch.stack([(words >> bit) & 1 for bit in range(64)]).sum(dim=1)
    # 64 coins of 16384 tosses: five standard deviations
    assert (heads - 8192).abs().max() < 5 * math.sqrt(16384) / 2


@pytest.mark.parametrize("draw", [normal, normal_pairs])
def test_normal_moments_and_shape(draw):
    sample = draw(KEYS, (1024,)).double().flatten()
    count = len(sample)
    assert abs(sample.mean()) < 4 / math.sqrt(count)
    assert abs(sample.var() - 1) < 4 * math.sqrt(2 / count)
    assert abs((sample**3).mean()) < 4 * math.sqrt(15 / count)
    assert abs((sample**4).mean() - 3) < 4 * math.sqrt(96 / count)
    assert stats.kstest(sample.numpy(), "norm").pvalue > LEAST_P
    assert sample.isfinite().all()


@pytest.mark.parametrize("high", [1, 2, 3, 9, 10, 1000])
def test_integers_reach_every_value_evenly(high):
    sample = integers(KEYS, high, (1024,))
    assert sample.dtype == torch.int64 and sample.min() == 0 and sample.max() == high - 1
    if high > 1:
        assert stats.chisquare(torch.bincount(sample.flatten(), minlength=high).numpy()).pvalue > LEAST_P


def test_integers_never_reach_high_by_rounding(monkeypatch):
    largest = torch.full((1,), 1 - 2.0**-24)
    monkeypatch.setattr(randomness, "uniform", lambda *_: largest)
    highs = torch.cat([torch.arange(1, 5000), 2 ** torch.arange(1, 24), 2 ** torch.arange(2, 24) - 1])
    assert (integers(KEYS[:1], highs) < highs).all()


def test_integers_with_a_bound_per_image():
    highs = torch.arange(1, 65)
    assert (integers(KEYS, highs[:, None], (50,)) < highs[:, None]).all()


# ---------------------------------------------------------------- independence


def correlation(a, b):
    return torch.corrcoef(torch.stack([a.double().flatten(), b.double().flatten()]))[0, 1].abs().item()


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(lambda: (uniform(KEYS, (512,), 0), uniform(KEYS, (512,), 1)), id="streams"),
        pytest.param(lambda: (uniform(make_keys(KEYS, 0), (512,)), uniform(make_keys(KEYS, 1), (512,))), id="words"),
        pytest.param(lambda: (uniform(KEYS[:-1], (512,)), uniform(KEYS[1:], (512,))), id="images"),
        pytest.param(lambda: (uniform(KEYS, (512,))[:, :-1], uniform(KEYS, (512,))[:, 1:]), id="positions"),
        pytest.param(lambda: (uniform(KEYS, (512,)), normal(KEYS, (512,), 1)), id="uniform and normal"),
        pytest.param(lambda: normal_pairs(KEYS, (2, 512)).unbind(1), id="both of a pair"),
        pytest.param(lambda: normal_pairs(KEYS, (2, 512)).square().unbind(1), id="squares of a pair"),
    ],
)
def test_neighbours_know_nothing_of_each_other(pair):
    a, b = pair()
    assert correlation(a, b) < 5 / math.sqrt(a.numel())
    assert not torch.equal(a, b)


def test_radius_and_angle_of_the_normal_are_independent():
    # Box and Muller's two uniforms come from one word: its high and its low bits
    word = bits(KEYS, (1024,)).flatten()
    assert correlation((word >> 40) & 0xFFFFFF, word & 0xFFFFFF) < 5 / math.sqrt(len(word))


def test_keys_do_not_collide():
    index = torch.arange(2000)
    keys = torch.cat([make_keys(index, seed, epoch) for seed in range(10) for epoch in range(10)])
    assert len(keys.unique()) == len(keys)
    assert make_keys(torch.tensor([1]), 2, 3) != make_keys(torch.tensor([1]), 3, 2), "the order of words counts"
    assert fold(torch.tensor([1])) == 1, "no words, no change"


def test_words_may_differ_by_image():
    index, epochs = torch.arange(4), torch.tensor([0, 1, 2, 3])
    one_by_one = torch.cat([make_keys(index[i : i + 1], 7, int(epochs[i])) for i in range(4)])
    assert torch.equal(make_keys(index, 7, epochs), one_by_one)


# ---------------------------------------------------------------- an image's numbers are its own


@pytest.mark.parametrize(
    "draw", [uniform, normal, normal_pairs, bits, lambda k, s: integers(k, 10, s)], ids=["u", "n", "p", "b", "i"]
)
def test_numbers_depend_on_neither_batch_nor_order(draw):
    whole = draw(KEYS, (3, 4))
    parts = torch.cat([draw(KEYS[:5], (3, 4)), draw(KEYS[5:6], (3, 4)), draw(KEYS[6:], (3, 4))])
    assert torch.equal(whole, parts)
    order = permutation(len(KEYS), 3)
    assert torch.equal(draw(KEYS[order], (3, 4)), whole[order])
    assert draw(KEYS[:0], (3, 4)).shape == (0, 3, 4)


def test_the_global_random_state_is_neither_read_nor_written():
    before = torch.get_rng_state()
    first = uniform(KEYS, (3,)), normal(KEYS, (3,)), integers(KEYS, 9, (3,)), permutation(20, 1)
    assert torch.equal(before, torch.get_rng_state())
    with torch.random.fork_rng():
        torch.manual_seed(999)
        second = uniform(KEYS, (3,)), normal(KEYS, (3,)), integers(KEYS, 9, (3,)), permutation(20, 1)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# ---------------------------------------------------------------- orders


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_a_permutation_holds_every_number_once(count):
    assert permutation(count, 1, 2).sort().values.tolist() == list(range(count))


def test_permutations_differ_by_their_words_and_by_nothing_else():
    assert torch.equal(permutation(100, 1, 2), permutation(100, 1, 2))
    orders = {tuple(permutation(100, seed, epoch).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_every_order_is_equally_likely():
    seen = {}
    for word in range(2400):
        order = tuple(permutation(4, word).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert stats.chisquare(list(seen.values())).pvalue > LEAST_P


def test_the_tests_of_uniformity_can_fail():
    """Mutants: a counter that is not mixed, and numbers that stop a little short of 1."""
    counter = (torch.arange(32768) * 0.618).frac().reshape(64, 512)
    assert correlation(counter[:, :-1], counter[:, 1:]) > 5 / math.sqrt(counter.numel())
    assert p_uniform(uniform(KEYS, (512,)) * (63 / 64)) < LEAST_P
