"""What a training run leaves: metrics, the best and the last weights, a state; and what it refuses."""

import copy
import json

import pytest
import torch

import hardtack as ht
import hardtack.data
from hardtack.base.config import plain
from hardtack.base.errors import UserError
from hardtack.data import load_data
from hardtack.models import load_model, read_metadata, rebuild, wrap
from hardtack.training import Trainer
from hardtack.training.checkpoint import load_state
from tiny_runs import Linear, files_below, settings, tiny_recipe, write_data


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data.npz")


def trainer(recipe, validate=None):
    split = load_data(recipe.data, "train")
    model = load_model(recipe.model, num_classes=split.num_classes, image_size=8, seed=recipe.runtime.seed)
    return Trainer(recipe, model, split, validate=validate, quiet=True)


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def train(tmp_path, file, **sections):
    return ht.train(tiny_recipe(tmp_path / "run", file, **sections), quiet=True)


def test_a_run_leaves_exactly_these_files(tmp_path, data):
    folder = train(tmp_path, data)
    weights = {f"checkpoints/{name}.safetensors{end}" for name in ("best", "last") for end in ("", ".sha256")}
    assert files_below(folder) == weights | {"checkpoints/state.pt", "config.yaml", "metrics.jsonl"}


def test_metrics_hold_every_window_and_every_judgement(tmp_path, data):
    """5 steps an epoch, logged every 2 and at the end of an epoch."""
    written = lines(train(tmp_path, data))
    order = [(line["kind"], line["step"]) for line in written]
    one = [("train", 2), ("train", 4), ("train", 5), ("validation", 5)]
    two = [("train", 6), ("train", 8), ("train", 10), ("validation", 10)]
    assert order == one + two
    for line in written:
        wanted = {"epoch", "step", "kind"} | (
            {
                "loss",
                "natural_loss",
                "kl",
                "accuracy",
                "robust_accuracy",
                "gradient_norm",
                "eps",
                "eps_share",
                "lr",
                "images_per_s",
            }
            if line["kind"] == "train"
            else {"clean_accuracy", "robust_accuracy", "fgsm_accuracy", "score"}
        )
        assert set(line) == wanted
    assert written[2]["epoch"] == 1 and written[0]["epoch"] == pytest.approx(0.4)


def test_a_window_is_the_mean_over_its_steps(tmp_path, data):
    seen = []
    job = trainer(tiny_recipe(tmp_path / "run", data))
    step = job.step

    def recorded(batch):
        parts = step(batch)
        seen.append(parts["loss"].item())
        return parts

    job.step = recorded
    job.fit()
    logged = [line["loss"] for line in lines(tmp_path / "run") if line["kind"] == "train"]
    windows = [seen[0:2], seen[2:4], seen[4:5], seen[5:6], seen[6:8], seen[8:10]]
    assert logged == pytest.approx([sum(w) / len(w) for w in windows], rel=1e-5)


def test_the_best_checkpoint_is_the_one_validation_liked_most(tmp_path, data):
    scores = iter([0.2, 0.9, 0.5, 0.9])
    kept = []

    def validate(model):
        kept.append({key: value.clone() for key, value in model.state_dict().items()})
        return {"score": next(scores)}

    train_section = {"epochs": 4, "batch_size": 6, "ema": 0.9}
    trainer(tiny_recipe(tmp_path / "run", data, train=train_section), validate).fit()
    best = tmp_path / "run" / "checkpoints" / "best.safetensors"
    assert read_metadata(best)["epoch"] == 2, "on a tie the earlier epoch stays"
    assert read_metadata(best)["validation"] == {"score": 0.9} and read_metadata(best)["average"] == "ema"
    for key, value in rebuild(best).state_dict().items():
        assert torch.equal(value, kept[1][key]), "the averaged weights are those judged and those saved"
    assert read_metadata(best.with_name("last.safetensors"))["epoch"] == 4


def test_validation_every_few_epochs_and_always_at_the_end(tmp_path, data):
    folder = train(tmp_path, data, train={"epochs": 5, "batch_size": 16}, validation={"every": 2})
    assert [line["epoch"] for line in lines(folder) if line["kind"] == "validation"] == [2, 4, 5]


