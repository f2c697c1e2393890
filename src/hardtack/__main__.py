"""`hardtack …` and `python -m hardtack …`."""

import os


def main() -> int:
    """Run a command, or answer the shell's question how a line could go on (`hardtack completion`)."""
    if "_HARDTACK_COMPLETE" in os.environ:
        from hardtack.commands.complete_line import answer

        return answer(os.environ)
    try:
        from hardtack.commands.cli import main

        return main()
    except KeyboardInterrupt:  # while modules were imported; later ones are seen by the command itself
        from hardtack.base.interrupted import say_interrupted

        return say_interrupted()


if __name__ == "__main__":
    raise SystemExit(main())
