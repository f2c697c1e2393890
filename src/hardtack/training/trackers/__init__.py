"""Trackers: services that show the metrics of training runs; one file each."""

from hardtack.training.trackers.tracker import TrackedRun, Tracker
from hardtack.training.trackers.tracking import Tracking

__all__ = ["TrackedRun", "Tracker", "Tracking"]
