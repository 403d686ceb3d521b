"""Faults: memory, disk, clock, time and people fail; nothing that was committed is lost, and one sentence tells why."""

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import torch
from networks import small_cnn
from test_bench_engine import StandIn, notes, unit
from test_bench_engine import context as context_of
from test_bench_run import FEI, RESULTS, SALIENCY, call, make_plan, paint, table
from torch import nn
from waiting import PATIENCE

from fei.bench import LocalEngine, Store, Unit, run
from fei.bench import context as _context
from fei.bench.engine import runner
from fei.bench.engine._memory import out_of_memory
from fei.bench.engine._pool import Ending, Member, Pool
from fei.bench.store import _schema
from fei.cli import main
from fei.errors import InputError, ModelError

pytestmark = pytest.mark.slow

posix = pytest.mark.skipif(sys.platform == "win32", reason="presses Ctrl-C by signals")
RISE = {"name": "rise", "options": {"samples": 16}}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return paint(tmp_path_factory.mktemp("photos"), 4)


@pytest.fixture(scope="module")
def undisturbed(photos, tmp_path_factory):
    """A run in which nothing went wrong."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    call(run, plan_of(photos), folder)
    return folder


def plan_of(photos, **options):
    return make_plan(photos, [FEI, SALIENCY], **options)


@pytest.fixture
def at_once(monkeypatch):
    """Each outcome is committed as it comes."""
    monkeypatch.setattr(runner, "_SECONDS", 0.0)
    monkeypatch.setattr(runner, "_SHARE", 1.0)


# Memory


class Narrow(nn.Module):
    """Has memory for so many rows, and asks for more than there is on earth for others."""

    def forward(self, x):
        if len(x) > int(os.environ.get("FEI_TEST_ROWS", "1000")):
            torch.empty(2**60)
        return x


def narrow():
    network = nn.Sequential(Narrow(), *small_cnn()).eval()
    network.input_size = 24
    return network


def test_where_memory_runs_out_the_batch_is_halved_and_the_unit_goes_on(photos, tmp_path, monkeypatch):
    def plan_with(end=""):
        return make_plan(photos, [FEI, SALIENCY, RISE], end=end, model=f"{__file__}:narrow")

    call(run, plan_with("[metrics]\nbatch_size = 2\n"), tmp_path / "small batches")
    monkeypatch.setenv("FEI_TEST_ROWS", "2")
    with pytest.warns(UserWarning, match="Memory ran out") as told:
        summary = call(run, plan_with(), tmp_path / "narrow")
    assert (summary.done, summary.failed) == (12, 0)
    (line,) = [str(warning.message) for warning in told]  # once, not for each unit
    assert line.startswith("Memory ran out, first with the method 'fei-vm' on '0.png'; the run goes on with fewer rows")
    with Store.open(tmp_path / "narrow", readonly=True) as store:
        rows = {row["method"]: row["value"] for row in store.results() if row["metric"] == "batch_rows"}
    assert rows == {"fei-vm": 2, "saliency": 2, "rise": 2}  # 5 masks, 1 row, 8 rows; the scores 8, 4, 2
    # saliency needs one row: with scores of the same batches it is the same to the bit
    of_saliency = [
        [row for row in table(tmp_path / name) if row[1] == "saliency" and row[5] != "batch_rows"]
        for name in ("small batches", "narrow")
    ]
    assert of_saliency[0] == of_saliency[1] != []


def test_no_memory_for_a_single_row_is_one_sentence(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(Narrow, "forward", lambda self, x: x if x.requires_grad or len(x) == 1 else torch.empty(2**60))
    summary = call(run, make_plan(photos / "1.png", [SALIENCY], model=f"{__file__}:narrow"), tmp_path)
    assert summary.failed == 0  # the map needs a row, and the scores go down to it
    with monkeypatch.context() as patch:
        patch.setattr("fei.methods.gradients.Saliency.maps", lambda *_: torch.empty(2**60))
        summary = call(run, make_plan(photos / "2.png", [SALIENCY], model=f"{__file__}:narrow"), tmp_path / "other")
    assert summary.failed == 1
    with Store.open(tmp_path / "other", readonly=True) as store:
        (error,) = store.failed().values()
    assert error == "Memory ran out even with one row in a forward pass; use fewer workers, or a machine with more."


def test_what_counts_as_memory():
    def raised(make):
        try:
            make()
        except Exception as error:
            return error

    def wrapped():
        try:
            torch.empty(2**60)
        except RuntimeError as error:
            raise ModelError("the model failed on an input") from error

    assert out_of_memory(raised(lambda: torch.empty(2**60)))
    assert out_of_memory(raised(wrapped))
    assert out_of_memory(MemoryError())
    assert out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


# Time


class Sluggish(StandIn):
    """Loads one of the networks for ever."""

    def prepare(self, pair):
        if pair == 3:
            time.sleep(10 * PATIENCE)
        return super().prepare(pair)


def test_a_worker_runs_nothing_of_the_folder_it_is_started_in(tmp_path, monkeypatch):
    """Python looks for modules there first, until it is told where we look."""
    for name in ("multiprocessing", "encodings"):
        (tmp_path / f"{name}.py").write_text(f"open('ran-{name}', 'w').close()", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (outcome,) = LocalEngine(workers=1, threads=1).run([unit("a")], replace(context_of(tmp_path), retries=0))
    assert outcome.status == "done"
    assert not list(tmp_path.glob("ran-*"))
    assert "PYTHONSAFEPATH" not in os.environ


def test_a_worker_that_hangs_is_ended_and_replaced(tmp_path):
    context = context_of(tmp_path)
    networks = (*context.networks, replace(context.networks[0], model="network 3"))
    context = replace(context, networks=networks, retries=0, unit_timeout=3.0, make=Sluggish)
    units = [unit("a"), unit("sleeps"), unit("b"), unit("c", 3), unit("d", 3)]
    outcomes = {o.item: o for o in LocalEngine(workers=1, threads=1).run(units, context)}
    assert {item: o.status for item, o in outcomes.items()} == {
        **dict.fromkeys("ab", "done"), **dict.fromkeys(["sleeps", "c", "d"], "failed"),
    }  # fmt: skip
    assert outcomes["sleeps"].error == (
        "A worker process ended while it computed this (it took longer than 3 s, the time-out of a unit); allow more "
        "with --unit-timeout."
    )
    told = "A worker process ended while it loaded the network 'network 3' (it took longer than 3 s"
    assert outcomes["c"].error.startswith(told)
    assert sorted(set(notes(tmp_path))) == ["a", "b", "load0", "sleeps"]
    assert notes(tmp_path).count("sleeps") == 1


def test_time_outs_that_cannot_be(photos, tmp_path):
    with pytest.raises(InputError, match="A time-out needs workers that can be ended; compute with at least one"):
        run(plan_of(photos), tmp_path, unit_timeout=5, device="cpu")
    for bad in (0, -1.0, float("inf"), float("nan")):
        with pytest.raises(InputError, match="`unit_timeout` is .*; give a number of seconds above 0"):
            run(plan_of(photos), tmp_path, workers=1, unit_timeout=bad, device="cpu")


def test_a_clock_that_jumps_back_changes_nothing(photos, tmp_path, undisturbed, monkeypatch, at_once):
    class Back(datetime):
        jumps = 0

        @classmethod
        def now(cls, tz=None):
            cls.jumps += 1
            return datetime(2026, 1, 1, tzinfo=tz) - timedelta(days=cls.jumps)

    past = iter(range(10**9, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: float(next(past)))
    monkeypatch.setattr(_context, "datetime", Back)
    monkeypatch.setattr(_schema, "datetime", Back)
    told = []
    summary = call(run, plan_of(photos), tmp_path / "run", on_progress=lambda *facts: told.append(facts))
    assert (summary.done, Back.jumps) >= (8, 8)
    assert [facts[0] for facts in told][:9] == list(range(9))  # committed one after the other
    assert all(facts[3].elapsed >= 0 and facts[3].rate >= 0 for facts in told)
    assert table(tmp_path / "run") == table(undisturbed)


# Machines


class Scripted(Member):
    """A worker to which happens what is said beforehand."""

    orderly = False

    def __init__(self, fate):
        super().__init__()
        self._fate, self._says = fate, [None]

    def send(self, unit):
        self._says += [unit.pair, unit]
        return True

    def said(self):
        while self._says:
            said = self._says.pop(0)
            if isinstance(said, Unit) and self._fate == "lost":
                self.dead = True
                return
            if isinstance(said, Unit) and self._fate == "b kills" and any(unit.item == "b" for unit in self.units):
                self.dead = True  # and the answers before b are lost
                return
            if isinstance(said, Unit) and self._fate == "lacks":
                self.lacks = "The node far away has no file 'a.png'; put it there."
                return
            yield context_of(Path()).outcome(said, "done") if isinstance(said, Unit) else said

    def dismiss(self):
        pass

    def kill(self):
        pass

    def end(self):
        return Ending("its node is gone", lost=self._fate == "lost")


class ScriptedCrew:
    advice = "do something"

    def __init__(self, fates):
        self._fates = iter(fates)

    def recruit(self):
        return Scripted(next(self._fates))

    def listen(self, members, seconds):
        return list(members)


def scripted(fates, workers=1):
    units = [unit(item) for item in "abc"]
    pool = Pool(workers, replace(context_of(Path()), retries=0), ScriptedCrew(fates))
    return {outcome.item: outcome for outcome in pool.run(units)}


def test_a_machine_that_is_lost_is_not_the_units_fault():
    assert {o.status for o in scripted(["lost"] * 5 + ["works"]).values()} == {"done"}
    outcomes = scripted(["lost"] * 6 + ["works"])  # it may be the unit after all
    assert outcomes["a"].error == "Machines were lost while they computed this (its node is gone)."
    assert {outcomes[item].status for item in "bc"} == {"done"}


def test_where_answers_can_be_lost_a_unit_is_blamed_only_if_it_was_alone():
    outcomes = scripted(["b kills"] * 4)
    assert {item: outcome.status for item, outcome in outcomes.items()} == {"a": "done", "b": "failed", "c": "done"}
    assert outcomes["b"].attempts == 1


def test_a_machine_that_lacks_something_gets_no_more_work():
    with pytest.warns(UserWarning, match="has no file 'a.png'; put it there. The run goes on without this worker."):
        outcomes = scripted(["lacks", "works"], workers=2)
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    with (
        pytest.warns(UserWarning, match="goes on without"),
        pytest.raises(InputError, match="The node far away has no file 'a.png'; put it there."),
    ):
        scripted(["lacks", "lacks"], workers=2)


# Disk


def failing_after(monkeypatch, commits, spoil):
    """Let so many commits succeed, then spoil the store."""
    commit, done = Store.commit, []

    def spoiled(self, outcomes):
        if len(done) == commits:
            spoil(self)
        commit(self, outcomes)
        done.append(1)

    monkeypatch.setattr(Store, "commit", spoiled)


def fill_up(store):
    (pages,) = store.rows("PRAGMA page_count")[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    store._connection.execute("PRAGMA cache_size = 1")


def lock_out(store):
    store._connection.execute("PRAGMA query_only = ON")


def break_maps(number):
    def spoil(store):
        def refuse(*_, **__):
            raise OSError(number, os.strerror(number))

        store._keep_map = refuse

    return spoil


@pytest.mark.parametrize(
    ("spoil", "keeps", "told", "code"),
    [
        (fill_up, False, "is full; free some space, then go on with: fei bench resume RUN (what was committed", 1),
        (
            break_maps(errno.ENOSPC),
            True,
            "is full; free some space, then go on with: fei bench resume RUN (what was committed",
            1,
        ),
        (lock_out, False, "The run folder 'RUN' cannot be written to; choose another folder or change its perm", 2),
        (break_maps(errno.EACCES), True, "The run folder 'RUN' cannot be written to; choose another folder", 2),
        (
            break_maps(errno.EIO),
            True,
            "fails (Input/output error); see that it is there, then go on with: fei bench",
            1,
        ),
    ],
)
def test_a_disk_that_fails_ends_the_run_and_not_its_results(
    photos, tmp_path, undisturbed, monkeypatch, at_once, capsys, spoil, keeps, told, code
):
    folder, file = tmp_path / "run", tmp_path / "plan.toml"
    file.write_text(plan_of(photos, top="keep_maps = true" if keeps else "").text, encoding="utf-8")
    words = ["bench", "run", str(file), "--out", str(folder), "--threads", "1", "--device", "cpu"]
    with monkeypatch.context() as patch:
        failing_after(patch, 3, spoil)
        with pytest.raises(SystemExit) as ended:
            main(words)
    assert ended.value.code == code
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert told.replace("RUN", str(folder)) in line
    with Store.open(folder, readonly=True) as store:
        kept = store.rows("SELECT * FROM units ORDER BY key")
    assert len(kept) >= 3
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    with Store.open(folder, readonly=True) as store:
        assert set(kept) <= set(store.rows("SELECT * FROM units"))
        assert store.rows(RESULTS) == table(undisturbed)


def test_on_a_slow_disk_commits_take_a_tenth_of_the_time(photos, tmp_path, monkeypatch):
    now, spent, commit = [0.0], [], Store.commit

    def slow(self, outcomes):
        spent.append(len(outcomes))
        now[0] += 2.0
        commit(self, outcomes)

    class Quick:
        def run(self, units, context):
            for each in units:
                now[0] += 1.0
                yield context.outcome(each, "done", groups=each.scores)

    monkeypatch.setattr(runner.time, "monotonic", lambda: now[0])  # type: ignore[attr-defined]
    monkeypatch.setattr(Store, "commit", slow)
    plan = make_plan(photos, [SALIENCY], f"seeds = {list(range(25))}")
    assert run(plan, tmp_path, engine=Quick(), device="cpu").done == 100
    assert sum(spent) == 100
    assert max(spent) <= 19  # 18 s of work for 2 s of commits, and the one that had to wait for it
    assert len(spent) == 7


# People


def drive_slowly():
    """A run whose commits hang once Ctrl-C was pressed; in a process of its own."""
    folder, commit = Path(sys.argv[1]), Store.commit
    runner._SECONDS, runner._SHARE = 0.0, 1.0

    def slow(self, outcomes):
        if sys.exc_info()[0] is KeyboardInterrupt:
            (folder / "hangs").touch()
            time.sleep(10 * PATIENCE)
        commit(self, outcomes)
        (folder / "committed").touch()
        time.sleep(0.2)

    Store.commit = slow
    sys.argv[1:] = []
    main(["bench", "run", str(folder / "plan.toml"), "--out", str(folder / "run"), "--threads", "1", "--json"])


def wait_for(file, process):
    while not file.exists():
        assert process.poll() is None, "it ended too early"
        time.sleep(0.02)


@posix
def test_a_second_ctrl_c_ends_it_at_once(photos, tmp_path, undisturbed):
    (tmp_path / "plan.toml").write_text(plan_of(photos).text, encoding="utf-8")
    paths = [str(Path(__file__).parent), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    script = "from test_bench_faults import drive_slowly; drive_slowly()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    encoding="utf-8")  # fmt: skip
    wait_for(tmp_path / "committed", process)
    process.send_signal(signal.SIGINT)
    wait_for(tmp_path / "hangs", process)
    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=PATIENCE)
    line = f"Interrupted twice; what was committed is kept, go on with: fei bench resume {tmp_path / 'run'}"
    assert process.returncode == 130
    assert told.splitlines()[-1] == line
    assert line in printed.splitlines()[-1]
    with Store.open(tmp_path / "run", readonly=True) as store:
        kept = store.counts()["done"]
    assert 0 < kept < 8
    summary = call(run, plan_of(photos), tmp_path / "run")
    assert (summary.done, summary.skipped) == (8 - kept, kept)
    assert table(tmp_path / "run") == table(undisturbed)
