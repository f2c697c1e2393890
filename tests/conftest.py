"""One thread per process: small tensors gain nothing from two, and a busy machine loses much."""

import torch

torch.set_num_threads(1)
