"""A threat: which norm and how far, written and read as text (`linf:8/255`, `l2:0.5`, `l1:12`)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from torch import Tensor

from hardtack.base.config import WrittenAsText
from hardtack.base.errors import UserError, did_you_mean
from hardtack.threats.balls import BALLS, Ball, Eps


@dataclass(frozen=True)
class Threat(WrittenAsText):
    """An lp ball around each image, in [0,1] pixel units. `eps` stays the fraction it was written as."""

    EXAMPLE: ClassVar[str] = "linf:8/255"

    norm: str
    eps: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", _fraction(self.eps))
        if self.norm not in BALLS:
            hint = did_you_mean(self.norm, BALLS) or f"; known: {', '.join(BALLS)}"
            raise UserError(f"there is no norm '{self.norm}'{hint}")
        if self.eps < 0:
            raise UserError(f"eps must not be negative, found {self.eps}")
        if self.norm == "linf" and self.eps > 1:
            near = f" (did you mean 'linf:{_written(self.eps / 255)}'?)" if self.eps <= 255 else ""
            raise UserError(f"linf eps is in [0,1] pixel units, found {_written(self.eps)}{near}")

    @classmethod
    def parse(cls, text: str | Threat) -> Threat:
        if isinstance(text, Threat):
            return text
        norm, colon, eps = str(text).partition(":")
        if not colon:
            raise UserError(f"'{text}' is not a threat; write it as norm:eps, for example linf:8/255")
        return cls(norm.strip(), eps.strip())  # type: ignore[arg-type]  # made a fraction above

    def __str__(self) -> str:
        return f"{self.norm}:{_written(self.eps)}"

    @property
    def radius(self) -> float:
        return float(self.eps)

    @property
    def ball(self) -> Ball:
        return BALLS[self.norm]

    def scaled(self, factor: Fraction | int) -> Threat:
        return Threat(self.norm, self.eps * factor)

    def size(self, delta: Tensor) -> Tensor:
        return self.ball.size(delta)

    def project(self, z: Tensor, x: Tensor, eps: Eps | None = None) -> Tensor:
        return self.ball.project(z, x, self.radius if eps is None else eps)

    def random_point(self, x: Tensor, keys: Tensor, eps: Eps | None = None) -> Tensor:
        return self.ball.random_point(x, self.radius if eps is None else eps, keys)

    def contains(self, x_adv: Tensor, x: Tensor, *, tolerance: float = 1e-6) -> Tensor:
        """One bool per image: inside the ball (relative tolerance) and inside the box."""
        # x + eps is itself rounded to fp32, hence the absolute part
        inside = self.size(x_adv - x) <= self.radius * (1 + tolerance) + 2e-7
        rows = x_adv.flatten(1)
        return inside & (rows.amin(dim=1) >= 0) & (rows.amax(dim=1) <= 1)


def _fraction(eps: Fraction | float | str) -> Fraction:
    """`eps` as it was written: the float 8/255 is the fraction 8/255, not the nearest binary fraction."""
    if isinstance(eps, Fraction):
        return eps
    try:
        numerator, _, denominator = str(eps).partition("/")
        written = Fraction(numerator) / Fraction(denominator or "1")  # 0.5/255 is half a grey level
        pixels = written.limit_denominator(255)
        is_pixels = isinstance(eps, float) and float(pixels) == eps
        float(written)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise UserError(f"eps '{eps}' is neither a finite number nor a fraction") from None
    return pixels if is_pixels else written


def _written(eps: Fraction) -> str:
    """A whole number or decimal where that is exact, else `8/255` for pixel values, else the fraction."""
    if eps.denominator == 1:
        return str(eps.numerator)
    decimal = repr(float(eps))
    if Fraction(decimal) == eps:
        return decimal
    levels = eps * 255
    if levels.denominator in (1, 2, 4, 5, 8, 10):
        return f"{levels.numerator if levels.denominator == 1 else float(levels)}/255"
    return str(eps)
