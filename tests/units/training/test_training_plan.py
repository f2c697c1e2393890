"""A training run's plan: its arithmetic on a fake clock, what follows from the recipe, and that it leaves no trace."""

import contextlib
import itertools
import json
from pathlib import Path

import pytest
import torch

from fake_instruments import FakeInstruments
from hardtack.attacks.pool.search import Cost
from hardtack.base.errors import UserError
from hardtack.base.instruments import END_S
from hardtack.base.new_kernels import NewKernels
from hardtack.commands.cli import main
from hardtack.commands.plan import plan
from hardtack.commands.recipe_files import is_recipe
from hardtack.commands.recipe_validator import validator_of
from hardtack.training import plan as training_plan
from hardtack.training import rehearsal
from hardtack.training.plan import WITHSTAND, plan_training
from hardtack.training.trainer import Trainer
from tiny_runs import tiny_recipe, write_data

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
PGD = {"name": "pgd", "threat": "linf:0.1", "steps": 3}


def planned(tmp_path, **sections):
    recipe = tiny_recipe(tmp_path / "run", write_data(tmp_path / "data.npz"), **sections)
    return plan_training(recipe, make_validator=validator_of)


# ---------------------------------------------------------------- on a fake clock


class FakeRun:
    """A machine on which every part of a run takes a chosen time and memory."""

    def __init__(self, monkeypatch, tmp_path, *, step, validate=lambda data, hits: 0.0, save_s=0.0, step_mb=None):
        self.instruments = FakeInstruments(start_s=3.0)
        self.images, self.attacks = 200, True
        self.validate, self.validated = validate, 0
        self.tmp_path = tmp_path
        numbers, real_step = itertools.count(1), Trainer.step

        def fake_step(job, batch):
            if batch.x.shape[-1] == 32:  # the network on which passes are counted
                return real_step(job, batch)
            epoch = job.progress.done / job.steps_per_epoch
            attacked = job.objective.radius(epoch).get("eps_share", 0) > 0
            self.instruments.pass_time(*step(next(numbers), len(batch.x), attacked))
            self.instruments.use(step_mb(len(batch.x)) if step_mb else 0.0)
            job.progress.done += 1
            return {"loss": torch.zeros(())}

        monkeypatch.setattr(Trainer, "step", fake_step)
        monkeypatch.setattr(Trainer, "_save", lambda job: self.instruments.pass_time(save_s))

    def labels(self, model, count, *, withstand):
        return count, withstand

    def rehearse(self, model, data):
        self.validated += 1
        self.instruments.pass_time(self.validate(*data) + (7.0 if self.validated == 1 else 0.0))

    def plan(self, **sections):
        recipe = tiny_recipe(self.tmp_path / "run", write_data(self.tmp_path / "data.npz"), **sections)
        return plan_training(recipe, make_validator=lambda recipe: self, instruments=self.instruments)


CLEAN = {"objective": "standard", "train": {"epochs": 5, "batch_size": 8, "log_every": 2}}


def test_slow_first_steps_are_counted_once(monkeypatch, tmp_path):
    """The first step takes 31 s, all later ones 1 s: 20 steps take 50 s, not 620."""
    run = FakeRun(monkeypatch, tmp_path, step=lambda number, width, attacked: (31.0 if number == 1 else 1.0,))
    found = run.plan(**CLEAN, validation={"every": 6})
    assert (found.steps, found.step_s, found.setup_s) == (20, 1.0, 30.0)
    assert found.start_s == 3.0
    assert found.total_s == pytest.approx(3 + 30 + 20 + 7)  # 7: the first validation


def test_kernels_that_the_plan_compiles_are_not_of_the_run(monkeypatch, tmp_path):
    """Of the 30 s that the first step takes beyond others, Triton compiles 25: the run finds its kernels on disk."""
    compiled = iter([NewKernels(25.0, 9), NewKernels(2.0, 1)])  # in steps, in the validation
    monkeypatch.setattr(training_plan, "new_kernels", lambda: contextlib.nullcontext(next(compiled)))
    run = FakeRun(monkeypatch, tmp_path, step=lambda number, width, attacked: (31.0 if number == 1 else 1.0,))
    found = run.plan(**CLEAN, validation={"every": 6})
    assert found.setup_s == pytest.approx(5.0) and found.validation.setup_s == pytest.approx(5.0)
    assert found.total_s == pytest.approx(3 + 5 + 20 + 5)
    assert "kernels were compiled for 27.0 s" in str(found)


