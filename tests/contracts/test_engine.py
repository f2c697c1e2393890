"""The engine keeps its word, with a toy job: whatever happens on the way, the result is the same to the bit."""

import itertools
import threading

import numpy as np
import pytest

from hardtack.base.arrays import read_arrays, read_columns, write_arrays, write_columns
from hardtack.base.errors import UserError
from hardtack.base.registry import executors
from hardtack.engine import Executor, Job, MemoryStore, PieceResult, PieceStore, Span, job_id, missing_spans, run_job
from hardtack.engine.executors import run_pieces

TOTAL, SIZE, EXAMPLES = 23, 4, 6
SETTINGS = {"power": 2}


class Killed(Exception):
    """Stands for the end of the process."""


class Powers(Job):
    """Row i has the value i ** power; a piece takes three steps and notes each of them."""

    title, total = "powers", TOTAL

    def __init__(self, folder=None, *, size=SIZE, kill_after=None, kill_inside=None, power=2, id=None):
        self.size, self.power, self.folder = size, power, folder
        self.kill_after, self.kill_inside = kill_after, kill_inside
        self.id = id or job_id("powers", [{"power": power}])
        self.store = MemoryStore() if folder is None else PieceStore(folder, self.id)
        self.computed, self.steps, self.recalled = [], 0, False

    def recall(self):
        path = None if self.folder is None else self.folder / f"{self.id}.parquet"
        self.recalled = path is not None and path.exists()
        return read_columns(path) if self.recalled else None

    def piece_size(self, most):
        return self.size

    def inputs(self, spans):
        return (np.arange(*span) for span in spans)

    def run(self, span, inputs, *, notebook, meter):
        if self.kill_after is not None and len(self.computed) >= self.kill_after:
            raise Killed
        done = notebook.read() if notebook is not None else None
        values, step = (np.ones_like(inputs), 0) if done is None else (done["values"], int(done["step"]))
        while step < 3:
            values, step = values * inputs ** (self.power if step == 0 else 0), step + 1
            self.steps += 1
            if notebook is not None:
                notebook.write({"values": values, "step": np.array(step)})
            if self.kill_inside == (len(self.computed), step):
                raise Killed
        self.computed.append(span)
        wanted = max(0, min(EXAMPLES - span.start, span.rows))
        arrays = {"picture": np.stack([inputs, inputs], axis=1)[:wanted]} if wanted else {}
        names = np.array([f"row {i}" if i % 2 else None for i in inputs], dtype=object)
        files = {f"kept/{span.start:08d}.npz": {"index": inputs}, f"kept/{span.start:08d}.txt": b"done"}
        return PieceResult(columns={"row": inputs, "value": values, "name": names}, arrays=arrays, files=files)

    def finish(self, columns, arrays, *, is_main):
        if self.folder is not None and is_main:
            write_arrays(self.folder / f"{self.id}.npz", arrays)
            write_columns(self.folder / f"{self.id}.parquet", columns)
        self.arrays = arrays
        return columns


def run(job, executor=None):
    return run_job(job, store=job.store, executor=executor or Executor(), quiet=True)


def check(columns, arrays=None, power=2):
    assert columns["row"].tolist() == list(range(TOTAL))
    assert columns["value"].tolist() == [i**power for i in range(TOTAL)]
    assert columns["name"].tolist() == [f"row {i}" if i % 2 else None for i in range(TOTAL)]
    if arrays is not None:
        assert arrays["picture"].tolist() == [[i, i] for i in range(EXAMPLES)]


def test_in_memory_and_on_disk_give_the_same(tmp_path):
    memory, disk = Powers(), Powers(tmp_path)
    check(run(memory), memory.arrays)
    check(run(disk), disk.arrays)
    assert not disk.store.folder.exists(), "the pieces go when the final files are there"
    assert sorted(path.name for path in (tmp_path / "kept").iterdir())[:2] == ["00000000.npz", "00000000.txt"]


def test_a_finished_job_is_recalled(tmp_path):
    run(Powers(tmp_path))
    again = Powers(tmp_path)
    check(run(again))
    assert again.recalled and not again.computed


@pytest.mark.parametrize("pieces", range(7))
def test_killed_after_any_piece_it_goes_on_there(tmp_path, pieces):
    first = Powers(tmp_path, kill_after=pieces)
    if pieces < 6:
        with pytest.raises(Killed):
            run(first)
    else:
        run(first)
    rest = Powers(tmp_path)
    check(run(rest))
    assert len(first.computed) + len(rest.computed) == 6, "no piece was computed twice"


