"""Engines: every unit comes to one outcome, whatever becomes of the processes that compute it."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from waiting import PATIENCE

from fei.bench import LocalEngine, Unit
from fei.bench.context import PlannedNetwork, Recipe, WorkerContext
from fei.bench.engine import _pool, _processes
from fei.bench.engine.worker import Worker
from fei.errors import InputError

pytestmark = pytest.mark.slow

posix = pytest.mark.skipif(sys.platform == "win32", reason="kills processes by signals")


class StandIn:
    """A worker that does what the item of a unit says; the options of the one method tell it where to take notes."""

    def __init__(self, context):
        self._context = context
        self._notes = Path(context.recipes[0].options["notes"])
        if context.recipes[0].options.get("start") == "dies":
            os._exit(3)

    def prepare(self, pair):
        self.note(f"load{pair}")
        if pair == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return "It does not load." if pair == 2 else None

    def note(self, text):
        with (self._notes / "notes").open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def compute(self, unit):
        self.note(unit.item)
        if unit.pair == 2:
            return self._context.failure(unit, "It does not load.")
        if unit.item == "raises":
            return self._context.failure(unit, "It failed.")
        if unit.item == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if unit.item == "sleeps":
            time.sleep(10 * PATIENCE)
            self.note("wakes")
        return self._context.outcome(unit, "done")


def unit(item, pair=0):
    return Unit("map", f"key of {item} {pair}", pair, 0, item, "", None, None, (), 0, ("map",))


def context(folder, **options):
    networks = tuple(PlannedNetwork(f"network {pair}", "") for pair in range(3))
    return WorkerContext(networks, (Recipe("m", {"notes": str(folder)} | options, "{}"),), retries=1, make=StandIn)


def notes(folder):
    return (folder / "notes").read_text(encoding="utf-8").splitlines()


def test_in_this_process_units_are_taken_one_at_a_time(tmp_path):
    taken = []

    def units():
        for item in ("a", "raises", "b"):
            taken.append(item)
            yield unit(item)

    threads = torch.get_num_threads()
    stream = LocalEngine(threads=1).run(units(), context(tmp_path))
    first = next(stream)
    assert (taken, first.item, first.status, first.threads) == (["a"], "a", "done", 1)
    second, third = stream
    assert (second.status, second.error, second.attempts) == ("failed", "It failed.", 2)
    assert third.status == "done"
    assert torch.get_num_threads() == threads


def test_a_network_that_does_not_load_fails_its_units_without_further_attempts(tmp_path):
    outcomes = list(LocalEngine().run([unit("a", 2), unit("b", 2)], context(tmp_path)))
    assert [(o.status, o.error, o.attempts) for o in outcomes] == [("failed", "It does not load.", 1)] * 2


@posix
def test_workers_that_die_are_replaced_and_their_units_tried_again(tmp_path):
    items = ["a", "dies", "raises", *map(str, range(6))]
    units = [*(unit(item) for item in items), *(unit(f"unloadable {i}", 1) for i in range(10))]
    outcomes = {o.item: o for o in LocalEngine(workers=1, threads=1).run(iter(units), context(tmp_path))}
    assert len(outcomes) == len(units)
    done = {item for item, outcome in outcomes.items() if outcome.status == "done"}
    assert done == set(items) - {"dies", "raises"}
    assert outcomes["dies"].attempts == 2
    assert "ended while it computed this (signal 9, SIGKILL)" in outcomes["dies"].error
    assert outcomes["raises"].attempts == 2
    assert "ended while it loaded the network 'network 1' (signal 9, SIGKILL)" in outcomes["unloadable 9"].error
    assert notes(tmp_path).count("load1") == 2  # not once for each unit
    assert notes(tmp_path).count("dies") == 2
    assert all(notes(tmp_path).count(item) == 1 for item in done)
    assert {outcome.threads for outcome in outcomes.values() if outcome.status == "done"} == {1}


def test_workers_that_never_start_are_not_started_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(_pool, "_STARTS", 1)
    with pytest.raises(InputError, match=r"end before they start \(exit code 3\)"):
        list(LocalEngine(workers=1).run([unit("a")], context(tmp_path, start="dies")))


@posix
def test_ctrl_c_ends_workers_at_once_and_keeps_what_came(tmp_path):
    came = []

    def interrupt():
        while not came or "sleeps" not in notes(tmp_path):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    stream = LocalEngine(workers=1, threads=1).run([unit("a"), unit("sleeps")], context(tmp_path))
    came.append(next(stream).item)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert came == ["a"]
    assert not multiprocessing.active_children()
    assert "wakes" not in notes(tmp_path)  # its five minutes were not waited for


@posix
def test_ctrl_c_while_workers_end_leaves_none_of_them(tmp_path, monkeypatch):
    end, struck = _processes._Process.end, []

    def strike(self):
        if not struck:
            struck.append(self)
            raise KeyboardInterrupt
        return end(self)

    monkeypatch.setattr(_processes._Process, "end", strike)
    with pytest.raises(KeyboardInterrupt):
        list(LocalEngine(workers=2, threads=1).run([unit("a"), unit("b")], context(tmp_path)))
    assert not multiprocessing.active_children()


def test_bad_numbers_are_refused():
    for workers in (-1, 1.5, True):
        with pytest.raises(InputError, match="`workers` is"):
            LocalEngine(workers)
    with pytest.raises(InputError, match="`threads` is 0"):
        LocalEngine(threads=0)


def test_a_network_that_is_another_one_each_time_is_refused():
    worker = Worker(WorkerContext((PlannedNetwork("efficientnet_lite0", "another fingerprint"),), ()))
    assert "is another one each time it is loaded" in worker.prepare(0)
