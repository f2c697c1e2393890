"""`hardtack …` and `python -m hardtack …`."""

from hardtack.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