@pytest.mark.parametrize("piece, step", [*itertools.product((0, 2, 5), (1, 2, 3))])
def test_killed_inside_a_piece_it_goes_on_from_its_notes(tmp_path, piece, step):
    first = Powers(tmp_path, kill_inside=(piece, step))
    with pytest.raises(Killed):
        run(first)
    rest = Powers(tmp_path)
    check(run(rest), rest.arrays)
    assert first.steps + rest.steps == 3 * 6, "no step was repeated"


@pytest.mark.parametrize("size", [1, 3, 5, 100])
def test_the_piece_size_may_change_between_calls(tmp_path, size):
    with pytest.raises(Killed):
        run(Powers(tmp_path, kill_inside=(2, 1)))
    rest = Powers(tmp_path, size=size)
    check(run(rest), rest.arrays)
    assert min(span.start for span in rest.computed) == 2 * SIZE, "finished rows were not computed again"


class Rank(Executor):
    """One of several processes, played by a thread."""

    def __init__(self, rank, workers, barrier):
        self.rank, self.workers, self.is_main, self.barrier = rank, workers, rank == 0, barrier

    def wait(self):
        self.barrier.wait(timeout=20)

    def run(self, job, spans, store, *, quiet):
        try:
            run_pieces(job, spans[self.rank :: self.workers], store, quiet=quiet)
        except Killed:
            self.barrier.abort()  # torchrun ends all ranks when one ends
            raise


