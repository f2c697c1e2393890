"""A page on this machine alone that follows running jobs: trainings and evaluations, read from their run folders."""

from hardtack.report.watch.server import WatchServer
from hardtack.report.watch.text import status_lines
from hardtack.report.watch.watcher import Watcher

__all__ = ["WatchServer", "Watcher", "status_lines"]
