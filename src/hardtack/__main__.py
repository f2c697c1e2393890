"""`hardtack …` and `python -m hardtack …`."""

from hardtack.commands.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
