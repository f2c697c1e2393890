"""Run a list of tasks as Slurm job arrays: submit, watch, submit again what was lost.

The queue itself is the memory of this loop. An array's name holds a digest of its tasks, so that a driver that was
killed and is started again finds its arrays in the queue, also one that it had just submitted and not yet written down.
A task is submitted only if it is neither done nor in the queue.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from hardtack.base.errors import UserError
from hardtack.base.files import write_text
from hardtack.base.lock import JobLock
from hardtack.engine.slurm.command import NoAnswerError, submit
from hardtack.engine.slurm.outcome import Outcome, advice, last_words, read_outcome
from hardtack.engine.slurm.queue import QueuedTask, compress, read_queue
from hardtack.engine.slurm.record import add_to_record, read_record
from hardtack.engine.slurm.script import array_script
from hardtack.engine.slurm.settings import SlurmSettings
from hardtack.engine.slurm.task import ARRAY_SIZE, Task, check_folder, log_path, tasks_digest

SETTLE_POLLS = 2  # polls for which a task must have left the queue: files take a while to appear on a shared disk


def run_array(
    tasks: Sequence[Task], settings: SlurmSettings, *, folder: str | Path, title: str,
    is_done: Callable[[Task], bool], tell: Callable[[str], None], poll_s: float = 15.0, launch: Sequence[str] = (),
    prepare: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Return when `is_done` is true for every task; a UserError names the tasks that failed for good.

    `folder` is for scripts, logs and `jobs.json`, on a disk that the compute nodes share. A task that left the queue
    without being done is submitted again, `settings.retries` times at most; one whose command ended with 2, hardtack's
    exit code for a mistake of the user, is not, and ends the call. `tell` gets a line whenever the numbers of tasks
    that wait, run and are done change. Ctrl-C ends the call and leaves the jobs in the queue; the same call finds them.
    `prepare` writes what the tasks read. It is called once the queue is known to hold no other tasks of this folder.
    """
    folder = check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = JobLock(folder / ".driver.lock", title=title)
    lock.acquire()
    watch = _Watch(
        list(tasks), settings, folder=folder, title=title, is_done=is_done, tell=tell, launch=launch, prepare=prepare
    )
    try:
        while not watch.step():
            time.sleep(poll_s)
    except KeyboardInterrupt:
        watch.tell_how_to_stop()
        raise
    finally:
        lock.release()