def test_recorded_plans_hold_once_new_kernels_and_the_end_are_told_apart():
    """Six plans on an H200 were made before that. Of one, another plan of the same network gives the kernels' share; of
    SAM nothing does, but the truth lies between its plans without and with its first steps."""
    cases = json.loads((RESULTS / "plans_gpu.json").read_text())["cases"]
    parts = {name: case["planned"]["parts"] for name, case in cases.items()}
    kernels = {"train/vit_pgd": parts["train/vit_pgd"]["setup_s"] - parts["train/vit_trades"]["setup_s"]}
    for name, case in cases.items():
        real, planned = case["real"], case["planned"]
        most_s = planned["seconds"] - kernels.get(name, 0.0) + END_S["cuda"]
        if name == "train/vit_sam":
            assert most_s - parts[name]["setup_s"] < real["seconds"] < most_s
        else:
            assert most_s == pytest.approx(real["seconds"], rel=0.25), name
        assert planned["memory_mb"] == pytest.approx(real["memory_mb"], rel=0.25), name


def test_noisy_steps_are_counted_by_their_median_and_noise_is_said(monkeypatch, tmp_path):
    costs = [0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.8, 0.2, 0.5, 0.2, 0.8, 0.2, 0.2, 0.7, 0.2]
    run = FakeRun(monkeypatch, tmp_path, step=lambda number, width, attacked: (costs[number % len(costs)],))
    found = run.plan(**CLEAN, validation={"every": 6})
    assert found.step_s == pytest.approx(0.2) and found.spread > 0.25
    assert "repeated measurements differ by" in str(found)


def test_time_that_the_process_waited_for_a_core_is_not_of_the_run(monkeypatch, tmp_path):
    """Two other processes want each core: a step of 1 s takes 3."""

    def step(number, width, attacked):
        run.instruments.pass_time(1.0, waiting=2.0)
        return (0.0,)

    run = FakeRun(monkeypatch, tmp_path, step=step)
    found = run.plan(**CLEAN, validation={"every": 6})
    assert found.step_s == pytest.approx(1.0)
    text = str(found)
    assert "this machine is busy: this process waited for a core" in text and "an idle machine" in text


def test_clean_epochs_and_attacked_ones_have_their_own_times(monkeypatch, tmp_path):
    """40 of 100 steps are clean at 1 s, 60 attacked at 5 s, and beginning to attack takes 10 s once."""
    attacked_before = []

    def step(number, width, attacked):
        begins = attacked and not attacked_before
        attacked_before.extend([True] * attacked)
        return (10.0 * begins + (5.0 if attacked else 1.0),)

    run = FakeRun(monkeypatch, tmp_path, step=step)
    monkeypatch.setattr(rehearsal.Rehearsal, "_affordable", lambda self, phases: 1000)
    found = run.plan(
        objective={"name": "adversarial", "attack": PGD, "warmup": {"clean": 10, "epochs": 2}},
        train={"epochs": 25, "batch_size": 8}, validation={"every": 30},
    )  # fmt: skip
    assert [timed.phase.steps for timed in found.rehearsed.timed] == [41, 59]  # the radius is 0 in the very step, too
    assert found.training_s == pytest.approx(41 * 1 + 59 * 5) and found.setup_s == pytest.approx(10)
    assert found.passes == ((Cost(0, 0), Cost(1, 1)), (Cost(3, 3), Cost(1, 1)))
    assert "clean" in str(found) and "attacked" in str(found)


def test_validation_counts_with_its_attack(monkeypatch, tmp_path):
    """0.01 s per image that is misclassified from the start, 0.05 s per image that withstands the attack."""
    run = FakeRun(
        monkeypatch, tmp_path, step=lambda number, width, attacked: (1.0,), save_s=0.5,
        validate=lambda count, withstand: count * (0.05 if withstand else 0.01),
    )  # fmt: skip
    found = run.plan(**CLEAN, validation={"every": 2})
    checked = found.validation
    assert (checked.count, checked.images, found.saves) == (3, 200, 3)
    assert checked.least_s == pytest.approx(2) and checked.most_s == pytest.approx(10)
    assert checked.setup_s == pytest.approx(7)
    each = 2 + WITHSTAND * 8
    assert found.validation_s == pytest.approx(7 + 3 * each)
    assert found.total_s == pytest.approx(3 + 20 + 7 + 3 * each + 3 * 0.5)
    assert "13.0 s to 37.0 s" in str(found)


