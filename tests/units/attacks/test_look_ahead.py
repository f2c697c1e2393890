"""Square with several proposals of each image in one pass: everything must be as if they had been made in turn.

The network sums row by row, so its numbers do not depend on the batch, and equal means equal to the last bit.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hardtack.attacks import square as square_module
from hardtack.attacks.autoattack import audit_stages
from hardtack.attacks.pool.attempts import AttackInputs, AttemptRecord
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.search import NewItems
from hardtack.attacks.pool.slots import Slots
from hardtack.attacks.pool.verifier import Verifier
from hardtack.attacks.square import Square
from hardtack.base.runtime import Runtime
from hardtack.threats import Threat
from row_models import Rows, row_pair

CPU = Runtime(device="cpu", compile=False)
THREATS = ("linf:0.05", "l2:0.25", "l1:1.2")
every_threat = pytest.mark.parametrize("threat", THREATS)
AHEAD = (2, 4, 8)


def inputs_for(model, count=24):
    x, y = row_pair(model, count)
    return AttackInputs(x, y, torch.arange(count) * 31 + 100, model(x))


def search(threat, **settings):
    return Square(threat=threat, **{"steps": 60, "restarts": 2, "p_init": 0.4, **settings})


def make_pool(size, ahead, model=None, verifier=None, every=2):
    model = model or Rows(rough=0.5)
    return Pool(model, CPU, size, verifier or Verifier(model, CPU), every=every, ahead=ahead)


def differences(one, other):
    """The names of all entries in which two records differ; of a broken image its successful attempt decides."""
    counted = [record.passes * record._counted() for record in (one, other)]
    names = [name for name in ("successful", "found_at_step", "target") if (vars(one)[name] != vars(other)[name]).any()]
    names += ["passes"] * bool((counted[0] != counted[1]).any())
    names += [name for name in ("x_adv", "margin", "logits") if not torch.equal(vars(one)[name], vars(other)[name])]
    stand = torch.as_tensor(~one.broken)
    signs = ("first_loss", "top_loss", "score", "not_finite", "unverified")
    return names + [name for name in signs if not torch.equal(vars(one)[name][stand], vars(other)[name][stand])]


# ---------------------------------------------------------------- the same records


@every_threat
@pytest.mark.parametrize("ahead", AHEAD)
def test_proposals_made_at_once_give_the_record_of_proposals_made_in_turn(threat, ahead):
    images = inputs_for(Rows(rough=0.5))
    reference = make_pool(24, 1).run(search(threat), images)
    middle = (reference.found_at_step > 0) & (reference.found_at_step < 55)
    assert middle.any() and not reference.broken.all(), "images are broken in the middle, and some not at all"
    for size in (5, 24, 400):  # waiting for slots; no room to look ahead at first; more room than is needed
        ours = make_pool(size, ahead)
        assert not differences(reference, ours.run(search(threat), images)), size
    assert ours.slot_passes > ours.spent.forwards > 0, "discarded proposals were evaluated, but are not counted"


@every_threat
def test_one_step_after_the_other_the_state_is_that_of_the_sequence(threat):
    """Pass by pass: best image, margin and number of queries are those of the same query of the sequence."""
    model, attack = Rows(rough=0.5), search(threat)
    images = inputs_for(model)
    state = begun(attack, images)
    sequence = [state]
    for _ in range(61):
        sequence.append(sequence[-1] | attack.advance(model, sequence[-1]))
    drawn, passes, improved = attack.draw(state, 61), 0, 0
    while not state["done"].all():
        before = state["t"]
        state = state | attack.advance_ahead(model, state, drawn, ahead=4, interval=10_000)
        passes += 1
        for row, t in enumerate(state["t"].tolist()):
            for name in ("best", "best_margin", "closest", "margin", "logits", "found_at", "top_loss", "not_finite"):
                assert torch.equal(state[name][row], sequence[t][name][row]), (name, row, t)
        improved += int(((state["t"] - before < 4) & ~state["done"]).sum())
    assert improved > 24 and 61 / 4 <= passes < 61, "groups end early where a proposal improves the image"


def begun(attack, images):
    n = len(images.x)
    zeros, never = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.bool)
    return attack.begin(
        NewItems(
            x=images.x, y=images.y, target=zeros - 1, keys=images.keys, image_keys=images.keys, restart=zeros,
            steps=zeros + attack.steps, clean=images.clean, start=images.x, warm=never,
        )
    )  # fmt: skip


class Lenient(nn.Module):
    """A search in low precision: sees successes a little before the verifier does."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        logits = self.model(x)
        return logits - 0.4 * nn.functional.one_hot(logits.argmax(dim=1), logits.shape[1])


