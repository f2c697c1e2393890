"""What an actor has of a Ray cluster: settings that would do nothing are refused."""

import pytest

from hardtack.base.errors import UserError
from hardtack.engine.executors.ray import RaySettings, actor_share

GPUS, NO_GPUS = {"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0}


@pytest.mark.parametrize(
    "settings, resources, on_cpu, message",
    [
        ({"per_gpu": 2}, NO_GPUS, False, "on a cluster without GPUs write workers=N, or ray.cpus=N"),
        ({"per_gpu": 2}, GPUS, True, "with runtime.device=cpu write workers=N, or ray.cpus=N"),
        ({"per_gpu": 4, "gpus": 0.5}, GPUS, False, "means ray.gpus=0.25: write per_gpu or ray.gpus, not both"),
        ({"per_gpu": 2, "gpus": 0}, NO_GPUS, False, "write per_gpu or ray.gpus, not both"),
    ],
)
def test_per_gpu_that_would_do_nothing_is_refused(settings, resources, on_cpu, message):
    with pytest.raises(UserError) as refused:
        actor_share(RaySettings(**settings), resources, on_cpu=on_cpu)
    assert message in str(refused.value)


def test_one_actor_for_each_gpu_may_be_written_everywhere():
    assert actor_share(RaySettings(per_gpu=1), NO_GPUS) == (0.0, 8)
    assert actor_share(RaySettings(per_gpu=1, gpus=0.5), GPUS) == (0.5, 4)