def test_memory_is_the_peak_of_a_whole_batch(monkeypatch, tmp_path):
    run = FakeRun(
        monkeypatch, tmp_path, step=lambda number, width, attacked: (0.1,), step_mb=lambda width: 50 + 2 * width
    )
    assert run.plan(**CLEAN).memory_mb == pytest.approx(100 + 50 + 2 * 8)


def test_a_step_of_minutes_is_extrapolated_from_two_sizes(monkeypatch, tmp_path):
    """A step takes 2 s and 40 s per image, and 20 MB per image: 322 s and 160 MB with 8 images."""
    run = FakeRun(
        monkeypatch, tmp_path, step=lambda number, width, attacked: (2.0 + 40.0 * width,),
        step_mb=lambda width: 20 * width,
    )  # fmt: skip
    monkeypatch.setattr(rehearsal, "PATIENCE_S", 600.0)  # seven images
    found = run.plan(**CLEAN, validation={"every": 6})
    assert found.rehearsed.width == 4
    assert found.step_s == pytest.approx(322) and found.memory_mb == pytest.approx(260)
    assert "steps of 2 and 4 images were tried, and steps of 8 are extrapolated" in str(found)


def test_compiling_in_the_middle_of_a_long_run_is_tried(monkeypatch, tmp_path):
    """Steps take 2 s from CUDA graphs and 1 s compiled; compiling takes 60 s."""
    compiled = []
    run = FakeRun(monkeypatch, tmp_path, step=lambda number, width, attacked: (1.0 if compiled else 2.0,))

    class Later:
        done = False

        def __init__(self, objective, runtime, config, gradient, *, note):
            self.steps = 0
            note("compiled: 2.00 × as fast")

        def after_step(self, current, steps_left, batch):
            self.steps += 1
            if self.steps == 40:
                run.instruments.pass_time(60.0)
                compiled.append(True)
            self.done = self.steps == 68
            return current

    monkeypatch.setattr(rehearsal, "LaterCompilation", Later)
    monkeypatch.setattr(rehearsal.Rehearsal, "_compiles", lambda self, step_s, steps: steps * step_s >= 240)
    sections = {"objective": "standard", "validation": {"every": 1000}}
    long = run.plan(**sections, train={"epochs": 400, "batch_size": 8})
    assert long.step_s == pytest.approx(1.0)
    assert long.rehearsed.compile_s == pytest.approx(60 + 40 * 1.0)  # and 40 steps before it
    assert "compiling blocks" in str(long) and "2.00 × as fast" in str(long)
    compiled.clear()
    assert run.plan(**sections, train={"epochs": 2, "batch_size": 8}).rehearsed.compile_s == 0


# ---------------------------------------------------------------- what follows from the recipe


def test_steps_images_and_validations_follow_from_the_recipe(tmp_path):
    """32 of 40 images are trained on, 8 validate."""
    found = planned(tmp_path, train={"epochs": 5, "batch_size": 6, "accumulate": 2}, validation={"every": 2})
    assert (found.images, found.steps, found.batch_size, found.validation.count) == (32, 25, 6, 3)
    assert found.validation.images == 8 and found.classes == 4 and found.shape == (3, 8, 8)
    assert found.total_s > found.steps * found.step_s > 0
    assert found.memory_mb > 100 and not found.on_gpu, "torch alone takes more"
    text = str(found)
    assert "25" in text and "3 × 8" in text and "in 2 parts" in text and "GPU-hours" not in text


@pytest.mark.parametrize(
    "sections, attack, update",
    [
        ({"objective": "standard"}, Cost(0, 0), Cost(1, 1)),
        ({"objective": {"name": "adversarial", "attack": PGD}}, Cost(3, 3), Cost(1, 1)),
        ({"objective": {"name": "adversarial", "attack": PGD}, "sharpness": "sam"}, Cost(3, 3), Cost(2, 2)),
        ({"objective": {"name": "trades", "attack": PGD, "warmup": {"epochs": 1}}}, Cost(4, 3), Cost(2, 2)),
        ({"objective": "standard", "sharpness": {"name": "awp", "from_epoch": 1}}, Cost(0, 0), Cost(2, 2)),
    ],
)
def test_passes_of_an_image_in_a_step(tmp_path, sections, attack, update):
    """TRADES looks at the clean logits once before it climbs. What starts late is counted in its own phase."""
    found = planned(tmp_path, **sections)
    assert (found.attack, found.update) == (attack, update)


