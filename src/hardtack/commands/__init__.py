"""One file per verb of the command line, each registered in `verbs`; `cli.py` gathers them. Nothing here computes."""
