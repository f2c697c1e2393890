"""Identity: a name that changes with everything a result depends on, and with nothing else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hardtack.base.digests import json_digest
from hardtack.base.errors import UserError

DIGITS = 12


def job_id(name: str, facts: Sequence[Any]) -> str:
    """`name-0123456789ab`: the name, and a digest of the facts as JSON."""
    return f"{name}-{json_digest(list(facts))[:DIGITS]}"


def check_id(id: str) -> str:
    """The id, if it can be the name of a file in every file system."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", id):
        raise UserError(f"the id {id!r} may hold only letters, digits, '.', '_' and '-'")
    return id


def tensor_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, shapes, types and bytes of tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
