"""What is said of a model that runs, but cannot be recorded as a CUDA graph."""

import pytest
import torch

from hardtack.capture import recordable
from hardtack.errors import UserError


def test_a_model_that_cannot_be_recorded_is_told_what_to_do():
    with pytest.raises(UserError, match=r"not permitted.*runtime\.compile=false"), recordable():
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")


def test_running_out_of_memory_stays_what_it_is_also_behind_the_end_of_the_recording():
    with pytest.raises(torch.OutOfMemoryError), recordable():
        raise torch.OutOfMemoryError("too much")
    with pytest.raises(torch.OutOfMemoryError), recordable():
        try:
            raise torch.OutOfMemoryError("too much")
        finally:
            raise RuntimeError("the recording was invalidated")
