"""One thread per process: small tensors gain nothing from two, and a busy machine loses much.

Paths that tests type are remembered in a folder of the test run, not in the home of whoever runs them.
"""

import gc
import os
import signal
import tempfile

import torch

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script; some tests send it themselves
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="hardtack-tests-")
os.environ["HARDTACK_CACHE"] = tempfile.mkdtemp(prefix="hardtack-cache-")


def pytest_collection_finish() -> None:
    """Eleven thousand collected tests are never garbage: collections need not look at them again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # what is still frozen when the process ends is reported as a leak
