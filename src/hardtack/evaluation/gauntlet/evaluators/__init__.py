"""Evaluators: functions that say how robust a model is, ours and those of other packages."""
