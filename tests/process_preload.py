"""What the fork server imports before the first child is started: the rooms of the package, and what they import late.

Nothing is computed here, so a child begins in the state of a fresh interpreter with warm imports. The command line
itself is left to the child: it reads the environment (rank, width, colour) when it is imported.
"""

import importlib
import pkgutil
import sys

import pyarrow.parquet  # noqa: F401
import timm  # noqa: F401
import torch.distributed.fsdp
import torchvision  # noqa: F401

import hardtack

torch.set_num_threads(1)
for module in pkgutil.walk_packages(hardtack.__path__, "hardtack."):
    if module.name.count(".") > 1 and not module.name.startswith("hardtack.commands"):
        importlib.import_module(module.name)
assert not [name for name in sys.modules if name.startswith("hardtack.commands.")]
