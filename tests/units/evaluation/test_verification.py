"""`hardtack verify` names everything that was changed, lost or never stored, and its exit code says so."""

import json
import shutil

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import hardtack as ht
from hardtack.commands.cli import main
from hardtack.results import read_arrays, read_results, read_verdicts, write_arrays, write_verdicts
from tiny_runs import settings, write_data

WORDS = [
    "suite=attacks", "threat=linf:0.1", "chunk_size=5",
    "attacks=[{name: apgd_ce, steps: 5}, {name: square, steps: 20}]",
]  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A trained run and one evaluation of it, in which some images fall and some stand."""
    base = tmp_path_factory.mktemp("verify")
    file = write_data(base / "data.npz", test=16)
    words = settings(base / "run", file, objective={"name": "standard"}, output=str(base / "run"))
    words["train"] |= {"epochs": 6, "ema": 0.0}
    ht.train(None, quiet=True, **words)
    assert main(["evaluate", str(base / "run"), *WORDS]) == 0
    (measured,) = {result.evaluation for result in read_results(base / "run")}
    verdicts = read_verdicts(base / "run" / "verdicts" / f"{measured}.parquet")
    broken = verdicts["clean_correct"] & ~verdicts["robust"]
    assert broken.sum() >= 3 and len(list((base / "run" / "adversarial" / measured).glob("*.npz"))) >= 2
    return base / "run", measured, int(broken.sum())


@pytest.fixture
def run(original, tmp_path):
    """A copy to be tampered with: (folder, evaluation, how many images are broken)."""
    folder, measured, broken = original
    return shutil.copytree(folder, tmp_path / "run"), measured, broken


def verify(run, *words, capsys):
    capsys.readouterr()
    code = main(["verify", str(run), *words])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def kept(run):
    return sorted((run[0] / "adversarial" / run[1]).glob("*.npz"))


def test_an_honest_run_is_verified(run, capsys):
    code, text = verify(run[0], capsys=capsys)
    assert code == 0 and f"{run[1]}: verified: {run[2]} of {run[2]} broken images confirmed, 16 clean" in text


def test_rounding_to_eight_bits_is_reported(run, capsys):
    code, text = verify(run[0], "bits=8", capsys=capsys)
    assert code == 0 and f"of {run[2]} are still misclassified" in text
    assert verify(run[0], "bits=7", capsys=capsys)[0] == 2


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda x_adv: x_adv * 0 + 0.5, id="another image"),
        pytest.param(lambda x_adv: x_adv * np.nan, id="not a number"),
        pytest.param(lambda x_adv: (x_adv + 0.2).clip(0, 1), id="outside the ball"),
        pytest.param(lambda x_adv: x_adv - 1, id="outside the box"),
    ],
)
def test_a_changed_image_is_found(run, capsys, change):
    path = kept(run)[0]
    arrays = read_arrays(path)
    arrays["x_adv"][:1] = change(arrays["x_adv"][:1])
    write_arrays(path, arrays)
    code, text = verify(run[0], capsys=capsys)
    assert code == 1 and "NOT VERIFIED" in text and f"{run[2] - 1} of {run[2]}" in text
    assert f"index [{arrays['index'][0]}]" in text


def test_the_clean_image_in_the_place_of_the_adversarial_one_is_found(run, capsys, original):
    path = kept(run)[0]
    arrays = read_arrays(path)
    clean = np.load(original[0].parent / "data.npz")["x_test"][arrays["index"][0]]
    arrays["x_adv"][0] = clean.transpose(2, 0, 1).astype(np.float32) / 255
    write_arrays(path, arrays)
    assert verify(run[0], capsys=capsys)[0] == 1


def test_a_damaged_file_is_named(run, capsys):
    path = kept(run)[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    code, text = verify(run[0], capsys=capsys)
    assert code == 1 and path.name in text and "fault of hardtack" not in text
    path.write_bytes(content[: len(content) // 2])
    code, text = verify(run[0], capsys=capsys)
    assert code == 1 and path.name in text and "fault of hardtack" not in text


def test_a_deleted_file_is_reported(run, capsys):
    lost = len(read_arrays(kept(run)[0])["index"])
    kept(run)[0].unlink()
    code, text = verify(run[0], capsys=capsys)
    assert code == 1 and f"{lost} broken images are not on disk" in text


def test_missing_verdicts_are_reported(run, capsys):
    (run[0] / "verdicts" / f"{run[1]}.parquet").unlink()
    code, text = verify(run[0], capsys=capsys)
    assert code == 1 and "no verdict file" in text and "NOT VERIFIED" in text


def test_changed_weights_are_found(run, capsys):
    for path in (run[0] / "checkpoints").glob("*.safetensors"):
        weights = load_file(path)
        with safe_open(path, "np") as file:
            metadata = file.metadata()
        save_file({name: value * 1.5 for name, value in weights.items()}, path, metadata=metadata)
        for side in path.parent.glob(path.name + ".sha256"):
            side.unlink()
    code, text = verify(run[0], capsys=capsys)
    assert code in (1, 2) and ("weights are not those" in text or "sha256" in text)


def test_a_number_that_the_verdicts_do_not_give_is_found(run, capsys):
    path = run[0] / "results.jsonl"
    value = next(r.value for r in read_results(run[0]) if r.metric == "robust_accuracy")
    text = path.read_text().replace(f'"value": {value}', '"value": 0.99')
    assert text != path.read_text()
    path.write_text(text)
    code, text = verify(run[0], capsys=capsys)
    assert code == 1 and "stored 0.99" in text


@pytest.mark.parametrize("robust", [True, False])
def test_verdicts_without_evidence_are_found(run, capsys, robust):
    """A row that counts as broken needs an image that broke it, and one with such an image is not robust."""
    path = run[0] / "verdicts" / f"{run[1]}.parquet"
    columns = {name: value.copy() for name, value in read_verdicts(path).items()}
    rows = np.flatnonzero(columns["clean_correct"] & (columns["robust"] != robust))
    if not len(rows):
        pytest.skip("no image of this kind")
    columns["robust"][rows[0]] = robust
    write_verdicts(path, columns)
    code, text = verify(run[0], capsys=capsys)
    assert code == 1 and "NOT VERIFIED" in text


def test_images_that_were_not_kept_cannot_be_verified(run, capsys):
    assert main(["evaluate", str(run[0]), *WORDS, "keep=false"]) == 0
    (new,) = {result.evaluation for result in read_results(run[0])} - {run[1]}
    code, text = verify(run[0], f"evaluation={new}", capsys=capsys)
    assert code == 1 and "keep=false" in text and f"0 of {run[2]} broken" in text
    code, text = verify(run[0], capsys=capsys)
    assert code == 1 and f"{run[1]}: verified" in text and f"{new}: NOT VERIFIED" in text, "one line for each"


def test_other_data_is_found(run, capsys, tmp_path, original):
    other = write_data(tmp_path / "other.npz", test=16, seed=9)
    code, text = verify(run[0], f"data=npz:{other}", capsys=capsys)
    assert code == 1 and "NOT VERIFIED" in text


def test_every_suite_can_be_verified(run, capsys):
    words = ["threat=linf:0.05", "attack.steps=3"]
    assert main(["evaluate", str(run[0]), "suite=clean,pgd,sweep,curve", *words]) == 0
    assert main(["evaluate", str(run[0]), *WORDS, "union=[l2:0.5]"]) == 0
    fast = ["suite=autoattack", "tier=fast", "threat=linf:0.05", "n=4"]
    rand = ["suite=autoattack", "tier=verified", "version=rand", "threat=linf:0.05", "n=2"]
    assert main(["evaluate", str(run[0]), *fast]) == 0 and main(["evaluate", str(run[0]), *rand]) == 0
    assert main(["evaluate", str(run[0]), "suite=corruptions", "types=[fog]", "severities=[2]"]) == 0
    assert main(["evaluate", str(run[0]), "suite=patches", "patches.masks=2", "n=4"]) == 0
    code, text = verify(run[0], capsys=capsys)
    assert code == 0 and text.count(": verified:") == 10, text


def test_an_analysis_and_a_protocol_are_compared_with_their_files(run, capsys, tmp_path):
    assert main(["analyze", str(run[0]), "jacobian", "n=4"]) == 0
    protocol = tmp_path / "mine.yaml"
    protocol.write_text(
        "version: 1\ncolumns:\n"
        "  clean: {suite: clean, metric: clean_accuracy}\n"
        "  small: {suite: pgd, threat: linf:0.05, attack: {steps: 2}}\n"
        "  round: {suite: pgd, threat: l2:0.3, attack: {steps: 2}}\n"
        "  worst: {worst_of: [small, round]}\n"
    )
    assert main(["evaluate", str(run[0]), f"protocol={protocol}", "n=8"]) == 0
    code, text = verify(run[0], capsys=capsys)
    assert code == 0 and "numbers of an analysis counted again" in text and "4 columns counted again" in text, text
    genuine = (run[0] / "results.jsonl").read_text()
    for suite, word in (("analysis", "value: stored 123.0"), ("protocol", "value: stored 123.0")):
        lines = [json.loads(line) for line in genuine.splitlines()]
        changed = next(line for line in lines if line["suite"] == suite and line["verdicts"])
        changed["value"] = 123.0
        (run[0] / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        code, text = verify(run[0], capsys=capsys)
        assert code == 1 and word in text, text
        if suite == "analysis":
            assert main(["analyze", str(run[0]), "jacobian", "n=4"]) == 0
            assert "stored 123.0" in capsys.readouterr().err and verify(run[0], capsys=capsys)[0] == 0, "repeated"


@pytest.mark.parametrize(
    "word, told", [("evaluation=pgd-123", "holds no evaluation 'pgd-123'"), ("bits=x", "bits can only be 8")]
)
def test_invalid_settings_of_verify(run, capsys, word, told):
    code, text = verify(run[0], word, capsys=capsys)
    assert code == 2 and told in text


def test_a_run_without_evaluations(run, capsys, tmp_path):
    (run[0] / "results.jsonl").unlink()
    assert verify(run[0], capsys=capsys)[0] == 2
    code, text = verify(tmp_path / "nowhere", capsys=capsys)
    assert code == 2 and "there is no run folder" in text
    assert main(["verify"]) == 2


def test_every_threat_of_a_union_has_its_own_image(run, capsys):
    assert main(["evaluate", str(run[0]), "suite=pgd", "attack.steps=5", "threat=linf:0.1", "union=[l2:1]"]) == 0
    union = next(one for one in read_results(run[0]) if one.metric == "worst_case_accuracy").evaluation
    code, text = verify(run[0], f"evaluation={union}", "bits=8", capsys=capsys)
    verdicts = read_verdicts(run[0] / "verdicts" / f"{union}.parquet")
    pairs = sum(int((verdicts["clean_correct"] & ~verdicts[f"robust@{t}"]).sum()) for t in ("linf:0.1", "l2:1"))
    assert code == 0 and pairs > 0 and f"of {pairs} are still misclassified" in text
    (path,) = (run[0] / "adversarial" / union).glob("*.npz")
    arrays = read_arrays(path)
    second = arrays["threat"] == "l2:1"
    assert second.any()
    write_arrays(path, {name: value[~second] for name, value in arrays.items()})
    only_l2 = verdicts["clean_correct"] & ~verdicts["robust@l2:1"]
    code, text = verify(run[0], f"evaluation={union}", capsys=capsys)
    assert only_l2.any() and code == 1


def test_an_attack_on_patches_may_change_only_its_patches(run, capsys):
    words = ["suite=pgd", "attack=occlusion", "attack.share=0.5", "attack.patch_size=2", "attack.tries=20"]
    assert main(["evaluate", str(run[0]), *words]) == 0
    measured = next(one for one in read_results(run[0]) if "occlusion" in (one.attack or "")).evaluation
    assert verify(run[0], f"evaluation={measured}", capsys=capsys)[0] == 0
    (path,) = (run[0] / "adversarial" / measured).glob("*.npz")
    arrays = read_arrays(path)
    everywhere = np.random.default_rng(0).random(arrays["x_adv"].shape, dtype=np.float32)
    write_arrays(path, {**arrays, "x_adv": everywhere})  # some of these fool the model, and none may count
    code, text = verify(run[0], f"evaluation={measured}", capsys=capsys)
    assert code == 1 and f"NOT VERIFIED: 0 of {len(arrays['index'])}" in text


def test_arrays_of_other_lengths_are_damage(run, capsys):
    path = kept(run)[0]
    arrays = read_arrays(path)
    write_arrays(path, {**arrays, "x_adv": arrays["x_adv"][:-1]})
    code, text = verify(run[0], capsys=capsys)
    assert code == 1 and "differ in length" in text