class _Watch:
    """What the driver knows about its tasks; `step` asks the queue once and does what is to be done."""

    def __init__(
        self, tasks: list[Task], settings: SlurmSettings, *, folder: Path, title: str,
        is_done: Callable[[Task], bool], tell: Callable[[str], None], launch: Sequence[str],
        prepare: Callable[[], None],
    ) -> None:  # fmt: skip
        self.tasks, self.settings, self.folder, self.title, self.launch = tasks, settings, folder, title, launch
        self.is_done, self.tell, self.prepare = is_done, tell, prepare
        self.digest = tasks_digest(tasks, folder)
        self.done: set[int] = set()
        self.failed: dict[int, Outcome] = {}
        self.jobs: dict[int, int] = {}  # by position: the array that a task is, or was last, in
        self.live: dict[int, QueuedTask] = {}
        self.gone = Counter[int]()  # polls since a task left the queue
        self.tries = Counter[int]()
        self.told: object = None
        self.has_begun = False

    def step(self) -> bool:
        """One look at the queue; whether all is over."""
        try:
            rows = read_queue()
        except NoAnswerError as error:
            if not self.has_begun:
                raise  # the user has just typed the command
            self._tell_once(f"{self.title}: {error}; the jobs are not affected, trying again")
            return False
        if not self.has_begun:
            self._refuse_other_tasks(rows)
            self.prepare()
        ended = self._sort(rows)
        missing = [position for position in self._open() if position not in self.live]
        lost = {position: self._outcome(position, ended) for position in missing if position in self.jobs}
        lost = {position: outcome for position, outcome in lost.items() if self._is_settled(position, outcome)}
        self._raise_for_mistake(lost)
        again = self._judge(lost)
        if not self.has_begun and self.live:
            self.tell(f"{self.title}: found {_count(len(self.live))} of an earlier call in the queue; watching on")
        self.has_begun = True
        self._submit([position for position in missing if position not in self.jobs or position in again])
        self._tell_progress()
        if self._open():
            return False
        self._raise_for_failed()
        return True

    # ------------------------------------------------------------ what the queue says

    def _open(self) -> list[int]:
        return [number for number in range(len(self.tasks)) if number not in self.done and number not in self.failed]

    def _sort(self, rows: Sequence[QueuedTask]) -> dict[tuple[int, int], QueuedTask]:
        """Take in which tasks are in the queue and which are done; returns the ended ones by job and position."""
        ours = [row for row in rows if row.digest == self.digest and row.position < len(self.tasks)]
        self.live = {row.position: row for row in ours if not row.has_ended}
        for position, row in self.live.items():
            self.done.discard(position)
            self.jobs[position] = row.job
            self.tries[position] = max(self.tries[position], 1)
            self.gone.pop(position, None)
        # asked after the queue: a task that has left it has written all it will write
        self.done |= {number for number in self._open() if number not in self.live and self.is_done(self.tasks[number])}
        return {(row.job, row.position): row for row in ours if row.has_ended}

    def _outcome(self, position: int, ended: dict[tuple[int, int], QueuedTask]) -> Outcome:
        job = self.jobs[position]
        return read_outcome(self.folder, position, job=job, row=ended.get((job, position)))

    def _is_settled(self, position: int, outcome: Outcome) -> bool:
        self.gone[position] += 1
        return outcome.is_final or self.gone[position] >= SETTLE_POLLS

    def _refuse_other_tasks(self, rows: Sequence[QueuedTask]) -> None:
        """Other tasks submitted from this folder, say of a call with another number of tasks, would do work twice."""
        known = {(entry.job, entry.digest) for entry in read_record(self.folder) if entry.digest != self.digest}
        jobs = sorted({row.job for row in rows if not row.has_ended and (row.job, row.digest) in known})
        if jobs:
            raise UserError(
                f"jobs of an earlier call with other settings are still in the queue for {self.folder}: repeat that "
                f"call, or stop them with `{_scancel(jobs)}`"
            )

    # ------------------------------------------------------------ what to do about it

    def _judge(self, lost: dict[int, Outcome]) -> set[int]:
        """Those of the lost tasks to submit again; the others have failed for good."""
        again = {position for position in lost if self.tries[position] <= self.settings.retries}
        for position in lost.keys() - again:
            self.failed[position] = lost[position]
        for positions, what in ((again, "to be submitted again"), (lost.keys() - again, "given up")):
            if positions:
                kinds = Counter(str(lost[position]) for position in positions)
                reasons = ", ".join(f"{count} × {kind}" for kind, count in kinds.most_common())
                which = f"'{self.tasks[min(positions)].label}'" if len(positions) == 1 else ""
                self.tell(f"{self.title}: {_count(len(positions))} {which} lost ({reasons}); {what}".replace("  ", " "))
        for position in again:
            del self.jobs[position]  # from now on as if never submitted, but for the number of tries
        return again

    def _submit(self, positions: Sequence[int]) -> None:
        for part in sorted({position // ARRAY_SIZE for position in positions}):
            members = [position for position in positions if position // ARRAY_SIZE == part]
            free = self._free()
            if free == 0:
                return
            try:
                self._submit_part(part, members, throttle=free)
            except NoAnswerError as error:  # perhaps it was submitted: the next look at the queue will show
                self._tell_once(f"{self.title}: {error}; trying again")
            except UserError as error:
                if not self.live:
                    raise
                self._tell_once(f"{self.title}: {error}; trying again while other tasks are in the queue")

    def _free(self) -> int | None:
        """How many more tasks may run. The throttle of an array counts only its own tasks, so others are subtracted."""
        return None if self.settings.at_once is None else max(self.settings.at_once - len(self.live), 0)

    def _submit_part(self, part: int, members: Sequence[int], *, throttle: int | None) -> None:
        text = array_script(
            self.tasks, self.settings, folder=self.folder, title=self.title, part=part, launch=self.launch
        )
        script = write_text(self.folder / f"array-{part}.sh", text)
        numbers = compress(position % ARRAY_SIZE for position in members)
        job = submit(script, array=numbers if throttle is None else f"{numbers}%{throttle}")
        for position in members:
            self.jobs[position] = job
            self.live[position] = QueuedTask(job, position, "PENDING", "", self.digest)
            self.tries[position] += 1
            self.gone.pop(position, None)
        add_to_record(self.folder, job=job, digest=self.digest, tasks=compress(members))
        self.tell(f"{self.title}: submitted {_count(len(members))} as job {job}")

    # ------------------------------------------------------------ what to say

    def _tell_progress(self) -> None:
        waiting = [row for row in self.live.values() if row.is_waiting]
        numbers = (len(waiting), len(self.live) - len(waiting), len(self.done), len(self.failed))
        if numbers == self.told:
            return
        self.told = numbers
        reasons = Counter(row.reason for row in waiting if row.reason not in ("", "None"))
        why = f" ({reasons.most_common(1)[0][0]})" if reasons else ""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        done = f"{len(self.done)} of {len(self.tasks)} done"
        self.tell(f"{self.title}: {numbers[0]} pending{why}, {numbers[1]} running, {done}{failed}")

    def _tell_once(self, line: str) -> None:
        if line != self.told:
            self.told = line
            self.tell(line)

    def tell_how_to_stop(self) -> None:
        """After Ctrl-C."""
        jobs = {row.job for row in self.live.values()}
        if jobs:
            self.tell(
                f"{self.title}: {_count(len(self.live))} still in the queue, and the jobs go on: `{_scancel(jobs)}` "
                "stops them, the same command watches them again"
            )

    def _raise_for_mistake(self, lost: dict[int, Outcome]) -> None:
        position = next((position for position, outcome in lost.items() if outcome.is_mistake), None)
        if position is None:
            return
        jobs = {row.job for row in self.live.values()}
        rest = f"; {_count(len(self.live))} still in the queue, `{_scancel(jobs)}` stops them" if jobs else ""
        error = last_words(self.folder, position).removeprefix("hardtack: ")
        raise UserError(f"task '{self.tasks[position].label}': {error} ({log_path(self.folder, position)}){rest}")

    def _raise_for_failed(self) -> None:
        if not self.failed:
            return
        position, outcome = min(self.failed.items())
        more = f", and {len(self.failed) - 1} more" if len(self.failed) > 1 else ""
        raise UserError(
            f"task '{self.tasks[position].label}'{more} failed {self.tries[position]} times, last: {outcome}"
            f"{advice(outcome, self.settings)}: {last_words(self.folder, position)} "
            f"({log_path(self.folder, position)}). What is finished is kept: repeat the command to try again"
        )


def _count(number: int) -> str:
    return "1 task" if number == 1 else f"{number} tasks"


def _scancel(jobs: Sequence[int] | set[int]) -> str:
    return f"scancel {' '.join(str(job) for job in sorted(jobs))}"