def test_without_a_validation_split_the_last_epoch_is_the_best(tmp_path, data):
    section = {"name": f"npz:{data}", "validation": 0, "workers": 0}
    folder = train(tmp_path, data, data=section)
    assert {line["kind"] for line in lines(folder)} == {"train"}
    assert read_metadata(folder / "checkpoints" / "best.safetensors")["epoch"] == 2


def test_the_test_set_is_never_opened_during_training(tmp_path, data, monkeypatch):
    from hardtack.data import mixtures, npz

    splits, arrays = [], []
    load, read = hardtack.data.load_data, npz._array
    for room in (hardtack.data, mixtures):
        noted = lambda config, split, **k: splits.append(split) or load(config, split, **k)  # noqa: E731
        monkeypatch.setattr(room, "load_data", noted)
    monkeypatch.setattr(npz, "_array", lambda path, key: arrays.append(key) or read(path, key))
    train(tmp_path, data)
    assert sorted(splits) == ["train", "validation"]
    assert "x_train" in arrays and "x_test" not in arrays


def test_validation_images_are_not_trained_on(tmp_path, data):
    recipe = tiny_recipe(tmp_path / "run", data)
    seen: set[int] = set()
    job = trainer(recipe)
    step = job.step
    job.step = lambda batch: seen.update(batch.index.tolist()) or step(batch)
    job.fit()
    held = set(load_data(recipe.data, "validation").index.tolist())
    assert len(held) == 8 and seen and not seen & held


def test_validation_scores_are_those_of_an_evaluation(tmp_path, data):
    """The number in the metrics is what anyone measures again on that split with that attack."""
    folder = train(tmp_path, data, train={"epochs": 1, "batch_size": 6})
    (line,) = [line for line in lines(folder) if line["kind"] == "validation"]
    (measured,) = ht.evaluate_run(
        folder, checkpoint="last", split="validation", suite="pgd", threat="linf:0.1", quiet=True,
        attack={"steps": 10}, output=str(tmp_path / "elsewhere"), **{"runtime.seed": 3},
    )  # fmt: skip
    assert line["clean_accuracy"] == measured.clean_accuracy
    assert line["robust_accuracy"] == line["score"] == measured.robust_accuracy


def test_the_caller_s_random_state_is_untouched(tmp_path, data):
    torch.manual_seed(11)
    before = torch.get_rng_state()
    train(tmp_path, data)
    assert torch.equal(torch.get_rng_state(), before)


def test_tensorboard_is_written_when_asked(tmp_path, data):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    section = {"epochs": 1, "batch_size": 6, "log_every": 2, "track": "tensorboard"}
    folder = train(tmp_path, data, train=section)
    board = EventAccumulator(str(folder / "tensorboard"))
    board.Reload()
    assert {"train/loss", "validation/score"} <= set(board.Tags()["scalars"])
    logged = [line for line in lines(folder) if line["kind"] == "train"]
    assert [event.step for event in board.Scalars("train/loss")] == [line["step"] for line in logged]
    assert [e.value for e in board.Scalars("train/loss")] == pytest.approx([line["loss"] for line in logged])


# ---------------------------------------------------------------- states that must not be continued


@pytest.mark.parametrize(
    "changed, told",
    [
        ({"runtime": {"device": "cpu", "seed": 4}}, r"runtime\.seed: 3 → 4"),
        ({"optimiser": {"name": "adamw", "lr": 0.02}}, r"optimiser\.lr: 0\.01 → 0\.02"),
        ({"objective": "standard"}, r"objective\.\w+"),
        ({"augment": {}}, r"augment\.crop_padding: 1 → 0"),
    ],
)
def test_another_recipe_is_refused_by_the_key_that_differs(tmp_path, data, changed, told):
    folder = train(tmp_path, data, train={"epochs": 1, "batch_size": 16})
    before = {name: (folder / name).read_bytes() for name in files_below(folder)}
    with pytest.raises(UserError, match=rf"another recipe.*{told}.*output="):
        train(tmp_path, data, train={"epochs": 1, "batch_size": 16}, **changed)
    assert {name: (folder / name).read_bytes() for name in files_below(folder)} == before


