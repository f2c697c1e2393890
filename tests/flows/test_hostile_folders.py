"""Other people's run folders are data: no verb runs, imports or opens what they name (`tests/hostile_runs.py`)."""

import contextlib
import io
import json
import shutil
from html.parser import HTMLParser

import matplotlib.font_manager  # noqa: F401  # lists the fonts by a program of its own, once
import pytest

import hardtack as ht
from hardtack.commands.cli import main, verb_names
from hostile_runs import GENUINE, Watch, keys_of, texts_for, write_genuine, write_hostile, write_outside
from tiny_runs import settings, write_data

WATCH = Watch()
KINDS = ("module", "file", "bare", "weights", "data", "upwards", "html", "markup", "python", "null", "long")
CPU = "runtime.device=cpu"
CLEAN = "clean-7dfff66b6bcc"
# a verb that is not listed here is tried with the folder alone: a new one is tested without a change
COMMANDS = {
    "evaluate": [["run", "suite=clean", "n=8", CPU]],
    "analyze": [["run", "sparsity", "attention", "n=2", CPU]],
    "attack": [["run", "n=2", "attack=fgsm", "threat=linf:0.1", CPU]],
    "verify": [["run", CPU], ["run", "run=good", CPU]],
    "selftest": [["run", "n=2", "suite=pgd", "threat=linf:0.2", CPU]],
    "plan": [["run", "suite=clean", CPU], ["run/config.yaml", CPU]],
    "export": [["run"], ["run", "format=latex"], ["run", "format=robustbench"]],
    "compare": [["run", "small"], ["small", "run"]],
    "query": [
        ["SELECT * FROM results", "run", "format=json"],
        ["SELECT * FROM verdicts UNION ALL BY NAME FROM views", "run"],
        [
            "FROM runs UNION ALL BY NAME FROM settings UNION ALL BY NAME FROM metrics UNION ALL BY NAME FROM flags",
            "run",
        ],
    ],
    "train": [["run/config.yaml", CPU], ["digits/trades", "output=run", "train.epochs=1", CPU]],
    "describe": [["run"], ["run/checkpoints/best.safetensors"]],
    "corrupt": [["npz:run/examples/pgd-1eec97180408.npz", "out"], ["folder:run", "out"]],
    "watch": [["run", "--once"]],
    "leaderboard": [["run", "-o", "out"], ["run", "small", "-o", "out"], ["run", "-o", "out", "--verify"]],
    "demo": [["--folder", "demo"]],
    "gauntlet": [["core=run", "n=4", CPU]],
    "list": [["models", "digits"]],
    "doctor": [[]],
    "completion": [["bash"]],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    base = tmp_path_factory.mktemp("hostile")
    write_outside(base / "outside")
    (base / "home").mkdir()
    (base / "home" / "secret.yaml").write_text("a: 1\n")
    shutil.copytree(GENUINE, base / "good")
    write_genuine(base / "small", CLEAN)
    write_genuine(base / "middle", CLEAN, "pgd-1eec97180408", "jacobian-a1126fa8170c")
    for kind, text in texts_for(base / "run", base / "outside").items():
        if kind in KINDS:
            write_hostile(base / kind, text, source=base / "middle")
    return base


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    monkeypatch.setenv("HOME", str(place / "home"))
    monkeypatch.chdir(place)
    yield place
    for name in ("run", "demo", "out", "adversarial", "state"):
        shutil.rmtree(place / name, ignore_errors=True)


def attempt(words, base):
    """Exit code and text of a command, which must not have done anything that a run folder may not cause."""
    out = io.StringIO()
    WATCH.start(base / "run", base / "outside")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(words)
    assert WATCH.stop() == [], words
    text = out.getvalue()
    assert code in (0, 1, 2), (words, text)
    assert "fault of hardtack" not in text and "Traceback" not in text, (words, text[-1000:])
    assert not {"\x1b", "\x07", "\x08", "\u202e"} & set(text), words
    assert len(text) < 200_000, (words, len(text))
    return code, text


def test_the_watch_notices_what_it_must(here):
    """Each of these would be evidence against a verb."""
    import os
    import subprocess
    import sys

    import pyarrow as pa

    write_hostile(here / "run", "", where="nowhere", source=here / "small")

    def import_evil():
        sys.path.insert(0, str(here / "run"))
        try:
            __import__("evil")
        finally:
            sys.path.remove(str(here / "run"))
            sys.modules.pop("evil", None)

    deeds = {
        "open": lambda: (here / "outside" / "data.npz").read_bytes(),
        "read": lambda: pa.OSFile(str(here / "outside" / "data.npz")).read(),  # compiled code, no audit event
        "os.system": lambda: os.system("true"),
        "subprocess.Popen": lambda: subprocess.run(["true"]),
        "import": import_evil,
        "os.scandir": lambda: list(os.scandir(here / "outside")),
    }
    for event, deed in deeds.items():
        WATCH.start(here / "run", here / "outside")
        deed()
        assert any(noted.startswith(event) for noted in WATCH.stop()), event


# ---------------------------------------------------------------- every verb


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("verb", verb_names())
def test_every_verb_with_every_text_hostile(here, verb):
    for kind in KINDS:
        shutil.copytree(here / kind, here / "run")
        if verb == "demo":
            shutil.copytree(here / "run", here / "demo" / "standard")
        for words in COMMANDS.get(verb, [["run"]]):
            attempt([verb, *words], here)
        for name in ("run", "demo", "out"):
            shutil.rmtree(here / name, ignore_errors=True)


@pytest.mark.filterwarnings("ignore")
def test_single_fields_that_are_hostile(here):
    """One field of each kind of record at a time, so that the others lead deeper into a verb."""
    texts = [*texts_for(here / "run", here / "outside").values(), ["x"], {"a": 1}, 10**30, -1, None, True, 1e308]
    for number, key in enumerate(keys_of(here / "middle")[::16]):
        write_hostile(here / "run", texts[number % len(texts)], where=key, source=here / "middle")
        verb = ["describe", "run"] if "safetensors" in key else ["report", "run"]
        attempt(verb, here)
        shutil.rmtree(here / "run")


FIELDS_THAT_LOAD = {
    "config.yaml:data:name": "evaluate",
    "config.yaml:data:root": "evaluate",
    "config.yaml:base": "evaluate",
    "best.safetensors:architecture:name": "evaluate",
    "best.safetensors:architecture:options:patch_size": "evaluate",
    "results.jsonl:evaluation": "verify",
    "results.jsonl:verdicts": "compare",
    "results.jsonl:extra:words": "verify",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", FIELDS_THAT_LOAD)
def test_fields_that_name_what_is_loaded(here, small, key):
    others = {"evaluate": ["suite=clean", "n=7", CPU], "verify": [CPU], "compare": ["small"]}[FIELDS_THAT_LOAD[key]]
    for kind, text in texts_for(here / "run", here / "outside").items():
        if kind in ("file", "weights", "data", "images", "upwards", "home"):
            write_hostile(here / "run", f"model={text}" if "words" in key else text, where=key, source=small)
            code, _ = attempt([FIELDS_THAT_LOAD[key], "run", *others], here)
            assert code != 0 or (key, kind) == ("config.yaml:data:root", "file"), (key, kind)  # inside the run
            shutil.rmtree(here / "run")


@pytest.fixture
def small(here):
    return here / "small"


def change_results(run, **fields):
    lines = [{**json.loads(line), **fields} for line in (run / "results.jsonl").read_text().splitlines()]
    (run / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


# ---------------------------------------------------------------- code


@pytest.mark.parametrize(
    "words",
    [
        ["model=os:system", 'model.options.command="touch ran"', "data=digits"],
        ["model=run/evil.py:build", "data=digits"],
        ["model=evil:build", "data=digits"],
        ["model={name: 'run/evil.py:build'}", "data=digits"],
        ["suite=clean", "data=folder:outside/images"],
    ],
)
def test_verify_runs_no_code_that_a_result_names(here, small, words):
    write_hostile(here / "run", "", where="nowhere", source=small)
    change_results(here / "run", extra={"words": words})
    code, text = attempt(["verify", "run"], here)
    assert code == 2 and "type it yourself" in text and text.count("\n") == 1


@pytest.mark.parametrize(
    ("suite", "word"),
    [
        ("pgd", "attack.bpda=run/evil.py:surrogate"),
        ("pgd", "attack.loss=run/evil.py:loss"),
        ("attacks", "attacks=[{name: apgd, loss: 'run/evil.py:loss'}]"),
        ("autoattack", "attack.bpda=run/evil.py:surrogate"),
    ],
)
def test_verify_runs_no_surrogate_and_no_loss_that_a_result_names(here, small, suite, word):
    write_hostile(here / "run", "", where="nowhere", source=small)
    change_results(here / "run", suite=suite, extra={"words": [f"suite={suite}", "data=digits", word]})
    code, text = attempt(["verify", "run"], here)
    assert code == 2 and "type it yourself" in text


def test_verify_runs_code_that_the_user_types(here, small):
    (here / "mine.py").write_text(
        "import torch\n"
        "def build():\n"
        "    open('mine_ran', 'w')\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))\n"
    )
    write_hostile(here / "run", "", where="nowhere", source=small)
    change_results(here / "run", extra={"words": ["model=os:system", "data=digits", "data.image_size=8", "n=24"]})
    assert main(["verify", "run", "model=mine.py:build", "model.image_size=8"]) == 1  # it runs; the weights are others
    assert (here / "mine_ran").exists()


def test_imported_code_lends_no_other_names(here, small):
    """A run may use what the user imported, but not every name that happens to be visible there."""
    (here / "tools.py").write_text("from os import system\nimport torch\n\n\ndef build():\n    return None\n")
    write_hostile(here / "run", "tools.py:system", where="best.safetensors:architecture:name", source=small)
    code, _ = attempt(["--import", "tools.py", "describe", "run"], here)
    assert code == 2
    change_results(here / "run", extra={"words": ["model=tools.py:system", 'model.options.command="touch ran"']})
    code, _ = attempt(["--import", "tools.py", "verify", "run"], here)
    assert code == 2


# ---------------------------------------------------------------- paths that the user typed


def test_data_of_an_own_run_is_opened_again_and_that_of_a_strangers_is_not(here, monkeypatch):
    file = write_data(here / "mine.npz")
    words = {"train": {"epochs": 1, "batch_size": 20}, "objective": "standard", "schedule": {"name": "constant"}}
    ht.train(**settings(here / "own", file, **words), quiet=True)
    evaluate = ["evaluate", "own", "suite=clean", CPU]
    assert attempt(evaluate, here)[0] == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "home" / "other"))  # another person, who never typed the path
    code, text = attempt(evaluate, here)
    assert code == 2 and f"data.name=npz:{file}" in text
    assert attempt([*evaluate, f"data=npz:{file}"], here)[0] == 0
    assert attempt(evaluate, here)[0] == 0  # it was typed


# ---------------------------------------------------------------- links


@pytest.mark.parametrize("name", ["results.jsonl", "config.yaml", "checkpoints/best.safetensors", "verdicts", "x"])
@pytest.mark.parametrize("verb", [["verify", "run"], ["evaluate", "run", "suite=clean", CPU], ["report", "run"]])
def test_links_that_lead_out_of_the_folder(here, small, name, verb):
    write_hostile(here / "run", "", where="nowhere", source=small)
    path = here / "run" / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(here / "outside" / ("images" if name == "verdicts" else "weights.safetensors"))
    code, text = attempt(verb, here)
    assert (code == 2 or verb[0] == "report") and "outside of the run folder" in text


def test_a_link_in_place_of_the_lock_is_not_followed(here):
    from hardtack.results import append_results

    (here / "run").mkdir()
    victim = here / "home" / "secret.yaml"
    (here / "run" / ".results.lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        append_results(here / "run", [])
    assert victim.read_text() == "a: 1\n"


# ---------------------------------------------------------------- pages and tables


class _Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.scripts, self.bad = 0, []

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        for name, value in attributes:
            if name.startswith("on") or (name in ("href", "src", "action") and _leads_away(tag, value or "")):
                self.bad.append((tag, name, value))


def _leads_away(tag, value):
    return not value.startswith(("#", "data:image/png;base64,", "data:,"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["html", "markup", "python"])
def test_no_text_becomes_part_of_the_page(here, kind):
    pages = []
    for text in ("harmless", texts_for(here / "run", here / "outside")[kind]):
        write_hostile(here / "run", text, source=here / "middle")
        attempt(["report", "run", "--output", "page.html"], here)
        pages.append((here / "page.html").read_text())
        card = "".join((here / "run" / "card.md").read_text().split("```")[::2])  # between fences it is code
        assert "<script" not in card and "<img" not in card and "\x1b" not in card
        shutil.rmtree(here / "run")
    harmless, hostile = (_Elements() for _ in pages)
    harmless.feed(pages[0])
    hostile.feed(pages[1])
    assert hostile.scripts == harmless.scripts and hostile.bad == harmless.bad == []
    assert "default-src 'none'" in pages[1]  # should one slip through, the browser does not run it
    assert "49" not in pages[1].split("${7*7}")[-1][:5]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", " =", "|", "%"])
def test_cells_are_no_formulas(here, small, start):
    write_hostile(here / "run", f"{start}HYPERLINK(1)", where="results.jsonl:model", source=small)
    _, text = attempt(["export", "run"], here)
    cells = [cell for line in text.splitlines()[1:] for cell in line.split(",") if "HYPERLINK" in cell]
    assert cells and all(cell.lstrip('"').startswith(("'", "\\x0d")) for cell in cells)


# ---------------------------------------------------------------- networks that files describe


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("options:depth", 10**9),
        ("options:depth", 50_000),
        ("options:width", 60_000),
        ("options:width", 2**62),
        ("num_classes", 10**11),
        ("num_classes", -1),
        ("num_classes", "10"),
        ("image_size", 10**9),
        ("options:depth", "RUN/evil.py:build"),
        ("options:depth", [1] * 10**5),
        ("mean", 1e308),
        ("name", 5),
        ("name", "timm:hf-hub:someone/something"),
        ("source", None),
    ],
)
def test_descriptions_that_no_tensor_supports(here, small, key, value):
    write_hostile(here / "run", value, where=f"best.safetensors:architecture:{key}", source=small)
    for words in (["describe", "run"], ["evaluate", "run", "suite=clean", "n=3", CPU]):
        code, text = attempt(words, here)
        assert code == 2 and text.count("\n") == 1, text


@pytest.mark.parametrize("option", ["weights", "pretrained", "adapt", "seed", "checkpoint_path", "pretrained_cfg"])
def test_options_cannot_load_other_weights(here, small, option):
    import safetensors.torch

    run = write_hostile(here / "run", "", where="nowhere", source=small)
    path = run / "checkpoints" / "best.safetensors"
    with safetensors.safe_open(path, framework="pt") as opened:
        metadata = json.loads(opened.metadata()["hardtack"])
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    metadata["architecture"]["options"][option] = str(here / "outside" / "weights.safetensors")
    path.write_bytes(safetensors.torch.save(tensors, metadata={"hardtack": json.dumps(metadata)}))
    path.with_name(path.name + ".sha256").unlink()
    code, _ = attempt(["describe", "run"], here)
    assert code == 2
