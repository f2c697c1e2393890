"""A static site over hundreds of runs and studies: an index, a page for each run and each study, and shared files.

    site/index.html          filters, sorting, robust against clean accuracy with the Pareto front
    site/runs/NAME.html      the report of one run
    site/studies/NAME.html   the page of one study
    site/robustbench/        RobustBench's model info of the numbers that its leaderboards would list
    site/assets/             styles and scripts, named by their digests

It opens from the disk and needs no server.
"""

from hardtack.report.site.build import SiteReport, write_site
from hardtack.report.site.evidence import Verified

__all__ = ["SiteReport", "Verified", "write_site"]
