"""Small faults, each with the tests that must notice it: `(file below src/hardtack, text, faulty text)`.

A fault is one slip that a person could make: a sign, a bound, an axis, a constant, a forgotten term. The text stands
once in its file. When code that a fault names is rewritten, the fault is rewritten with it.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    file: str
    text: str
    fault: str
    tests: tuple[str, ...]  # below tests/


def _mutants(file: str, tests: str, *pairs: tuple[str, str]) -> list[Mutant]:
    return [Mutant(file, text, fault, tuple(tests.split())) for text, fault in pairs]


THREATS = [
    *_mutants(
        "threats/balls.py", "units/threats/test_project.py units/threats/test_steps_and_points.py",
        ("abs().amax(dim=1)\n\n\ndef linf_random", "abs().mean(dim=1)\n\n\ndef linf_random"),
        ("(randomness.uniform(keys, tuple(x.shape[1:]))) * 2 - 1", "(randomness.uniform(keys, tuple(x.shape[1:])))"),
        ("(x + as_images(noise * as_column(eps, x), x)).clamp(0, 1)", "(x + as_images(noise * as_column(eps, x), x))"),
        ("as_rows(gradient.sign()) * as_column(", "as_rows(gradient.sign()) * 0.5 * as_column("),
        ("torch.minimum(torch.maximum(z, x - radius), x + radius)", "torch.maximum(z, x - radius)"),
        ("** (1 / direction.shape[1])", "** 1.0"),
        ("return torch.where(step > 0, 1 - x, x)", "return torch.where(step > 0, x, 1 - x)"),
        ("_NEWTON_STEPS = 12", "_NEWTON_STEPS = 1"),
        ("_BISECTION_STEPS = 30", "_BISECTION_STEPS = 3"),
        ("taken = torch.where(free, 0, room).sum(dim=1, keepdim=True)", "taken = 0 * budget"),
        ("total = exponential.sum(dim=1, keepdim=True) + spare", "total = exponential.sum(dim=1, keepdim=True)"),
        ("stream=2) & 1).to(x.dtype) * 2 - 1", "stream=2) & 1).to(x.dtype)"),
        ("spent = most.cumsum(dim=1) - most", "spent = most.cumsum(dim=1)"),
        ("(moved - torch.finfo(x.dtype).eps / 4)", "(moved + torch.finfo(x.dtype).eps)"),
        ("rows = rows / rows.abs().amax(dim=1, keepdim=True).clamp_min(TINY)", "rows = rows * 1"),
    ),
    *_mutants(
        "threats/planes.py", "units/threats/test_planes.py",
        ("torch.where(gap < 0, -1.0, 1.0)", "torch.where(gap < 0, 1.0, 1.0)"),
        ("(weight, weight, room, gap)", "(direction.abs(), weight, room, gap)"),
        ('DUAL = {"linf": "l1", "l2": "l2", "l1": "linf"}', 'DUAL = {"linf": "linf", "l2": "l2", "l1": "l1"}'),
        (".cumsum(dim=1) - worth * room", ".cumsum(dim=1)"),
    ),
    *_mutants(
        "threats/threat.py", "units/threats/test_threat.py",
        ("written.limit_denominator(255)", "written.limit_denominator(10)"),
        ("(rows.amin(dim=1) >= 0)", "(rows.amin(dim=1) >= -1)"),
        ('if self.norm == "linf" and self.eps > 1:', 'if self.norm == "linf" and self.eps > 255:'),
        ("return Threat(self.norm, self.eps * factor)", "return Threat(self.norm, self.eps + factor)"),
    ),
]  # fmt: skip

BASE = [
    *_mutants(
        "base/randomness.py", "units/base/test_randomness.py",
        ("& ((1 << (64 - bits)) - 1)", "& ((1 << 63) - 1)"),
        ("_shift(z, 27)", "_shift(z, 26)"),
        ("keys * _GOLDEN + word + 1", "keys * _GOLDEN + word"),
        ("torch.arange(1, count + 1,", "torch.arange(0, count,"),
        ("fold(keys, stream)[:, None]", "fold(keys, 0)[:, None]"),
        ("stream), 40).to(torch.float32) * 2.0**-24", "stream), 40).to(torch.float32) * 2.0**-23"),
        ("torch.log(radius)) * torch.cos(angle)", "torch.log(radius)) * torch.cos(angle) * 1.1"),
        ("radius * torch.sin(angle)", "radius * torch.cos(angle)"),
        ("_shift(word, 24)", "_shift(word, 40)"),
        ("return fold(index, *words, 0)", "return fold(index, 0)"),
    ),
    *_mutants(
        "base/capture.py", "units/base/test_capture.py",
        ("isinstance(one, torch.OutOfMemoryError)", "isinstance(one, MemoryError)"),
    ),
    *_mutants(
        "base/runtime.py", "units/base/test_runtime.py",
        ('os.environ.get("WORLD_SIZE", 1)', 'os.environ.get("WORLD_SIZE", 2)'),
    ),
]  # fmt: skip

RESULTS = [
    *_mutants(
        "results/intervals.py", "units/results/test_record.py units/results/test_compare.py",
        ("inv_cdf((1 + confidence) / 2)", "inv_cdf(confidence)"),
        ("(share + z * z / (2 * n)) / scale", "share / scale"),
        ("z * z / (4 * n * n)", "z * z / (2 * n * n)"),
        ("(only_first - only_second) / a.size", "(only_second - only_first) / a.size"),
        ("min(1.0, 2 * float(", "min(1.0, float("),
        ("bdtr(smaller, total", "bdtr(smaller + 1, total"),
        ("tail = (1 - confidence) / 2", "tail = 1 - confidence"),
        ("if not 0 <= successes <= n:", "if not 0 <= successes:"),
    ),
]  # fmt: skip

OBJECTIVES = [
    *_mutants(
        "objectives/trades.py", "units/objectives/test_losses.py",
        ("natural + self.config.beta * kl", "natural + kl"),
        ('reduction="batchmean"', 'reduction="mean"'),
        ("F.kl_div(log_q, log_p,", "F.kl_div(log_p, log_q,"),
    ),
    *_mutants(
        "objectives/mart.py", "units/objectives/test_mart.py",
        ("boosted + self.config.beta * distance", "boosted + distance"),
        ("_ALMOST_ONE - most_likely_other", "1 + most_likely_other"),
        ("doubt = 1 - clean", "doubt = clean"),
        ("masked_fill(own, 0.0)", "masked_fill(~own, 0.0)"),
    ),
    *_mutants(
        "objectives/alp.py", "units/objectives/test_alp.py",
        ("(natural + robust) / 2", "(natural + robust)"),
        ("self.config.pairing * distance", "distance"),
    ),
]  # fmt: skip

CORRUPTIONS = [
    *_mutants(
        "data/corruptions/noise.py",
        "units/data/corruptions/test_noise.py units/data/corruptions/test_blurs_and_noises.py",
        ("(0.04, 0.06, 0.08, 0.09, 0.10)", "(0.04, 0.06, 0.08, 0.10, 0.11)"),
        ("uniform < share / 2", "uniform < share / 3"),
        ("x + x * (sigma", "x + (sigma"),
    ),
    *_mutants(
        "data/corruptions/tone.py", "units/data/corruptions/test_tone.py",
        ("(0.05, 0.1, 0.15, 0.2, 0.3)", "(0.05, 0.1, 0.15, 0.2, 0.25)"),
        ("* factor + mean)", "* factor)"),
        ("saturation * factor + added", "saturation * factor"),
        (".floor_().float() / 255", ".round_().float() / 255"),
        ("4 + (red - green) / divisor", "3 + (red - green) / divisor"),
        ("hue < 0, hue + 1, hue", "hue < 0, hue, hue"),
    ),
    *_mutants(
        "data/corruptions/blur.py",
        "units/data/corruptions/test_blur.py units/data/corruptions/test_blurs_and_noises.py",
        ('"cifar": (0.4, 0.6, 0.7, 0.8, 1)', '"cifar": (0.4, 0.6, 0.7, 0.8, 1.2)'),
        ('(1, 0.2), (1.5, 0.1)', '(1, 0.2), (2.5, 0.1)'),
    ),
]  # fmt: skip

MODELS = [
    *_mutants(
        "models/adaptation.py", "units/models/test_adaptation.py",
        ('mode="bicubic", antialias=True).to(maps.dtype)', 'mode="bicubic").to(maps.dtype)'),
        ("common = min(had, has)", "common = 0"),
        ("torch.linalg.pinv(resizing).T", "resizing"),
        ("* (way / way.sum())", "* 0 * way"),
        ("table.flip(1)[:, :-1]", "table[:, :-1]"),
        ("if key in spatial.patches:", "if False:"),
        ("last and alike and", "last and"),
        ("for prefix in (0, 1, 2):", "for prefix in (0, 1):"),
        ("if own.data_ptr() not in arrived:", "if True:"),
    ),
    *_mutants(
        "models/zoo/layers.py", "units/models/test_zoo.py units/zoo/test_swin.py units/zoo/test_coatnet.py",
        ("x * (mask / keep)", "x * mask"),
        ("(x.shape[0],) + (1,) * (x.ndim - 1)", "x.shape"),
        ("rate * index / max(depth - 1, 1)", "rate * index / max(depth, 1)"),
        (".unflatten(2, (3, self.num_heads, -1))", ".unflatten(2, (self.num_heads, 3, -1)).transpose(2, 3)"),
        ("self.fc2(self.act(self.fc1(x)))", "self.fc2(self.fc1(x))"),
        ("if not 0.0 <= value < 1.0:", "if not 0.0 <= value:"),
    ),
    *_mutants(
        "models/zoo/vit.py",
        "units/models/test_zoo.py contracts/test_models.py::test_blocks_are_the_sum_of_their_branches[vit_digits]",
        ("x + self.drop_path(self.feed(x))", "self.drop_path(self.feed(x))"),
        ("self.ls1(self.attn(self.norm1(x)))", "self.attn(self.norm1(x))"),
        ('Branch("mlp", self.feed)', 'Branch("mlp", self.attend)'),
    ),
    *_mutants(
        "models/zoo/xcit.py", "units/zoo/test_xcit.py",
        ("F.normalize(q, dim=-2), F.normalize(k, dim=-2)", "F.normalize(q, dim=-1), F.normalize(k, dim=-1)"),
        ("q.transpose(-2, -1) @ k * self.temperature", "q.transpose(-2, -1) @ k"),
        ("torch.arange(1, length + 1, dtype", "torch.arange(0, length, dtype"),
        ("self.temperature**powers", "self.temperature"),
    ),
    *_mutants(
        "models/facts.py",
        "units/models/test_facts.py contracts/test_models.py::test_the_table_of_facts_is_true[vit.arg]",
        ("out_val=out) // 2", "out_val=out)"),
    ),
]  # fmt: skip

TRAINING = [
    *_mutants(
        "data/mixing.py", "units/data/test_timm_training.py::test_batches_are_mixed_as_timm_mixes_them",
        (".flip(1).flatten(0, 1)", ".flatten(0, 1)"),
        ("keys[::group].repeat_interleave(group, output_size=len(keys))", "keys"),
    ),
    *_mutants(
        "data/erasing.py", "units/data/test_timm_training.py::test_normalised_erasing_is_timms_pixel_mode",
        ("(mean + std * randomness.normal(", "(mean + randomness.normal("),
    ),
    *_mutants(
        "objectives/adversarial.py", "units/objectives/test_statistics.py",
        ("self._clean_pass(x, y) if", "self._clean_pass(x_adv, y) if"),
    ),
    *_mutants(
        "training/schedule.py", "units/training/test_optimise.py",
        ("(1 + math.cos(math.pi * share)) / 2", "(1 - share)"),
        ("step -= step % self.steps_per_epoch", "step -= 0"),
        ("self.epochs - config.cooldown_epochs, 1e-9)", "self.epochs, 1e-9)"),
        ("config.gamma ** sum(", "config.gamma * sum("),
        ("self.lr / 25 / 1e4", "self.lr / 1e4"),
    ),
    *_mutants(
        "training/averaging.py", "units/training/test_averages.py units/training/test_optimise.py",
        ("(1 + step) / (10 + step)", "(1 + step) / (2 + step)"),
        ("_approach(self.model, source, 1 - decay)", "_approach(self.model, source, decay)"),
        ("source, 1 / self.count)", "source, 1 / 2)"),
        ("norm.momentum = None", "norm.momentum = 0.1"),
    ),
    *_mutants(
        "training/sharpness.py", "units/training/test_sharpness.py",
        ("rho / (_length(gradients) + _TINY)", "rho"),
        ("weight.copy_(value)", "pass"),
        ("if g.ndim > 1 else torch.zeros_like(g)", "if g.ndim > 0 else torch.zeros_like(g)"),
    ),
]  # fmt: skip

EVALUATION = [
    *_mutants(
        "evaluation/smoothing.py", "units/evaluation/test_smoothing.py",
        ("randomness.fold(keys, stage), count", "keys, count"),
        ("randomness.make_keys(index, self.seed, _STREAM)", "randomness.make_keys(index, _STREAM)"),
        ("dim=0) + self.sigma * noise", "dim=0) + self.sigma**2 * noise"),
        ("own = selected.argmax(dim=1)", "own = counts.argmax(dim=1)"),
        ("images[part] * size + predicted[part]", "predicted[part]"),
        ("self.n, sigma=self.sigma, alpha=self.alpha)", "self.n0 + self.n, sigma=self.sigma, alpha=self.alpha)"),
        ("2 * bdtr(second", "bdtr(second"),
        ("np.where(p_value <= alpha", "np.where(p_value >= alpha"),
        ("inv_cdf(alpha ** (1 / n))", "inv_cdf(alpha)"),
    ),
    *_mutants(
        "results/certificates.py", "units/evaluation/test_smoothing.py",
        ("lower <= 0.5", "lower <= 0"),
        ("sigma * ndtri(np.where", "ndtri(np.where"),
        ("if len(odd):", "if False:"),
    ),
    *_mutants(
        "evaluation/suites/smoothing.py", "units/evaluation/test_smoothing.py",
        ("radii > threat.radius", "radii >= threat.radius"),
        ("noisy < _UNTRAINED * clean", "noisy < clean - 1"),
        ("threat.radius >= reach", "threat.radius >= 10 * reach"),
    ),
    *_mutants(
        "objectives/gaussian.py", "units/objectives/test_gaussian.py",
        ("x + self.config.sigma * noise}", "(x + self.config.sigma * noise).clamp(0, 1)}"),
        ("self.config.sigma * noise", "0.25 * noise"),
    ),
]  # fmt: skip

MUTANTS = [*THREATS, *BASE, *RESULTS, *OBJECTIVES, *CORRUPTIONS, *MODELS, *TRAINING, *EVALUATION]
