"""`hardtack completion`: the script that lets a shell complete verbs, names, settings and their values with TAB.

The scripts only pass the line on to hardtack (complete_line.py) and hand its answer to the shell. No code of a user's
is run for it, so what files of `--import` register is not among the candidates.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import write_text
from hardtack.base.registry import verbs
from hardtack.commands.words import say

BASH = r"""# completion of hardtack for bash: hardtack completion bash
_hardtack_complete() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == :nospace ]]; then
            compopt -o nospace 2>/dev/null
        else
            COMPREPLY+=("$line")
        fi
    done < <(_HARDTACK_COMPLETE=bash _HARDTACK_LINE="${COMP_LINE:0:COMP_POINT}" \
        _HARDTACK_BREAKS="$COMP_WORDBREAKS" "$1" 2>/dev/null)
}
complete -o nosort -F _hardtack_complete hardtack 2>/dev/null || complete -F _hardtack_complete hardtack
"""

ZSH = r"""#compdef hardtack
# completion of hardtack for zsh: hardtack completion zsh
_hardtack() {
    local line word about
    local -a open_words open_texts words_done done_texts
    while IFS= read -r line; do
        word=${line%%$'\t'*} about=${line#*$'\t'}
        if [[ $word == *[=.:/,] ]]; then
            open_words+=("$word") open_texts+=("$word${about:+  -- $about}")
        else
            words_done+=("$word") done_texts+=("$word${about:+  -- $about}")
        fi
    done < <(_HARDTACK_COMPLETE=zsh _HARDTACK_LINE="$LBUFFER" ${words[1]} 2>/dev/null)
    (( $#words_done )) && compadd -l -d done_texts -a words_done
    (( $#open_words )) && compadd -S '' -l -d open_texts -a open_words
}
if (( ! $+functions[compdef] )); then
    autoload -Uz compinit && compinit
fi
compdef _hardtack hardtack
"""

FISH = r"""# completion of hardtack for fish: hardtack completion fish
function __hardtack_complete
    set -lx _HARDTACK_COMPLETE fish
    set -lx _HARDTACK_LINE (commandline -cp)
    hardtack 2>/dev/null
end
complete -c hardtack -f -a '(__hardtack_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@verbs.register("completion")
def completion(
    shell: Annotated[str | None, typer.Argument(help="bash, zsh or fish; by default that of $SHELL")] = None,
    install: Annotated[bool, typer.Option("--install", help="set it up for new shells")] = False,
) -> None:
    """Complete verbs, names, settings and values with TAB: [bold]hardtack completion --install[/bold].

    Without [bold]--install[/bold] it prints the script, as for [bold]source <(hardtack completion bash)[/bold].
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SCRIPTS:
        hint = did_you_mean(name, SCRIPTS) if shell else "; name one: hardtack completion bash"
        raise UserError(f"there is completion for {', '.join(SCRIPTS)}, not for '{name}'{hint}")
    if not install:
        say(SCRIPTS[name].rstrip())
        return
    for line in install_completion(name):
        say(line)


def install_completion(shell: str) -> list[str]:
    """Write the script where the shell finds it; returns what was done, line by line."""
    home = Path.home()
    if shell == "fish":
        script = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish/completions/hardtack.fish"
    else:
        data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
        script = data / "hardtack" / f"completion.{shell}"
    script.parent.mkdir(parents=True, exist_ok=True)
    write_text(script, SCRIPTS[shell])
    done = [f"written: {script}"]
    if shell != "fish":
        profile = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc" if shell == "zsh" else home / ".bashrc"
        line = f"[ -f {shlex.quote(str(script))} ] && source {shlex.quote(str(script))}  # completion of hardtack"
        text = profile.read_text(encoding="utf-8") if profile.is_file() else ""
        if line not in text:
            with profile.open("a", encoding="utf-8") as file:
                file.write(("" if text.endswith("\n") or not text else "\n") + line + "\n")
            done.append(f"added to {profile}: {line}")
    return [*done, "it works in the shells that you start from now on"]
