"""Commands that only read names import no torch, so that they answer at once."""

import subprocess
import sys

from processes import environment

CODE = """
import contextlib, io, sys
from hardtack.commands.cli import main

HEAVY = {"torch", "torchvision", "timm", "sklearn", "matplotlib", "numpy"}
KINDS = ["attacks", "suites", "objectives", "datasets", "analyses", "protocols", "recipes", "models"]
FOUND = [["list", "settings"], ["list", "charts"], *(["describe", name] for name in
         ("pgd", "trades", "autoattack", "sparsity", "vit_digits", "digits", "ray", "evaluate", "digits/trades",
          "architectures/table2", "rspc/cifar", "untrained", "fog", "dlr", "robust_accuracy", "train.ema", "foolbox"))]
for words in [["--help"], ["train", "--help"], ["doctor"], *(["list", kind] for kind in KINDS), *FOUND]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(words) == 0, words
    assert not HEAVY & set(sys.modules), (words, HEAVY & set(sys.modules))
"""


def test_lists_help_and_doctor_import_no_torch(tmp_path):
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
