"""Defence mechanisms, one file per family. See hardtack.evaluation.gauntlet.mechanism for the contract."""
