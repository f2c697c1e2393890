"""TensorBoard: event files in the run folder."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.base.errors import UserError
from hardtack.base.registry import trackers
from hardtack.training.trackers.tracker import Outcome, TrackedRun, Tracker


@trackers.register("tensorboard", help="event files in the run folder: tensorboard --logdir runs")
class TensorBoard(Tracker):
    """Steps after that of a resumed run are hidden by TensorBoard itself."""

    sends_later = True  # it keeps up to two minutes of events in memory

    def __init__(self, run: TrackedRun) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError("train.track=tensorboard needs TensorBoard: pip install 'hardtack[track]'") from None
        self.id, self.place = "tensorboard", str(run.folder / "tensorboard")
        self._board = SummaryWriter(self.place, purge_step=run.step + 1)

    def write(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._board.add_scalar(name, value, step)

    def close(self, outcome: Outcome) -> None:
        self._board.close()
