import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Batches of two images: threads that wait for each other cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
