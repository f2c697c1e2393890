"""What a finished evaluation left in its run folder, in a few digests: equal ones mean the same results.

`hardtack evaluate` keeps the fingerprint of what it printed. When the command is repeated, the results are read again,
checked against their evidence as always, and compared with it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hardtack.base.arrays import read_arrays
from hardtack.base.digests import columns_digest
from hardtack.base.errors import UserError
from hardtack.base.trust import check_links
from hardtack.results.agreement import check_evaluation
from hardtack.results.evidence import examples_path, result_digest
from hardtack.results.store import read_results, read_verdicts, verdicts_path


def fingerprint(run_dir: str | Path, id: str) -> dict[str, Any] | None:
    """Of the results and verdicts of an evaluation; None unless they are whole and agree with their evidence."""
    folder = Path(run_dir)
    try:
        check_links(folder)
        results = [result for result in read_results(folder) if result.evaluation == id]
        if not results or not verdicts_path(folder, id).is_file():
            return None
        verdicts = columns_digest(read_verdicts(verdicts_path(folder, id)))
        if examples_path(folder, id).exists():
            read_arrays(examples_path(folder, id))
        agreement = check_evaluation(folder, results)
    except (UserError, OSError):
        return None
    if agreement.wrong or not agreement.has_record:
        return None
    lines = [result_digest(result) for result in results]
    return {"folder": os.path.abspath(folder), "id": id, "lines": lines, "verdicts": verdicts}