def run_ranks(tmp_path, workers, **options):
    barrier, jobs, results = threading.Barrier(workers), [Powers(tmp_path, **options) for _ in range(workers)], {}

    def play(rank):
        try:
            results[rank] = run(jobs[rank], Rank(rank, workers, barrier))
        except (Killed, threading.BrokenBarrierError):
            results[rank] = None

    threads = [threading.Thread(target=play, args=(rank,)) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return jobs, results


def test_ranks_join_and_leave(tmp_path):
    """Two ranks are killed, then one goes on alone and is killed, then three finish."""
    two, results = run_ranks(tmp_path, 2, size=2, kill_after=2)
    assert set(results.values()) == {None}
    alone = Powers(tmp_path, size=3, kill_after=1)
    with pytest.raises(Killed):
        run(alone)
    three, results = run_ranks(tmp_path, 3, size=1)
    for columns in results.values():
        check(columns)
    spans = [span for job in (*two, alone, *three) for span in job.computed]
    rows = [row for span in spans for row in range(*span)]
    assert sorted(rows) == list(range(TOTAL)), "every row was computed exactly once"
    assert all(job.computed for job in three), "all ranks took part"


def test_ranks_without_a_common_disk_are_told(tmp_path):
    job = Powers(tmp_path)
    with pytest.raises(UserError, match="the same disk"):
        run(job, Rank(0, 2, threading.Barrier(1)))


def test_pieces_of_version_0_1_0_are_read(tmp_path):
    """Files named by their first row only, and the notes of a chunk."""
    job = Powers(tmp_path)
    for start in (0, 4):
        rows = np.arange(start, start + 4)
        names = np.array([f"row {i}" if i % 2 else None for i in rows], dtype=object)
        wanted = max(0, EXAMPLES - start)
        write_arrays(job.store.folder / f"{start:08d}.npz", {"picture": np.stack([rows, rows], 1)[:wanted]})
        columns = {"row": rows, "value": rows**2, "name": names}
        write_columns(job.store.folder / f"{start:08d}.parquet", columns)
    notes = {"values": np.arange(8, 12) ** 2, "step": np.array(1), "length": np.array(4)}
    write_arrays(job.store.folder / "00000008.part", notes)
    assert job.store.spans() == [(0, 4), (4, 8)]
    check(run(job), job.arrays)
    assert job.computed[0] == (8, 12) and job.steps == 3 * 4 - 1, "the notes were used"


def test_analysis_pieces_of_version_0_1_0_are_read(tmp_path):
    store = PieceStore(tmp_path, "jacobian-1", columns=False)
    write_arrays(store.folder / "00000000-00000003.npz", {"norm": np.arange(3)}, compressed=False)
    store.write(Span(3, 5), PieceResult(arrays={"norm": np.arange(3, 5)}))
    assert store.spans() == [(0, 3), (3, 5)]
    assert store.read()[1]["norm"].tolist() == list(range(5))


def test_two_jobs_share_a_folder(tmp_path):
    with pytest.raises(Killed):
        run(Powers(tmp_path, kill_after=3))
    with pytest.raises(Killed):
        run(Powers(tmp_path, kill_after=2, power=3))
    check(run(Powers(tmp_path, power=3)), power=3)
    rest = Powers(tmp_path)
    check(run(rest))
    assert len(rest.computed) == 3


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_a_damaged_piece_is_named_and_computed_again(tmp_path, capsys, kind):
    with pytest.raises(Killed):
        run(Powers(tmp_path, kill_after=3))
    path = Powers(tmp_path).store.folder / f"00000000-00000004.{kind}"
    path.write_bytes(path.read_bytes()[:-20])
    rest = Powers(tmp_path)
    check(run(rest), rest.arrays)
    assert rest.computed[0] == (0, 4) and len(rest.computed) == 4
    assert "00000000-00000004.parquet is damaged; its rows are computed again" in capsys.readouterr().err


def test_damage_inside_a_piece_is_told_with_what_to_do(tmp_path):
    with pytest.raises(Killed):
        run(Powers(tmp_path, kill_after=5))
    path = Powers(tmp_path).store.folder / "00000004-00000008.npz"
    data = bytearray(path.read_bytes())
    data[60:90] = bytes(30)
    path.write_bytes(data)
    with pytest.raises(UserError, match="only this piece is computed again"):
        run(Powers(tmp_path))
    rest = Powers(tmp_path)
    check(run(rest), rest.arrays)
    assert rest.computed == [(4, 8)]


def test_damaged_notes_are_ignored(tmp_path):
    with pytest.raises(Killed):
        run(Powers(tmp_path, kill_inside=(1, 2)))
    path = Powers(tmp_path).store.folder / "00000004-00000008.part"
    path.write_bytes(path.read_bytes()[:50])
    check(run(Powers(tmp_path)))


def test_half_a_piece_is_not_a_piece(tmp_path):
    """Arrays without their columns, and a temporary file that a crash left."""
    store = Powers(tmp_path).store
    write_arrays(store.folder / "00000000-00000004.npz", {"picture": np.zeros((4, 2))})
    (store.folder / ".00000004-00000008.parquet.x.part").write_bytes(b"cut off")
    assert store.spans() == []
    job = Powers(tmp_path)
    check(run(job), job.arrays)


def test_two_calls_at_once_with_different_piece_sizes(tmp_path):
    """Their pieces overlap on disk; of a row that was computed twice the first piece counts."""
    for size in (3, 5):
        run_pieces(Powers(tmp_path, size=size), missing_spans([], TOTAL, size)[:3], Powers(tmp_path).store, quiet=True)
    rest = Powers(tmp_path)
    check(run(rest), rest.arrays)


def test_the_slower_of_two_calls_finds_the_result_of_the_faster(tmp_path):
    class Slow(Powers):
        def run(self, span, inputs, *, notebook, meter):
            if span.start == 8:
                run(Powers(tmp_path))  # another process finishes meanwhile, and removes the pieces
            return super().run(span, inputs, notebook=notebook, meter=meter)

    slow = Slow(tmp_path)
    check(run(slow))
    assert not slow.store.folder.exists()


def test_an_id_is_a_file_name_and_changes_with_every_fact(tmp_path):
    assert job_id("pgd", [1, {"b": 1, "a": 2}]) == job_id("pgd", [1, {"a": 2, "b": 1}])
    assert job_id("pgd", [1, 2]) != job_id("pgd", [1, 3])
    with pytest.raises(UserError, match="letters"):
        PieceStore(tmp_path, "../../etc")


def test_pieces_of_a_job_have_the_same_columns(tmp_path):
    store = PieceStore(tmp_path, "x")
    store.write(Span(0, 1), PieceResult(columns={"a": np.zeros(1)}))
    store.write(Span(1, 2), PieceResult(columns={"b": np.zeros(1)}))
    with pytest.raises(UserError, match="differ in their columns"):
        store.read()


def test_what_is_missing_is_cut_into_pieces():
    assert missing_spans([], 5, 2) == [(0, 2), (2, 4), (4, 5)]
    assert missing_spans([(1, 3), (2, 4)], 8, 3) == [(0, 1), (4, 7), (7, 8)]
    assert missing_spans([(0, 5)], 5, 2) == []


def test_every_executor_says_what_it_is():
    assert {"here", "torchrun"} <= set(executors.names())
    for entry in executors.entries():
        assert issubclass(entry.make, Executor) and entry.help


def test_written_notes_of_a_piece_go_with_it(tmp_path):
    job = Powers(tmp_path, kill_after=2)
    with pytest.raises(Killed):
        run(job)
    assert not list(job.store.folder.glob("*.part"))
    assert read_arrays(job.store.folder / "00000000-00000004.npz")["picture"].shape == (4, 2)
