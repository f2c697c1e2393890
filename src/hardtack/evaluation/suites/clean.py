"""Suite `clean`: the images as they are."""

from hardtack.base.registry import suites
from hardtack.evaluation.suites.contract import Suite


@suites.register("clean", help="Accuracy on the images as they are.")
class CleanSuite(Suite):
    """Accuracy, top-5 accuracy and calibration on the unchanged images."""

    accepts_all_settings = True
    all_clean_metrics = True
