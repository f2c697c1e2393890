"""An example command for everything that has a name; a test reads each of them as the command would."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.commands.things import Thing

# the threat of an example, where linf:8/255 does not fit; null: the attack has its own
THREATS: Mapping[str, str | None] = {
    **dict.fromkeys(("cw", "cw_search", "ddn", "boundary"), "l2:0.5"), "ead": "l1:12", "occlusion": None,
    "patch_fool": None,
}  # fmt: skip
FURTHER = {"transfer": " attack.source=runs/other"}
# an example of a suite that needs further settings
SUITES = {
    "autoattack": "suite=autoattack threat=linf:8/255 tier=fast",
    "attacks": "suite=attacks attacks=[apgd_ce,square] threat=linf:8/255",
    "sweep": "suite=sweep threat=linf:8/255",
    "pgd": "suite=pgd threat=linf:8/255 attack.steps=50",
    "curve": "suite=curve threat=l2:1 attack=fmn",
}
DATA = {"timm": "timm:hfds/mnist", "random_network": "random_network:cifar10"}
VERBS = {
    "train": "train digits/trades train.epochs=5",
    "evaluate": "evaluate runs/x suite=autoattack threat=linf:8/255",
    "analyze": "analyze runs/x jacobian attention n=100",
    "attack": "attack runs/x attack=pgd threat=linf:8/255 output=adversarial",
    "study": "study architectures/table2 scale=smoke",
    "plan": "plan digits/trades train.epochs=20",
    "list": "list settings trades",
    "describe": "describe pgd",
    "compare": "compare runs/a runs/b",
}


def examples_of(thing: Thing) -> list[str]:
    """Command lines, the simplest first."""
    name = thing.name
    match thing.kind:
        case "attack":
            threat = THREATS.get(name.rpartition(":")[2], "linf:8/255")
            words = f"attack={name}{f' threat={threat}' if threat else ''}{FURTHER.get(name, '')}"
            return [f"hardtack evaluate runs/x suite=pgd {words}", f"hardtack attack runs/x {words} output=adversarial"]
        case "objective":
            return [f"hardtack train digits/standard objective={name}"]
        case "suite":
            return [f"hardtack evaluate runs/x {SUITES.get(name, f'suite={name}')}"]
        case "analysis":
            return [f"hardtack analyze runs/x {name}"]
        case "model":
            return [f"hardtack train digits/standard model={name}", f"hardtack describe {name}"]
        case "dataset":
            return [f"hardtack evaluate runs/x data={_data(thing)} suite=clean"]
        case "executor":
            return _of_executor(name)
        case "verb":
            return [f"hardtack {VERBS[name]}"] if name in VERBS else [f"hardtack {name} --help"]
        case "recipe":
            return [f"hardtack train {name}", f"hardtack plan {name}"]
        case "study":
            return [f"hardtack study {name} scale=smoke", f"hardtack plan study={name} scale=paper"]
        case "protocol":
            return [f"hardtack evaluate runs/x protocol={name}"]
        case "corruption":
            return [f"hardtack evaluate runs/x suite=corruptions types={name}"]
        case "loss":
            return [] if name == "kl" else [f"hardtack evaluate runs/x suite=pgd threat=linf:8/255 attack.loss={name}"]
        case "metric":
            return [f"hardtack compare runs/a runs/b metric={name}"]
        case "mechanism":
            return [f"hardtack gauntlet mechanisms={name} evaluators=fast"]
        case "tracker":
            return [f"hardtack train digits/standard train.track={name}"]
        case "evaluator":
            return [f"hardtack gauntlet evaluators={name}"]
    return []


def _data(thing: Thing) -> str:
    if thing.name in DATA:
        return DATA[thing.name]
    typed = thing.help.partition(": ")[0]
    if ":" in typed and typed.startswith(thing.name):  # folder:PATH
        return typed.replace("PATH", "~/images").replace("/TYPE/SEVERITY", "/fog/3")
    return thing.name


def _of_executor(name: str) -> list[str]:
    words = {
        "here": "workers=4",
        "ray": "--on ray:HOST:PORT workers=8",
        "slurm": "--on slurm slurm.partition=gpu slurm.hours=4",
    }
    if name == "torchrun":
        return ["torchrun --nproc-per-node=4 -m hardtack evaluate runs/x suite=autoattack threat=linf:8/255"]
    if name not in words:
        return []
    return [f"hardtack evaluate runs/x suite=autoattack threat=linf:8/255 {words[name]}"]
