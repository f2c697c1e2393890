"""`hardtack …` and `python -m hardtack …`."""

import os


def main() -> int:
    """Run a command, or answer the shell's question how a line could go on (`hardtack completion`)."""
    if "_HARDTACK_COMPLETE" in os.environ:
        from hardtack.commands.complete_line import answer

        return answer(os.environ)
    from hardtack.commands.cli import main

    return main()


if __name__ == "__main__":
    raise SystemExit(main())