@every_threat
@pytest.mark.parametrize("ahead", AHEAD)
def test_claims_that_the_verifier_refuses(threat, ahead):
    """After a refusal any image may become the closest, also one that is no improvement."""
    model = Rows(rough=0.5)
    images = inputs_for(model)
    records = [make_pool(400, k, Lenient(model), Verifier(model, CPU)).run(search(threat), images) for k in (1, ahead)]
    assert records[0].unverified.any() and records[0].broken.any() and not records[0].broken.all()
    assert not differences(*records)


class Stop(Exception):
    pass


class Impatient:
    """A clock on which every look is worth telling."""

    now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now


@every_threat
@pytest.mark.parametrize("sizes", [(5, 400), (400, 7), (400, 400)])
def test_a_killed_run_ends_with_the_same_record(monkeypatch, threat, sizes):
    images, attack = inputs_for(Rows(rough=0.5)), search(threat)
    reference = make_pool(24, 1).run(attack, images)
    monkeypatch.setattr("hardtack.attacks.pool.pool.time", Impatient())
    stopped = 0
    for moment in (1, 3, 6):
        notes = []

        def tell(progress, notes=notes, moment=moment):
            notes.append({name: np.array(value) for name, value in progress.record.arrays().items()})
            if len(notes) == moment:
                raise Stop

        try:
            make_pool(sizes[0], 4).run(attack, images, tell=tell)
        except Stop:
            record = AttemptRecord(images, 2)
            record.restore(notes[-1])
            assert not differences(reference, make_pool(sizes[1], 8).run(attack, images, record=record))
            stopped += 1
    assert stopped >= 2


def test_memory_that_runs_out_changes_nothing():
    class Small(Rows):
        refused = 0

        def forward(self, x):
            if len(x) > 50:
                Small.refused += 1
                raise torch.OutOfMemoryError("CUDA out of memory (not really)")
            return super().forward(x)

    images, attack = inputs_for(Rows(rough=0.5)), search("linf:0.05")
    ours = make_pool(200, 8, Small(rough=0.5), Verifier(Rows(rough=0.5), CPU))
    assert not differences(make_pool(24, 1).run(attack, images), ours.run(attack, images))
    assert Small.refused and ours.batch_size <= 50


# ---------------------------------------------------------------- faults that must show


def accept_the_last_improvement(patch):
    honest = square_module._count

    def count(state, query, margins, interval):
        improves = margins > state["best_margin"][:, None]
        later = improves.flip(1).cumsum(dim=1).flip(1) - improves.long()
        last = torch.where(
            improves.any(dim=1, keepdim=True) & (later > 0), True, honest(state, query, margins, interval)
        )
        return last | improves

    patch.setattr(square_module, "_count", count)


def accept_the_best_of_the_group(patch):
    patch.setattr(
        square_module, "_count", lambda state, query, margins, interval: query <= state["steps"][:, None]
    )  # all proposals count, whatever came before them


def discarded_queries_are_not_proposed_again(patch):
    honest = Square.advance_ahead

    def advance(self, model, state, drawn, *, ahead, interval):
        made = honest(self, model, state, drawn, ahead=ahead, interval=interval)
        return made | {"t": torch.minimum(state["t"] + ahead, state["steps"] + 1)}

    patch.setattr(Square, "advance_ahead", advance)


def claims_go_beyond_the_check(patch):
    honest = square_module._count
    patch.setattr(square_module, "_count", lambda state, query, margins, interval: honest(state, query, margins, 10**6))


