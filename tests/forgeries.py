"""Ways to forge a run folder. Each edits a genuine folder of one attacked evaluation with stored adversarial images.

FORGERIES[name] = (edit(folder, evaluation), words that `hardtack verify` must print)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.digests import columns_digest, file_digest
from hardtack.results import read_arrays, read_verdicts, write_arrays, write_verdicts
from hardtack.results.evidence import Evidence, read_evidence, result_digest
from hardtack.results.store import read_results

FORGERIES: dict[str, tuple[Callable[[Path, str], None], tuple[str, ...]]] = {}


def forgery(*words: str) -> Callable[[Callable[[Path, str], None]], Callable[[Path, str], None]]:
    def add(edit: Callable[[Path, str], None]) -> Callable[[Path, str], None]:
        FORGERIES[edit.__name__] = (edit, words)
        return edit

    return add


# ---------------------------------------------------------------- tools of a forger


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def write_lines(folder: Path, lines: list[dict[str, Any]]) -> None:
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def change(folder: Path, *, only: str = "robust_accuracy", **fields: Any) -> None:
    """Change fields of the lines of one metric (`only=""`: of all lines)."""
    write_lines(folder, [{**line, **fields} if only in ("", line["metric"]) else line for line in lines_of(folder)])


def change_extra(folder: Path, **fields: Any) -> None:
    write_lines(folder, [{**line, "extra": {**line["extra"], **fields}} for line in lines_of(folder)])


def change_words(folder: Path, old: str, new: str) -> None:
    lines = lines_of(folder)
    for line in lines:
        line["extra"]["words"] = [word.replace(old, new) for word in line["extra"]["words"]]
    write_lines(folder, lines)


def verdicts_of(folder: Path, id: str) -> dict[str, np.ndarray]:
    return {name: value.copy() for name, value in read_verdicts(folder / "verdicts" / f"{id}.parquet").items()}


def write_columns(folder: Path, id: str, columns: dict[str, Any]) -> None:
    write_verdicts(folder / "verdicts" / f"{id}.parquet", columns)


def images_of(folder: Path, id: str) -> Path:
    return sorted((folder / "adversarial" / id).glob("*.npz"))[0]


def broken_rows(columns: dict[str, np.ndarray]) -> np.ndarray:
    return np.flatnonzero(columns["clean_correct"] & ~columns["robust"])


def set_robust(columns: dict[str, Any], rows: Any) -> None:
    """Verdicts that are consistent with each other, and numbers that follow from them."""
    for name in [name for name in columns if name == "robust" or name.startswith("robust@")]:
        columns[name][rows] = True
    for row in np.atleast_1d(rows):
        columns["broken_by"][row] = None


def renumber(folder: Path, id: str) -> None:
    """Recompute the numbers of all lines from the verdicts, as a careful forger does."""
    from hardtack.results.record import from_json
    from hardtack.results.recount import recount

    columns, lines = verdicts_of(folder, id), lines_of(folder)
    attacks = [name for name in columns["broken_by"] if name is not None]
    for line in (line for line in lines if line["evaluation"] == id):
        again = recount(from_json(json.dumps(line)), columns)
        if again is not None:
            line |= again._asdict()
        line["extra"] |= {"broken_by": {name: attacks.count(name) for name in dict.fromkeys(attacks)}}
        if "per_class" in line["extra"]:
            name = "clean_correct" if line["metric"] == "clean_accuracy" else "robust"
            right = columns["label"][columns[name]]
            classes = len(line["extra"]["per_class"]["classes"])
            line["extra"]["per_class"]["right"] = np.bincount(right, minlength=classes).tolist()
    write_lines(folder, lines)


def reseal(folder: Path, id: str, **changes: Any) -> None:
    """Recompute every digest of the evidence record: nothing stops a forger from doing that."""
    record = read_evidence(folder, id)
    assert record is not None
    images = {name: file_digest(folder / name) for name in record.images if (folder / name).is_file()}
    values = {
        **vars(record), "verdicts": columns_digest(verdicts_of(folder, id)), "images": images,
        "results": [result_digest(result) for result in read_results(folder) if result.evaluation == id], **changes,
    }  # fmt: skip
    values["digest"] = Evidence(**values).own_digest
    (folder / "evidence" / f"{id}.json").write_text(json.dumps(values))


def reseal_common(folder: Path, id: str, **fields: Any) -> None:
    record = read_evidence(folder, id)
    assert record is not None
    reseal(folder, id, common={**record.common, **fields})


def drop_record(folder: Path) -> None:
    shutil.rmtree(folder / "evidence")


# ---------------------------------------------------------------- lines of results.jsonl


@forgery("value", "0.99")
def value_raised(folder, id):
    change(folder, value=0.99)


@forgery("value", "0.99")
def value_and_interval_raised_and_resealed(folder, id):
    change(folder, value=0.99, low=0.97, high=1.0)
    reseal(folder, id)


@forgery("threat", "linf:0.3")
def threat_changed(folder, id):
    change(folder, threat="linf:0.3")


@forgery("threat", "linf:0.3")
def threat_changed_without_record(folder, id):
    change(folder, threat="linf:0.3")
    drop_record(folder)


@forgery("linf:0.3")
def threat_changed_everywhere(folder, id):
    """In the line, the words, the verdicts, the images and the record: only the id does not fit any more."""
    change(folder, threat="linf:0.3")
    change_words(folder, "linf:0.1", "linf:0.3")
    columns = verdicts_of(folder, id)
    columns = {name.replace("linf:0.1", "linf:0.3"): value for name, value in columns.items()}
    columns["broken_by"] = [by and by.replace("linf:0.1", "linf:0.3") for by in columns["broken_by"]]
    write_columns(folder, id, columns)
    for path in (folder / "adversarial" / id).glob("*.npz"):
        arrays = read_arrays(path)
        write_arrays(path, {**arrays, "threat": np.full(len(arrays["index"]), "linf:0.3")})
    renumber(folder, id)
    reseal(folder, id)


@forgery("fog_accuracy")
def metric_renamed(folder, id):
    change(folder, metric="fog_accuracy")


@forgery("metric", "worst_case_accuracy")
def metric_renamed_to_a_real_one(folder, id):
    change(folder, metric="worst_case_accuracy")
    drop_record(folder)


@forgery("attack", "tier=exact")
def attack_renamed(folder, id):
    change(folder, attack="autoattack standard tier=exact")
    reseal(folder, id)


@forgery("attack_settings")
def more_steps_claimed(folder, id):
    settings = next(line["attack_settings"] for line in lines_of(folder) if line["metric"] == "robust_accuracy")
    change(folder, attack_settings={**settings, "stages": [{"name": "apgd_ce", "steps": 1000}]})
    drop_record(folder)


@forgery("attacks", "steps: stored 5, expected 500")
def words_claim_more_steps(folder, id):
    change_words(folder, '"steps": 5', '"steps": 500')
    reseal(folder, id, common={**read_evidence(folder, id).common, "extra": lines_of(folder)[0]["extra"]})


@forgery("n:", "1000")
def n_raised(folder, id):
    change(folder, only="", n=1000)


@forgery("low")
def interval_narrowed(folder, id):
    value = next(line["value"] for line in lines_of(folder) if line["metric"] == "robust_accuracy")
    change(folder, low=value - 0.001, high=value + 0.001)
    reseal(folder, id)


@forgery("interval", "wilson 99%")
def interval_renamed(folder, id):
    change(folder, interval="wilson 99%")
    reseal(folder, id)


@forgery("flags")
def flag_added(folder, id):
    change(folder, flags=[{"level": "red", "code": "masked_gradients", "message": "Square broke 9 images"}])
    reseal(folder, id)


@forgery("model", "resnet50")
def model_renamed(folder, id):
    change(folder, only="", model="resnet50")


@forgery("model", "resnet50")
def model_renamed_and_resealed(folder, id):
    change(folder, only="", model="resnet50")
    reseal_common(folder, id, model="resnet50")


@forgery("data", "imagenet")
def data_renamed(folder, id):
    change(folder, only="", data="imagenet/test")
    drop_record(folder)


@forgery("data_description", "whole test set")
def data_description_changed(folder, id):
    change(folder, only="", data_description="the whole test set")
    drop_record(folder)


@forgery("weights_sha256")
def digest_of_weights_changed(folder, id):
    change(folder, only="", weights_sha256="0" * 64)
    reseal_common(folder, id, weights_sha256="0" * 64)


@forgery("checkpoint", "last")
def checkpoint_renamed(folder, id):
    change(folder, only="", checkpoint="last")
    drop_record(folder)


@forgery("protocol", "RobustBench")
def protocol_claimed(folder, id):
    change(folder, only="", protocol="RobustBench v2")
    drop_record(folder)


@forgery("seed", "77")
def seed_changed(folder, id):
    change(folder, only="", seed=77)
    drop_record(folder)


@forgery("precision")
def precision_changed(folder, id):
    change(folder, only="", precision="fp64 search, fp64 verified")
    drop_record(folder)


@forgery("attacks-000000000000")
def id_changed(folder, id):
    change(folder, only="", evaluation="attacks-000000000000")


@forgery("attacks-000000000000", "evaluation")
def id_changed_with_its_files(folder, id):
    other = "attacks-000000000000"
    change(folder, only="", evaluation=other, verdicts=f"verdicts/{other}.parquet")
    (folder / "verdicts" / f"{id}.parquet").rename(folder / "verdicts" / f"{other}.parquet")
    (folder / "adversarial" / id).rename(folder / "adversarial" / other)
    drop_record(folder)


@forgery("protocol-000000000000")
def id_set_to_a_protocol(folder, id):
    other = "protocol-000000000000"
    change(folder, evaluation=other)


@forgery("measured_by")
def suite_set_to_protocol(folder, id):
    change(folder, only="", suite="protocol", protocol="architectures/cifar v1")


@forgery("analysis")
def suite_set_to_analysis(folder, id):
    change(folder, only="", suite="analysis")


@forgery("verdicts")
def suite_set_to_reported(folder, id):
    lines = lines_of(folder)
    write_lines(folder, [{**line, "suite": "reported", "value": 0.9} for line in lines])


@forgery("no verdict file", "autoattack-0123456789ab")
def line_without_evidence(folder, id):
    forged = {**lines_of(folder)[-1], "evaluation": "autoattack-0123456789ab", "suite": "autoattack", "value": 0.9}
    forged["verdicts"] = "verdicts/autoattack-0123456789ab.parquet"
    write_lines(folder, [*lines_of(folder), forged])


@forgery("line", "linf:0.2")
def line_without_verdicts(folder, id):
    forged = {**lines_of(folder)[-1], "threat": "linf:0.2", "verdicts": None}
    write_lines(folder, [*lines_of(folder), forged])


@forgery("line", "linf:0.05")
def line_added_to_an_evaluation(folder, id):
    write_lines(folder, [*lines_of(folder), {**lines_of(folder)[-1], "threat": "linf:0.05"}])
    drop_record(folder)


@forgery("second line")
def line_repeated(folder, id):
    write_lines(folder, [*lines_of(folder), lines_of(folder)[-1]])


@forgery("line")
def line_removed(folder, id):
    write_lines(folder, [line for line in lines_of(folder) if line["metric"] != "clean_accuracy"])


@forgery("extra.broken_by")
def counts_of_attacks_changed(folder, id):
    change_extra(folder, broken_by={"square linf:0.1": 1})
    drop_record(folder)


@forgery("extra.forwards")
def passes_changed(folder, id):
    change_extra(folder, forwards=10**9)
    reseal(folder, id)


@forgery("extra.per_class")
def classes_changed(folder, id):
    lines = lines_of(folder)
    for line in lines:
        line["extra"]["per_class"]["right"] = line["extra"]["per_class"]["n"]
    write_lines(folder, lines)
    drop_record(folder)


@forgery("extra.parameters")
def parameters_changed(folder, id):
    change_extra(folder, parameters=1)
    drop_record(folder)


@forgery("extra.certified")
def field_added(folder, id):
    change_extra(folder, certified=0.99)
    drop_record(folder)


def audit_of(folder):
    return next(line["extra"]["audit"] for line in lines_of(folder))


@forgery("extra.audit")
def audit_removed(folder, id):
    lines = lines_of(folder)
    for line in lines:
        del line["extra"]["audit"]
    write_lines(folder, lines)
    record = read_evidence(folder, id)
    extra = {name: value for name, value in record.common["extra"].items() if name != "audit"}
    reseal(folder, id, common={**record.common, "extra": extra})


@forgery("extra.audit.linf:0.1.survivors")
def audit_of_more_images_claimed(folder, id):
    change_extra(folder, audit=[{**audit_of(folder)[0], "survivors": 5000, "sample": 64}])
    reseal(folder, id)


@forgery("extra.audit.linf:0.1.attacks")
def audit_by_square_claimed(folder, id):
    audit = {**audit_of(folder)[0], "attacks": ["square"], "confidence": 0.95, "at_most": 0, "bound": 0.0}
    change_extra(folder, audit=[audit])
    drop_record(folder)


@forgery("seconds")
def time_of_one_line_changed(folder, id):
    change(folder, seconds=0.001)


@forgery("value: stored twice")
def field_given_twice(folder, id):
    """A reader that takes the first of two sees 99 %, hardtack the last."""
    text = (folder / "results.jsonl").read_text()
    (folder / "results.jsonl").write_text(text.replace('{"metric": "robust', '{"value": 0.99, "metric": "robust'))


@forgery("device", "H100")
def device_changed(folder, id):
    change(folder, only="", device="NVIDIA H100")


@forgery("versions")
def versions_changed(folder, id):
    change(folder, only="", versions={"hardtack": "9.9"})


# ---------------------------------------------------------------- verdict files


@forgery("robust", "adversarial image")
def verdicts_set_robust(folder, id):
    """All verdicts robust, every number and digest recomputed, while the adversarial images lie beside them."""
    columns = verdicts_of(folder, id)
    set_robust(columns, broken_rows(columns))
    write_columns(folder, id, columns)
    renumber(folder, id)
    reseal(folder, id)


@forgery("robust", "adversarial image")
def one_verdict_set_robust(folder, id):
    columns = verdicts_of(folder, id)
    set_robust(columns, broken_rows(columns)[:1])
    write_columns(folder, id, columns)
    renumber(folder, id)
    reseal(folder, id)


@forgery("clean_prediction")
def clean_predictions_set_correct(folder, id):
    columns = verdicts_of(folder, id)
    assert not columns["clean_correct"].all()
    columns["clean_prediction"] = columns["label"].copy()
    columns["clean_correct"][:] = True
    for name in [name for name in columns if name == "robust" or name.startswith("robust@")]:
        columns[name] |= np.array([by is None for by in columns["broken_by"]])
    write_columns(folder, id, columns)
    renumber(folder, id)
    reseal(folder, id)


@forgery("label")
def labels_changed(folder, id):
    columns = verdicts_of(folder, id)
    wrong = ~columns["clean_correct"]
    columns["label"][wrong] = columns["clean_prediction"][wrong]
    columns["clean_correct"][:] = True
    for name in [name for name in columns if name == "robust" or name.startswith("robust@")]:
        columns[name] |= np.array([by is None for by in columns["broken_by"]])
    write_columns(folder, id, columns)
    renumber(folder, id)
    reseal(folder, id)


@forgery("images")
def hard_images_left_out(folder, id):
    columns = verdicts_of(folder, id)
    kept = columns["robust"]
    write_columns(folder, id, {name: value[kept] for name, value in columns.items()})
    for path in (folder / "adversarial" / id).glob("*.npz"):
        path.unlink()
    change(folder, only="", n=int(kept.sum()))
    renumber(folder, id)
    reseal(folder, id)


@forgery("index")
def rows_of_other_images(folder, id):
    columns = verdicts_of(folder, id)
    columns["index"] += 1000
    write_columns(folder, id, columns)
    for path in (folder / "adversarial" / id).glob("*.npz"):
        arrays = read_arrays(path)
        write_arrays(path, {**arrays, "index": arrays["index"] + 1000})
    reseal(folder, id)


@forgery("twice")
def rows_repeated(folder, id):
    columns = verdicts_of(folder, id)
    rows = np.concatenate([np.flatnonzero(columns["robust"])] * 3 + [np.arange(len(columns["index"]))])
    write_columns(folder, id, {name: value[rows] for name, value in columns.items()})
    renumber(folder, id)
    change(folder, only="", n=len(rows))
    reseal(folder, id)


@forgery("clean_certainty")
def certainties_changed(folder, id):
    columns = verdicts_of(folder, id)
    columns["clean_certainty"][:] = 0.999
    write_columns(folder, id, columns)
    reseal(folder, id)


@forgery("size")
def sizes_of_perturbations_changed(folder, id):
    columns = verdicts_of(folder, id)
    columns["size"][broken_rows(columns)] = 0.001
    write_columns(folder, id, columns)
    reseal(folder, id)


@forgery("adversarial_prediction")
def adversarial_predictions_changed(folder, id):
    columns = verdicts_of(folder, id)
    rows = broken_rows(columns)
    columns["adversarial_prediction"][rows] = (columns["label"][rows] + columns["adversarial_prediction"][rows]) % 4
    write_columns(folder, id, columns)
    reseal(folder, id)


@forgery("digest")
def verdicts_changed_without_reseal(folder, id):
    columns = verdicts_of(folder, id)
    columns["forwards"] = columns["forwards"][::-1].copy()
    columns["forwards"][0] += 1
    columns["forwards"][1] -= 1
    write_columns(folder, id, columns)


# ---------------------------------------------------------------- stored images


@forgery("adversarial", "changed since")
def images_changed_without_reseal(folder, id):
    path = images_of(folder, id)
    arrays = read_arrays(path)
    arrays["x_adv"][0] = np.nextafter(arrays["x_adv"][0], np.float32(0.5))
    write_arrays(path, arrays)


@forgery("outside the ball")
def images_outside_the_threat(folder, id):
    path = images_of(folder, id)
    arrays = read_arrays(path)
    arrays["x_adv"][:1] = 1 - arrays["x_adv"][:1]
    write_arrays(path, arrays)
    reseal(folder, id)


@forgery("not on disk")
def images_removed(folder, id):
    images_of(folder, id).unlink()
    reseal(folder, id)


@forgery("robust", "adversarial image")
def images_of_robust_rows_added(folder, id):
    columns = verdicts_of(folder, id)
    row = np.flatnonzero(columns["robust"])[0]
    path = images_of(folder, id)
    arrays = read_arrays(path)
    arrays["index"] = np.append(arrays["index"], columns["index"][row])
    arrays["threat"] = np.append(arrays["threat"], arrays["threat"][0])
    arrays["x_adv"] = np.concatenate([arrays["x_adv"], arrays["x_adv"][:1]])
    write_arrays(path, arrays)
    reseal(folder, id)


@forgery("example")
def examples_changed(folder, id):
    path = folder / "examples" / f"{id}.npz"
    arrays = read_arrays(path)
    arrays["adversarial_prediction"][:] = arrays["label"]
    write_arrays(path, arrays)
    reseal(folder, id, examples=file_digest(path))


# ---------------------------------------------------------------- the record


@forgery("evidence.digest")
def record_edited(folder, id):
    path = folder / "evidence" / f"{id}.json"
    path.write_text(path.read_text().replace('"keep": true', '"keep": false'))


@forgery("evaluation")
def facts_of_the_record_changed(folder, id):
    record = read_evidence(folder, id)
    reseal(folder, id, facts={**record.facts, "seed": 5})


@forgery("evaluation")
def weights_of_the_record_changed(folder, id):
    record = read_evidence(folder, id)
    reseal(folder, id, facts={**record.facts, "weights": "0" * 64})
