"""Protocols: a paper's row for a model, from evaluations that are ordinary ones."""

import numpy as np
import pytest

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.evaluation.verification import verify
from hardtack.results import per_image, read_results, read_verdicts
from hardtack.studies import list_protocols, read_protocol
from hardtack.studies.protocol_run import measure_protocol

FEW = {"model": "vit_digits", "data": "digits", "n": 12}


def own(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


SHORT = """
version: 3
columns:
  clean: {suite: clean, metric: clean_accuracy}
  small: {suite: pgd, threat: linf:0.02, attack: {steps: 2}}
  round: {suite: pgd, threat: l2:0.3, attack: {steps: 2}}
  worst: {worst_of: [small, round]}
"""


@pytest.mark.parametrize("name", list_protocols())
def test_every_protocol_is_well_formed_and_says_what_it_is(name):
    protocol = read_protocol(name)
    assert protocol.version >= 1 and protocol.paper and list_protocols()[name]
    assert protocol.columns[0].name == "clean" and len(protocol.columns) >= 2


def test_the_papers_numbers_of_paper_3():
    columns = {column.name: column.settings for column in read_protocol("architectures/cifar").columns}
    assert columns["PGD-linf"]["threat"] == "linf:8/255" and columns["PGD-l2"]["threat"] == "l2:1.5"
    assert columns["PGD-l1"]["threat"] == "l1:40" and columns["PGD-l1"]["attack"]["dense"] is True
    assert all(columns[name]["attack"]["steps"] == 20 for name in ("PGD-linf", "PGD-l2", "PGD-l1"))
    assert all(columns[name]["attack"]["relative_step"] == 0.075 for name in ("PGD-linf", "PGD-l2", "PGD-l1"))


def test_a_row_is_its_evaluations_and_the_worst_of_each_image(tmp_path):
    row = measure_protocol(protocol=own(tmp_path, SHORT), output=str(tmp_path / "run"), quiet=True, **FEW)
    assert [result.extra["column"] for result in row.results] == ["clean", "small", "round", "worst"]
    assert {result.protocol for result in row.results} == {"mine 3"}
    clean, small, big = row.evaluations
    standing = small.robust & big.robust
    assert row.value("clean") == clean.clean_accuracy and row.value("small") == small.robust_accuracy
    assert row.value("worst") == standing.mean()
    assert row.value("worst") <= min(row.value("small"), row.value("round"))
    with pytest.raises(UserError, match="did you mean 'small'"):
        row.value("smal")
    stored = [result for result in read_results(tmp_path / "run") if result.suite == "protocol"]
    columns = read_verdicts(tmp_path / "run" / stored[0].verdicts)
    assert np.array_equal(per_image(stored[-1], columns), standing)
    assert [result.value for result in stored] == [result.value for result in row.results]


def test_a_row_measured_again_is_recalled_and_replaced(tmp_path):
    words = {"protocol": own(tmp_path, SHORT), "output": str(tmp_path / "run"), "quiet": True, **FEW}
    first, again = measure_protocol(**words), measure_protocol(**words)
    assert [one.results[-1].created for one in first.evaluations] == [
        one.results[-1].created for one in again.evaluations
    ]
    assert len([r for r in read_results(tmp_path / "run") if r.suite == "protocol"]) == 4


def test_a_threat_may_be_chosen_only_where_the_protocol_leaves_it_open(tmp_path):
    row = measure_protocol(
        protocol="xcit/ablation", threat="linf:0.01", output=str(tmp_path / "run"), quiet=True, **{**FEW, "n": 4}
    )
    assert row.results[-1].threat == "linf:0.01"
    assert row.results[-1].attack_settings["stages"][0]["restarts"] == 5
    with pytest.raises(UserError, match="fixes its threats"):
        measure_protocol(protocol="architectures/cifar", threat="linf:0.01", **FEW)


@pytest.mark.parametrize(
    "words, message",
    [
        ({"protocol": "architectures/cifr"}, "did you mean 'architectures/cifar'"),
        ({"protocol": "architectures/cifar", "tier": "fast"}, "protocol architectures/cifar 1 fixes 'tier'"),
        ({"protocol": "architectures/cifar", "chekpoint": "last"}, "did you mean 'checkpoint'"),
        ({"protocol": "rspc/cifar", "folders.cifar_d": "x"}, "has no folder 'cifar_d'; its folders: cifar_c"),
        ({"protocol": "rspc/cifar", "folders.cifar_c": "nowhere"}, "there is no file or folder 'nowhere'"),
        ({"protocol": "rspc/cifar", "folders": "x"}, "name the folder by its key: folders.cifar_c=PATH"),
    ],
)
def test_mistakes_are_said_before_anything_is_measured(words, message, tmp_path):
    with pytest.raises(UserError, match=message):
        measure_protocol(output=str(tmp_path / "run"), **words, **FEW)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "text, message",
    [
        ("version: 1", "has no columns"),
        ("columns: {a: {suite: clan}}", "did you mean 'clean'"),
        ("columns: {a: {suite: pgd, threat: linf:1, metrc: b}}", "metrc"),
        ("columns: {a: {worst_of: [b]}}", "worst_of of 'a' names 'b', no column before it"),
        ("columns: {a: {metric: b}}", "the settings of an evaluation .suite: …., or worst_of"),
        ("columns: {a: {suite: clean, data: x}}", "column 'a' names 'x', which is not listed"),
        ("colums: {}", "has no columns"),
    ],
)
def test_a_protocol_of_the_users_own_is_checked(text, message, tmp_path):
    with pytest.raises(UserError, match=message):
        read_protocol(own(tmp_path, text))