@pytest.mark.parametrize("objective", ["standard", "rspc"])
def test_a_state_from_before_a_setting_existed_is_continued(tmp_path, data, objective):
    """States of 0.1.0 have neither data.skip_damaged nor RSPC's fill."""
    recipe = plain(tiny_recipe(tmp_path / "run", data, objective=objective))
    older = copy.deepcopy(recipe)
    del older["data"]["skip_damaged"]
    older["objective"].pop("fill", None)
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    torch.save({"recipe": older}, tmp_path / "run" / "checkpoints" / "state.pt")
    assert load_state(tmp_path / "run", recipe, steps_per_epoch=1) == {"recipe": older}
    if objective == "rspc":
        with pytest.raises(UserError, match=r"objective\.fill: zero → mean"):
            load_state(
                tmp_path / "run", {**recipe, "objective": {**recipe["objective"], "fill": "mean"}}, steps_per_epoch=1
            )


def test_what_does_not_change_the_run_may_differ(tmp_path, data):
    values = settings(tmp_path / "run", data, train={"epochs": 1, "batch_size": 16})
    ht.train(tiny_recipe(tmp_path / "run", data, train=values["train"]), quiet=True)
    free = {"epochs": 1, "batch_size": 16, "log_every": 7, "checkpoint_every_s": 1}
    assert train(tmp_path, data, train=free) == tmp_path / "run"


@pytest.mark.parametrize("content", [b"", b"no state", b"PK\x03\x04 cut off"])
def test_a_damaged_state_is_said_to_be_one(tmp_path, data, content):
    state = tmp_path / "run" / "checkpoints" / "state.pt"
    state.parent.mkdir(parents=True)
    state.write_bytes(content)
    with pytest.raises(UserError, match=r"state\.pt cannot be read"):
        train(tmp_path, data)


def test_a_state_of_something_else_is_said_to_be_one(tmp_path, data):
    state = tmp_path / "run" / "checkpoints" / "state.pt"
    state.parent.mkdir(parents=True)
    torch.save({"model": {}}, state)
    with pytest.raises(UserError, match=r"state\.pt cannot be read"):
        train(tmp_path, data)


def test_a_state_that_would_run_code_is_refused(tmp_path, data):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    state = tmp_path / "run" / "checkpoints" / "state.pt"
    state.parent.mkdir(parents=True)
    torch.save({"recipe": Trap()}, state)
    with pytest.raises(UserError, match="cannot be read"):
        train(tmp_path, data)
    assert not (tmp_path / "sprung").exists()


def test_a_failed_save_leaves_the_old_state_whole(tmp_path, data, monkeypatch):
    from hardtack.training import checkpoint

    folder = train(tmp_path, data, train={"epochs": 1, "batch_size": 16})
    before, names = (folder / checkpoint.STATE).read_bytes(), files_below(folder)

    def full(state, file):
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError):
        checkpoint.save_state(folder, {"done": 1})
    assert (folder / checkpoint.STATE).read_bytes() == before and files_below(folder) == names


# ---------------------------------------------------------------- models that cannot be trained


class Gradless(Linear):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)


class Normed(Linear):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(super().forward(x))


@pytest.mark.parametrize(
    "module, objective, train, told",
    [
        (Gradless(), "standard", {"batch_size": 16}, "the loss has no gradient"),
        (Gradless(), "trades", {"batch_size": 16}, "passes no gradient to its input"),
        (Normed(), "adversarial", {"batch_size": 1}, r"batch norm needs at least two images.*train\.batch_size"),
        (Normed(), "standard", {"batch_size": 2, "accumulate": 2}, r"lower train\.accumulate"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_in_a_line(tmp_path, data, module, objective, train, told):
    recipe = tiny_recipe(tmp_path / "run", data, objective=objective, train={"epochs": 1, **train})
    with pytest.raises(UserError, match=told):
        Trainer(recipe, wrap(module, num_classes=4), load_data(recipe.data, "train"), quiet=True).fit()
