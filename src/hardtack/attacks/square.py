"""Square Attack (Andriushchenko et al. 2020; l1: Croce and Hein 2021): random search that uses only logits.

    a proposal changes one square window of the best image → keep it where the model's margin shrinks

The windows shrink on a fixed schedule. No gradient is used, so the attack also works where gradients are masked; on a
model with useful gradients this stage of AutoAttack changes almost no verdict. In linf a window is set to ±eps, channel
by channel. In l2 and l1 a second window gives its share of the budget to the first, where it is spent on a bump with a
positive and a negative half. Every image has its own windows and signs, and its own position in the schedule.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.pool.search import Cost, NewItems, State, common_entries, finite_rows, pick, success_margin
from hardtack.attacks.standalone import search_alone
from hardtack.base import randomness
from hardtack.base.config import check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat

_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # after so many proposals, of ten thousand
_DECAY = {"l2": 2, "l1": 4}  # how steeply a bump falls off
_TINY = 1e-12


@attacks.register("square", help="Square Attack: random search with logits alone, for models that hide their gradients")
@dataclass(frozen=True, kw_only=True)
class Square(Attack):
    """Random search by square windows.

    steps      proposals, each a query of the model; one more query goes to the start
    p_init     share of the image that the first windows cover
    rescale    shrink the windows by the share of `steps` that is done; false: at fixed numbers of proposals, as inside
               AutoAttack
    official   never place a window at the last row or column, as the published implementation does

    `p_init` is halved after 10, 50, 200, 500, 1000, 2000, 4000, 6000 and 8000 proposals, with `rescale` after as large
    a part of `steps` as those are of 10,000. Only a larger margin is accepted: a success always has one, as the search
    ends with it.

    Paper: Andriushchenko et al. 2020, Square Attack: a Query-efficient Black-box Adversarial Attack via Random
        Search (arXiv:1912.00049)
    """

    check_interval: ClassVar[int] = 5  # a query is cheap and rarely the last

    threat: Threat
    steps: int = 5000
    restarts: int = 1
    p_init: float = 0.8
    rescale: bool = False
    official: bool = False
    reach: bool = False
    seed: int = 0

    uses_logit_gradient = False

    def __post_init__(self) -> None:
        check(self)
        if self.steps < 1 or self.restarts < 1:
            raise UserError(f"steps and restarts must be at least 1, found {self.steps} and {self.restarts}")
        if not 0 < self.p_init <= 1:
            raise UserError(f"p_init must lie in (0,1], found {self.p_init}")

    search = search_alone

    # ------------------------------------------------------------ what the pool needs

    @property
    def pooled(self) -> bool:
        return True

    def length(self, steps: int) -> int:
        return steps + 1

    def cost(self, classes: int) -> Cost:
        return Cost(1, 0)

    def begin(self, items: NewItems) -> State:
        never = torch.full((len(items.x),), -torch.inf, device=items.x.device)
        start = pick(items.warm, items.start, self._start(items.x, items.keys))
        return common_entries(items) | {"best": start, "best_margin": never}

    def advance(self, model: nn.Module, state: State) -> State:
        return self.advance_ahead(model, state, self.draw(state, 1), ahead=1, interval=1)

    looks_ahead = True

    @property
    def most_ahead(self) -> int:
        """One proposal in twenty or thirty improves the image, on a short timetable three in ten, and then few pay."""
        return 2 if self.rescale and self.steps < 1000 else 8

    @torch.no_grad()
    def advance_ahead(self, model: nn.Module, state: State, drawn: State, *, ahead: int, interval: int) -> State:
        """Of `ahead` proposals from the same best image, those up to the first that improves it are queries.

        The later ones would have been proposed from the improved image, so they are made again. One proposal in twenty
        or thirty improves, and random numbers belong to the number of the query: nothing else shows in the result.
        """
        n, t, best = len(state["t"]), state["t"], state["best"]
        query = t[:, None] if ahead == 1 else t[:, None] + torch.arange(ahead, device=t.device)
        point = self._proposals(state, drawn, query)
        logits = model(point)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        y, target = _repeated(state["y"], ahead), _repeated(state["target"], ahead)
        margins = success_margin(logits, y, target, reach=self.reach).to(state["best_margin"].dtype).view(n, ahead)
        infinite = ~finite_rows(logits).view(n, ahead)
        margin, found_at, made = margins[:, 0], t, torch.ones_like(t)
        if ahead > 1:
            counts = _count(state, query, margins, interval)
            margin, place = margins.masked_fill(~counts, -torch.inf).max(dim=1)  # the first that improves, if any
            chosen = torch.arange(n, device=t.device) * ahead + place
            point, logits = point.index_select(0, chosen), logits.index_select(0, chosen)
            infinite, made, found_at = infinite & counts, counts.sum(dim=1), t + place
        better, closer = margin > state["best_margin"], margin > state["margin"]
        return {
            "t": t + made, "done": t + made > state["steps"],
            "best": pick(better, point, best), "best_margin": torch.where(better, margin, state["best_margin"]),
            "closest": pick(closer, point, state["closest"]), "margin": torch.where(closer, margin, state["margin"]),
            "logits": pick(closer, logits, state["logits"]),
            "found_at": torch.where(closer, found_at, state["found_at"]),
            "not_finite": state["not_finite"] | infinite.any(dim=1),
            "first_loss": torch.where(t == 0, margins[:, 0], state["first_loss"]),
            "top_loss": torch.maximum(state["top_loss"], margin.nan_to_num(-torch.inf, -torch.inf, -torch.inf)),
        }  # fmt: skip

    # ------------------------------------------------------------ what is random

    def draw(self, state: State, count: int) -> State:
        """Windows as the rows and columns that they cover, signs and, in l2 and l1, where the bump has its pixels."""
        x, norm, since = state["x"], self.threat.norm, state["t"]
        channels, height, width = x.shape[1:]
        query = (since[:, None] + torch.arange(count, device=x.device)).flatten()
        keys = randomness.fold(_repeated(state["keys"], count), query)
        halvings, all_sides, bumps = _tables(norm, height, width, self.p_init, x.device)
        level = self._level(query, _repeated(state["steps"], count), halvings)
        sides = all_sides[level]
        top, left = self._offsets(keys, sides, height, width, 0)
        drawn = {
            "rows": _covered(top, sides, height), "columns": _covered(left, sides, width),
            "sign": _signs(keys, (channels,), 2, x),
        }  # fmt: skip
        if norm != "linf":
            other_top, other_left = self._offsets(keys, sides, height, width, 3)
            drawn |= {
                "other_rows": _covered(other_top, sides, height),
                "other_columns": _covered(other_left, sides, width),
            }
            turned = (randomness.bits(keys, (1,), stream=5) & 1).bool()
            drawn |= _places(bumps, level, top, left, turned, height, width)
        return {name: value.unflatten(0, (-1, count)) for name, value in drawn.items()} | {"since": since.clone()}

    def _level(self, query: Tensor, steps: Tensor, halvings: Tensor) -> Tensor:
        """How often the windows have been halved."""
        made = (query - 1).clamp(min=0)
        if self.rescale:
            made = made * 10_000 // steps
        return (made[:, None] > halvings).sum(dim=1)

    def _offsets(self, keys: Tensor, sides: Tensor, height: int, width: int, stream: int) -> tuple[Tensor, Tensor]:
        """The first row and the first column of each window."""
        last = 0 if self.official else 1
        top = randomness.integers(keys, (height - sides + last).clamp(min=1), stream=stream)
        left = randomness.integers(keys, (width - sides + last).clamp(min=1), stream=stream + 1)
        return top, left

    # ------------------------------------------------------------ what a window holds

    def _start(self, x: Tensor, keys: Tensor) -> Tensor:
        """linf: vertical stripes. l2 and l1: a bump in each of about 5×5 tiles."""
        channels, height, width = x.shape[1:]
        if self.threat.norm == "linf":
            return (x + self.threat.radius * _signs(keys, (channels, 1, width), 0, x)).clamp(0, 1)
        bumps, tile = _tiles(self.threat.norm, height, width, x.device)
        count = (height // _tile_side(height, width)) * (width // _tile_side(height, width))
        sign = _signs(keys, (channels, count), 0, x)[:, :, tile]
        turned = (randomness.bits(keys, (1, count), stream=1) & 1).bool()[:, :, tile]
        delta = sign * torch.where(turned, bumps[1], bumps[0]).to(x.dtype)
        factor = self.threat.radius / self.threat.size(delta).clamp_min(_TINY)
        return self._spend(x, delta * factor.clamp_min(1).reshape(-1, 1, 1, 1))

    def _proposals(self, state: State, drawn: State, query: Tensor) -> Tensor:
        """The images of some queries (N×ahead), all from the same best image: N·ahead×C×H×W."""
        ahead, count = query.shape[1], drawn["sign"].shape[1]
        place = (query - drawn["since"][:, None]).clamp(0, count - 1)
        windows = {name: _taken(value, place) for name, value in drawn.items() if name != "since"}
        x, best = _repeated(state["x"], ahead), _repeated(state["best"], ahead)
        return pick(query.flatten() == 0, best, self._propose(x, best, windows))

    def _propose(self, x: Tensor, best: Tensor, windows: State) -> Tensor:
        here = windows["rows"][:, None, :, None] & windows["columns"][:, None, None, :]
        sign = windows["sign"][:, :, None, None]
        if self.threat.norm == "linf":
            return torch.where(here, x + self.threat.radius * sign, best).clamp(0, 1)
        there = windows["other_rows"][:, None, :, None] & windows["other_columns"][:, None, None, :]
        bumps = _tables(self.threat.norm, x.shape[2], x.shape[3], self.p_init, x.device)[2].to(x.dtype)
        pattern = bumps.flatten()[windows["down"][:, None, :, None] + windows["across"][:, None, None, :]]
        return self._moved(x, best - x, here, there, sign * pattern)

    def _moved(self, x: Tensor, delta: Tensor, here: Tensor, there: Tensor, pattern: Tensor) -> Tensor:
        """What both windows hold, and what the whole image leaves unspent, goes into the first one."""
        channels, eps = x.shape[1], self.threat.radius
        old = delta * here
        fresh = (pattern + old / (self._length(old) + _TINY)) * here
        whole = self.threat.size(delta).reshape(-1, 1, 1, 1)
        held = self._length(delta * (here | there))
        if self.threat.norm == "l2":
            budget = ((eps**2 - whole**2).clamp_min(0) / channels + held**2).sqrt()
        else:
            budget = (eps - whole).clamp_min(0) + held * channels
        delta = torch.where(here, fresh / (self._length(fresh) + _TINY) * budget, delta.masked_fill(there, 0))
        return self._spend(x, delta)

    def _spend(self, x: Tensor, delta: Tensor) -> Tensor:
        """Into ball ∩ box; in l2 all of eps is spent before the box takes its part."""
        if self.threat.norm == "l2":
            factor = self.threat.radius / self.threat.size(delta).clamp_min(_TINY)
            return (x + delta * factor.reshape(-1, 1, 1, 1)).clamp(0, 1)
        return self.threat.project(x + delta, x)

    def _length(self, delta: Tensor) -> Tensor:
        """Channel by channel, N×C×1×1."""
        return torch.linalg.vector_norm(delta, 2 if self.threat.norm == "l2" else 1, dim=(2, 3), keepdim=True)


def _signs(keys: Tensor, shape: tuple[int, ...], stream: int, like: Tensor) -> Tensor:
    return (randomness.bits(keys, shape, stream) & 1).to(like.dtype) * 2 - 1


def _covered(first: Tensor, sides: Tensor, length: int) -> Tensor:
    """N×length, true from the first row (or column) of each window to its last."""
    offset = torch.arange(length, device=first.device) - first[:, None]
    return (offset >= 0) & (offset < sides[:, None])


def _places(
    table: Tensor, level: Tensor, top: Tensor, left: Tensor, turned: Tensor, height: int, width: int
) -> dict[str, Tensor]:
    """The bump of each row's level with its first pixel at (top, left); meaningless outside the window.

    Row i and column j of the image hold the entry down[i] + across[j] of the flattened table.
    """
    side = table.shape[1]
    row = (torch.arange(height, device=top.device) - top[:, None]).clamp(0, side - 1)
    column = (torch.arange(width, device=top.device) - left[:, None]).clamp(0, side - 1)
    down, across = row * (1 + (side - 1) * ~turned), column * (1 + (side - 1) * turned)
    return {"down": down + level[:, None] * side**2, "across": across}


def _count(state: State, query: Tensor, margins: Tensor, interval: int) -> Tensor:
    """Which of the proposals are queries (N×ahead): those up to the first that improves the best image, as far as the
    item may go. One that has succeeded goes to the next check; there a claim waits for the verifier."""
    improves = margins > state["best_margin"][:, None]
    before = improves.cumsum(dim=1) - improves.long()
    check = -(-(state["t"] + ~(state["margin"] > 0)) // interval) * interval
    last = state["steps"] + 1
    last = torch.where(state["best_margin"] > 0, torch.minimum(check, last), last)
    return (before == 0) & (query < last[:, None])


def _taken(values: Tensor, place: Tensor) -> Tensor:
    """N×count×E → N·ahead×E: the entries at `place` (N×ahead)."""
    return values.gather(1, place[:, :, None].expand(-1, -1, values.shape[2])).flatten(0, 1)


def _repeated(values: Tensor, count: int) -> Tensor:
    """Every row so many times: N×… → N·count×…"""
    return values[:, None].expand(-1, count, *values.shape[1:]).flatten(0, 1)


# ---------------------------------------------------------------- tables


@functools.lru_cache(maxsize=16)
def _tables(norm: str, height: int, width: int, p_init: float, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """When windows are halved; their sides before and after; in l2 and l1 the bump of each side."""
    sides = window_sides(norm, height, width, p_init)
    bumps = torch.zeros(len(sides), max(sides), max(sides))
    for level, side in enumerate(sides if norm != "linf" else ()):
        bumps[level, :side, :side] = bump(norm, side)
    return torch.tensor(_HALVINGS, device=device), torch.tensor(sides, device=device), bumps.to(device)


def window_sides(norm: str, height: int, width: int, p_init: float) -> list[int]:
    """The side of the windows before and after each halving."""
    sides = []
    for level in range(len(_HALVINGS) + 1):
        side = round(math.sqrt(p_init / 2**level * height * width))
        if norm != "linf":
            side = max(side, 3)
            side += 1 - side % 2  # a bump has a middle
        sides.append(min(max(side, 1), height, width))
    return sides


def bump(norm: str, side: int) -> Tensor:
    """Two pyramids side by side, one upwards and one downwards, of length 1 together (side×side)."""
    upper = side // 2
    halves = [_pyramid(norm, upper, side), -_pyramid(norm, side - upper, side)]
    power = 2 if norm == "l2" else 1
    whole = torch.cat([half / half.norm(p=power).clamp_min(_TINY) for half in halves])
    return whole / whole.norm(p=power)


def _pyramid(norm: str, height: int, width: int) -> Tensor:
    """Nested squares around the middle, the k-th of weight 1/k² (l1: 1/k⁴): a pixel sums those that hold it."""
    middle, last = (height // 2, width // 2), max(height // 2, width // 2)
    ring = torch.maximum(
        (torch.arange(height) - middle[0]).abs()[:, None], (torch.arange(width) - middle[1]).abs()[None]
    )
    weight = 1.0 / torch.arange(1, last + 2) ** _DECAY[norm]
    return weight.flip(0).cumsum(0).flip(0)[ring]


def _tile_side(height: int, width: int) -> int:
    return max(min(height, width) // 5, 1)


@functools.lru_cache(maxsize=16)
def _tiles(norm: str, height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Both orientations of the bumps that tile an image (2×H×W, 0 at the rim), and each pixel's tile (H×W)."""
    side = _tile_side(height, width)
    one = bump(norm, side)
    down, across = height // side, width // side
    bumps, tile = torch.zeros(2, height, width), torch.zeros(height, width, dtype=torch.int64)
    top, left = (height - down * side) // 2, (width - across * side) // 2
    inner = (slice(top, top + down * side), slice(left, left + across * side))
    bumps[:, *inner] = torch.stack([one.repeat(down, across), one.T.repeat(down, across)])
    places = torch.arange(down * across).reshape(down, across)
    tile[inner] = places.repeat_interleave(side, 0).repeat_interleave(side, 1)
    return bumps.to(device), tile.to(device)