@pytest.mark.parametrize("warmup", [{"epochs": 10}, {"epochs": 10, "hold": "epoch"}])
def test_a_short_run_in_its_warm_up_attacks_if_it_does(tmp_path, warmup):
    """One epoch of a recipe that warms up over ten: its radius is 0 in the first step, or in the whole epoch."""
    objective = {"name": "adversarial", "attack": PGD, "warmup": warmup}
    found = planned(tmp_path, objective=objective, train={"epochs": 1, "batch_size": 4})
    assert found.attack == (Cost(3, 3) if "hold" not in warmup else Cost(0, 0))


def test_free_training_says_that_the_update_attacks(tmp_path):
    found = planned(tmp_path, objective={"name": "free", "threat": "linf:0.1", "replays": 2})
    assert found.steps == 2 * 5 * 2 and "update, which is the attack too" in str(found)


def test_frozen_parameters_and_averages_are_counted(tmp_path):
    whole = planned(tmp_path, train={"epochs": 1, "batch_size": 8})
    part = planned(tmp_path, train={"epochs": 1, "batch_size": 8, "freeze": ["blocks"], "ema": 0.9})
    assert whole.trained == whole.parameters == part.parameters > part.trained > 0
    floats = [3 * whole.parameters + 2 * one.trained for one in (whole, part)]
    assert whole.disk_mb == pytest.approx(floats[0] * 4 / 2**20)
    assert part.disk_mb == pytest.approx((floats[1] + part.parameters) * 4 / 2**20)


def test_nothing_is_written_and_the_random_state_stays(tmp_path):
    before = torch.get_rng_state()
    planned(tmp_path, train={"epochs": 2, "batch_size": 8, "patience": 1})
    assert not (tmp_path / "run").exists() and torch.equal(torch.get_rng_state(), before)


def test_the_least_and_the_most_of_a_validation(tmp_path):
    """Images that the model takes for another class are not attacked; those that withstand take every step."""
    recipe = tiny_recipe(tmp_path / "run", write_data(tmp_path / "data.npz"))
    validator, seen = validator_of(recipe), []
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    model.register_forward_hook(lambda module, given, out: seen.append(len(given[0]) * given[0].requires_grad))
    gradients = []
    for withstand in (False, True):
        seen.clear()
        validator.rehearse(model, validator.labels(model, 8, withstand=withstand))
        gradients.append(sum(seen))
    steps = 10 + 1  # of PGD, and of FGSM beside it
    assert gradients[0] < 8 and gradients[1] - gradients[0] == pytest.approx(8 * steps, abs=8)


def test_the_command_knows_recipes_from_runs(tmp_path, capsys, monkeypatch):
    file = tmp_path / "mine.yaml"
    data = write_data(tmp_path / "data.npz")
    file.write_text(
        f"data: {{name: 'npz:{data}'}}\nmodel: {{name: vit_digits, image_size: 8, options: {{patch_size: 4}}}}\n"
    )
    assert main(["plan", str(file), "train.epochs=3", "train.batch_size=8", "runtime.device=cpu"]) == 0
    assert "plan: mine: vit_digits" in capsys.readouterr().out
    assert is_recipe("digits/trades") and is_recipe("recipes/digits/trades.yaml") and not is_recipe("runs/trades")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits" / "trades").mkdir(parents=True)
    assert not is_recipe("digits/trades"), "a run folder of that name goes first"
    with pytest.raises(UserError, match=r"epoch'.*did you mean 'train\.epochs'"):
        plan(str(file), ["train.epoch=3"])


def test_settings_that_train_need_no_recipe(tmp_path):
    data = write_data(tmp_path / "data.npz")
    model = [f"model.{key}={value}" for key, value in (("name", "vit_digits"), ("image_size", 8))]
    words = [f"data=npz:{data}", *model, "train.batch_size=8", "train.epochs=1", "runtime.device=cpu"]
    assert "passes of an image per step" in str(plan(None, [*words, f"output={tmp_path}/run"]))
