"""A run folder may name what hardtack registers; code and files outside of it must be typed by the user."""

import pytest

from hardtack.base.errors import UserError
from hardtack.base.trust import check_links, file_inside, is_in_run, remember_paths, stored_settings


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()


@pytest.mark.parametrize(
    "stored",
    [
        {"suite": "autoattack", "threat": "linf:8/255", "tier": "fast", "n": 24, "union": ["l2:0.5", "l1:12"]},
        {"model": "vit_digits", "data": "digits", "model.options": {"depth": 2}},
        {"model": {"name": "timm:resnet50", "pretrained": True}, "data": {"name": "cifar10", "root": None}},
        {"attack": {"name": "pgd", "steps": 20, "loss": "dlr"}, "types": "fog,gaussian_noise", "sweep": [0.5, "1/2"]},
        {"runtime": {"device": "cuda:0", "precision": "tf32"}, "checkpoint": "last", "severities": [1, 5]},
    ],
)
def test_names_of_the_registries_pass(stored):
    assert stored_settings(stored, {}, folder="run") == stored


@pytest.mark.parametrize(
    ("stored", "word"),
    [
        ({"model": "os:system"}, "model=os:system"),
        ({"model": {"name": "os:system", "options": {"command": "id"}}}, "model.name=os:system"),
        ({"model": "evil.py"}, "model=evil.py"),
        ({"model": "run/evil.py:build"}, "model=run/evil.py:build"),
        ({"model": {"name": "vit_digits", "weights": "/etc/passwd"}}, "model.weights=/etc/passwd"),
        ({"model": {"name": "vit_digits", "weights": "weights"}}, "model.weights=weights"),
        ({"model": {"name": "vit_digits", "options": {"act": ["relu", "os:system"]}}}, "os:system"),
        ({"attack": {"name": "transfer", "source": "elsewhere"}}, "attack.source=elsewhere"),
        ({"attack": {"bpda": "evil.py:surrogate"}}, "attack.bpda=evil.py:surrogate"),
        ({"attack": {"loss": "evil:loss"}}, "attack.loss=evil:loss"),
        ({"data": "folder:/home"}, "data=folder:/home"),
        ({"data": {"name": "folder:images"}}, "data.name=folder:images"),
        ({"data": {"name": "cifar10", "root": "/srv"}}, "data.root=/srv"),
        ({"data": "hfds/someone/something"}, "data=hfds/someone/something"),
        ({"data": {"name": "digits", "extra": [{"name": "npz:/x.npz"}]}}, "npz:/x.npz"),
        ({"files": "CIFAR-10-C"}, "files=CIFAR-10-C"),
        ({"frost": "~/frost"}, "frost=~/frost"),
        ({"checkpoint": "../../elsewhere"}, "checkpoint=../../elsewhere"),
        ({"output": "../elsewhere"}, "output=../elsewhere"),
        ({"suite": "http://example.org"}, "suite=http://example.org"),
        ({"suite": "a\x1b[31mb"}, "suite=a [31mb"),
    ],
)
def test_code_and_files_must_be_typed(stored, word):
    with pytest.raises(UserError) as caught:
        stored_settings(stored, {}, folder="run")
    assert word in str(caught.value) and "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_typed_settings_are_not_questioned():
    stored = {"model": {"name": "os:system", "options": {"command": "id"}}, "data": "folder:/srv", "suite": "clean"}
    typed = {"model": "mine.py:build", "data": {"name": "folder:/mine", "root": "/x"}}
    merged = stored_settings(stored, typed, folder="run")
    assert merged["model"] == {"name": "mine.py:build"}  # options of another model are dropped
    assert merged["data"]["name"] == "folder:/mine" and merged["suite"] == "clean"


def test_code_that_this_process_was_told_to_run_is_found():
    stored = {"model": {"name": "mine.py:build", "options": {"width": 2}}}
    merged = stored_settings(stored, {}, folder="run", code=lambda name: f"/home/me/{name}")
    assert merged["model"] == {"name": "/home/me/mine.py:build", "options": {"width": 2}}


def test_paths_of_an_earlier_command_are_remembered():
    stored = {"data": {"name": "folder:images", "root": "/srv"}, "files": "C"}
    with pytest.raises(UserError):
        stored_settings(stored, {}, folder="run")
    remember_paths({"data": {"name": "folder:images", "root": "/srv"}, "files": "C"})
    assert stored_settings(stored, {}, folder="run") == stored
    for other in ("folder:../images", "folder:/images", "folder:~/images"):
        with pytest.raises(UserError):
            stored_settings({"data": {"name": other, "root": "/srv"}}, {}, folder="run")


def test_a_relative_name_below_a_typed_root_passes():
    stored = {"data": {"name": "folder:images"}}
    assert stored_settings(stored, {"data": {"root": "/mine"}}, folder="run")["data"]["name"] == "folder:images"
    with pytest.raises(UserError):
        stored_settings({"data": {"name": "folder:../../etc"}}, {"data": {"root": "/mine"}}, folder="run")


def test_a_file_inside_the_run_may_be_opened(tmp_path):
    inside = str(tmp_path / "run" / "checkpoints" / "best.safetensors")
    stored = {"model": {"name": "vit_digits", "weights": inside}}
    assert stored_settings(stored, {}, folder="run") == stored


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "", "a\0b", "x" * 5000])
def test_records_cannot_name_files_elsewhere(name):
    with pytest.raises(UserError, match="not in that folder"):
        file_inside("run", name)


def test_links_that_lead_out_are_refused(tmp_path):
    run = tmp_path / "run"
    (run / "verdicts").mkdir()
    (run / "best").write_text("x")
    (run / "same").symlink_to("best")
    check_links(run)
    (tmp_path / "alias").symlink_to(run)
    check_links(tmp_path / "alias")  # the folder itself may be a link
    (run / "verdicts" / "a").symlink_to(tmp_path / "state")
    with pytest.raises(UserError, match="outside of the run folder"):
        check_links(run)
    with pytest.raises(UserError):
        file_inside(run, "verdicts/a/x")


def test_deep_folders_are_refused(tmp_path):
    (tmp_path / "run").joinpath(*["a"] * 20).mkdir(parents=True)
    with pytest.raises(UserError, match="levels deep"):
        check_links(tmp_path / "run")


def test_a_recipe_beside_results_is_that_of_a_run(tmp_path):
    (tmp_path / "run" / "results.jsonl").write_text("")
    assert is_in_run(tmp_path / "run" / "config.yaml") and not is_in_run(tmp_path / "mine.yaml")