def random_numbers_of_the_pass_instead_of_the_query(patch):
    honest = Square._proposals

    def proposals(self, state, drawn, query):
        return honest(self, state, drawn, torch.where(query > 0, drawn["since"][:, None] + query % 2, query))

    patch.setattr(Square, "_proposals", proposals)


FAULTS = (
    accept_the_last_improvement,
    accept_the_best_of_the_group,
    discarded_queries_are_not_proposed_again,
    claims_go_beyond_the_check,
    random_numbers_of_the_pass_instead_of_the_query,
)


@every_threat
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_changes_the_record(monkeypatch, threat, fault):
    model = Rows(rough=0.5)
    images = inputs_for(model)
    reference = make_pool(24, 1, model).run(search(threat), images)
    fault(monkeypatch)
    assert differences(reference, make_pool(400, 4, model).run(search(threat), images))


# ---------------------------------------------------------------- what is spent


def test_fewer_passes_through_the_model():
    class Counting(Rows):
        calls = 0

        def forward(self, x):
            Counting.calls += 1
            return super().forward(x)

    images, spent = inputs_for(Rows(rough=0.1)), {}
    for ahead in (1, 8):
        Counting.calls = 0
        model = Counting(rough=0.1)
        record = make_pool(200, ahead, model, Verifier(Rows(rough=0.1), CPU)).run(
            search("linf:0.02", steps=400, restarts=1), images
        )
        spent[ahead] = Counting.calls
        assert (record.passes[~record.broken] == 401).all(), "the number of official queries"
    assert spent[8] < spent[1] / 2


@pytest.mark.parametrize(("width", "ahead"), [(400, 1), (256, 2), (100, 4), (64, 8), (1, 8)])
def test_how_far_it_looks_ahead_is_what_fills_the_free_slots(width, ahead):
    slots = Slots(search("linf:0.05"), Rows(), CPU, None, most=512, interval=25, ahead=8)
    slots.width = width
    assert slots.ahead == ahead


def test_a_cpu_makes_one_proposal_at_a_time():
    model = Rows(rough=0.5)
    pools = [Pool(model, CPU, 400, Verifier(model, CPU), every=2, ahead=ahead) for ahead in (None, 1, 2)]
    for one in pools:
        one.run(search("linf:0.05", restarts=1), inputs_for(model))
    assert pools[0].slot_passes == pools[1].slot_passes < pools[2].slot_passes


class Launches(TorchDispatchMode):
    """Counts operations that would be kernels on a GPU."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        self.count += not function.is_view and name not in ("_unsafe_view", "scalar_tensor", "detach", "lift_fresh")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("threat", "most"), [("linf:0.05", 55), ("l2:0.25", 90)])
def test_a_query_is_few_kernels(threat, most):
    """On a GPU each small kernel costs 2 µs: of 180 of them in a query, most drew random numbers one by one."""
    model, attack = Rows(), search(threat)
    state = begun(attack, inputs_for(model))
    drawn = attack.draw(state, 25)
    with Launches() as launches:
        attack.advance_ahead(model, state, drawn, ahead=1, interval=25)
    assert launches.count <= most


@pytest.mark.parametrize(
    ("settings", "most"), [({}, 8), ({"rescale": True, "steps": 300}, 2), ({"steps": 300}, 8), ({"rescale": True}, 8)]
)
def test_few_proposals_are_made_at_once_where_many_are_accepted(settings, most):
    """A short timetable has small windows early: three proposals in ten improve the image, and later ones are lost."""
    attack = Square(**{"threat": Threat.parse("linf:0.05"), **settings})
    assert attack.most_ahead == most
    slots = Slots(attack, Rows(), CPU, None, most=512, interval=25, ahead=attack.most_ahead)
    slots.width = 16
    assert slots.ahead == most


def test_the_audit_looks_two_proposals_ahead():
    square = audit_stages(Threat.parse("linf:8/255"))[0].attack
    assert isinstance(square, Square) and square.most_ahead == 2
