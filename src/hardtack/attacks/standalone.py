"""What a pooled attack does when it is called by itself: it runs in a pool of its own."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.outcome import AttackOutcome
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime


def search_alone(
    attack: Attack,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    keys: Tensor | None = None,
    target: Tensor | None = None,
    verdict: bool = True,
) -> AttackOutcome:
    """Attack all images at once, in fp32, and return the first success of each.

    An image that was not fooled is returned as the closest that the search came to fooling the model. A pooled attack
    takes this function as its `search` method. The caller has put the model into `preserve_state`.
    """
    if target is not None:
        settings: dict[str, Any] = {"reach": True, **({"targets": 1} if "targets" in attack.settings() else {})}
        attack = dataclasses.replace(attack, **settings)  # type: ignore[type-var]
    elif attack.reach:
        raise UserError("reach=true needs the classes to reach: attack(model, x, y, target=…)")
    runtime = Runtime(device=str(x.device) if x.device.type == "cuda" else x.device.type, compile=False)
    keys = torch.arange(len(x), device=x.device) if keys is None else keys
    verifier = Verifier(model, runtime, votes=attack.eot)
    inputs = AttackInputs(x, y.argmax(dim=1) if y.is_floating_point() else y, keys, verifier.logits(x), target)
    record = Pool(model, runtime, batch_size=len(x), verifier=verifier, every=1).run(attack, inputs)
    return AttackOutcome(
        record.x_adv, torch.as_tensor(record.broken, device=x.device),
        torch.as_tensor(record.found_at_step, device=x.device).long(), record.first_loss, record.top_loss,
        record.zero_gradient, record.not_finite,
    )  # fmt: skip