def test_corruptions_are_official_where_the_files_are(tmp_path):
    """Without files the images are made here, and the row says so."""
    protocol = own(
        tmp_path,
        "folders: {c: CIFAR-10-C}\ncolumns: {C: {suite: corruptions, types: [fog], severities: [1],"
        " metric: mean_corrupted_accuracy, official: c}}",
    )
    words = {**FEW, "protocol": protocol, "quiet": True}
    made = measure_protocol(output=str(tmp_path / "run"), **words)
    assert made.results[0].extra["source"] == "regenerated"
    files = tmp_path / "CIFAR-10-C"
    files.mkdir()
    np.save(files / "fog.npy", np.zeros((60, 8, 8, 3), dtype=np.uint8))
    with pytest.raises(UserError, match=r"labels\.npy"):  # found, opened, and not whole
        measure_protocol(output=str(tmp_path / "run"), **words, **{"folders.c": str(files)})


def test_what_is_not_there_is_named_and_the_rest_is_measured(tmp_path):
    protocol = own(
        tmp_path,
        "folders: {imagenet_a: imagenet-a}\ncolumns: {clean: {suite: clean, metric: clean_accuracy},"
        " A: {suite: clean, metric: clean_accuracy, data: imagenet_a}, both: {worst_of: [clean, A]}}",
    )
    row = measure_protocol(protocol=protocol, output=str(tmp_path / "run"), quiet=True, **FEW)
    assert [result.extra["column"] for result in row.results] == ["clean"]
    assert (
        "give its path as folders.imagenet_a=PATH" in row.missing["A"]
        and row.missing["both"] == "it needs the columns A"
    )
    assert "not measured" in str(row)
    with pytest.raises(UserError, match="give its path"):
        row.value("A")


def test_a_column_on_other_images_can_be_verified(tmp_path):
    data = ht.load_data("digits", "test")
    batch = data.batch(range(40, 60))
    pixels = (batch.x * 255).round().byte().permute(0, 2, 3, 1)
    np.savez(tmp_path / "other.npz", images=pixels.numpy(), labels=batch.y.numpy())
    protocol = own(
        tmp_path,
        "folders: {npz: other.npz}\ncolumns: {clean: {suite: clean, metric: clean_accuracy},"
        " other: {suite: clean, metric: clean_accuracy, data: npz}}",
    )
    words = {**FEW, "model": {"name": "vit_digits"}, "protocol": protocol, "split": "validation", "quiet": True}
    row = measure_protocol(output=str(tmp_path / "run"), **words, **{"folders.npz": str(tmp_path / "other.npz")})
    assert [result.data for result in row.results] == ["digits/validation", f"npz:{tmp_path / 'other.npz'}/test"]
    found = verify(tmp_path / "run")
    assert len(found) == 3 and not any(one.wrong for one in found), "two evaluations and the row"


def test_the_command_prints_the_row_and_the_plan(tmp_path, capsys):
    words = ["model=vit_digits", "data=digits", "n=6", f"protocol={own(tmp_path, SHORT)}", f"output={tmp_path / 'r'}"]
    assert main(["evaluate", *words]) == 0
    out = capsys.readouterr().out
    assert "mine 3" in out and "worst " in out and "backwards" in out
    assert main(["plan", *words]) == 0
    assert capsys.readouterr().out.count("plan: ") == 3
    assert main(["list", "protocols"]) == 0 and "architectures/cifar" in capsys.readouterr().out


def test_dense_l1_steps_are_weak_and_feasible():
    model = ht.load_model("vit_digits", seed=0)
    batch = ht.load_data("digits", "test").batch(range(16))
    with pytest.raises(UserError, match="in l1 only"):
        ht.attack(model, batch.x, batch.y, "pgd", dense=True, threat="linf:0.1")
    x_adv = ht.attack(model, batch.x, batch.y, "pgd", dense=True, threat="l1:4", steps=10)
    delta = (x_adv - batch.x).flatten(1).abs()
    assert (delta.sum(dim=1) <= 4).all() and (delta > 0).float().mean() > 0.3  # nearly every pixel moves
    sharp = ht.attack(model, batch.x, batch.y, "pgd", threat="l1:4", steps=10)
    loss = [
        float(-model(images).log_softmax(dim=1).gather(1, batch.y[:, None]).mean().detach())
        for images in (batch.x, x_adv, sharp)
    ]
    assert loss[0] < loss[1] < loss[2]


def test_official_files_that_lie_about_are_taken_only_for_their_own_images(tmp_path, monkeypatch):
    files = tmp_path / "data" / "CIFAR-10-C"
    files.mkdir(parents=True)
    np.save(files / "fog.npy", np.zeros((60, 32, 32, 3), dtype=np.uint8))
    np.save(files / "labels.npy", np.zeros(60, dtype=np.uint8))
    monkeypatch.chdir(tmp_path)
    protocol = own(
        tmp_path,
        "folders: {c: CIFAR-10-C}\ncolumns: {C: {suite: corruptions, types: [fog], severities: [1],"
        " metric: mean_corrupted_accuracy, official: c}}",
    )
    row = measure_protocol(protocol=protocol, output=str(tmp_path / "run"), quiet=True, **FEW)  # digits have 8 pixels
    assert row.results[0].extra["source"] == "regenerated"


def test_a_plan_names_what_it_leaves_out(tmp_path, capsys):
    protocol = own(
        tmp_path,
        "folders: {imagenet_a: imagenet-a}\ncolumns: {clean: {suite: clean, metric: clean_accuracy},"
        " A: {suite: clean, metric: clean_accuracy, data: imagenet_a}}",
    )
    assert main(["plan", "model=vit_digits", "data=digits", "n=6", f"protocol={protocol}"]) == 0
    assert "plan: column A cannot be measured: there is no folder imagenet-a" in capsys.readouterr().out
