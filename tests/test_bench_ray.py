"""The benchmark on Ray: the same tables as here, whatever becomes of workers, nodes and drivers."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_bench_engine import context as context_of
from test_bench_engine import notes, unit
from test_bench_run import COUNTED, FEI, LOG, PAUSE, SALIENCY, call, committed, make_plan, paint, table
from waiting import PATIENCE

from fei.bench import RayEngine, run
from fei.bench.engine import _ray
from fei.bench.engine.runner import resume
from fei.bench.plan import parse_plan
from fei.cli import main
from fei.errors import InputError

pytestmark = pytest.mark.slow

MANY = 16
KILLS = int(os.environ.get("FEI_KILLS", "1"))
SMALL = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
# Ray lets its workers give way to every other process; among tests that use all processors they would get nothing.
NICENESS = "RAY_worker_niceness"


def require_ray():
    """Skip where Ray is absent; fail where it must not be."""
    try:
        import ray
    except ImportError:
        message = "Ray is not installed; pip install 'fei[ray]'"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    if sys.platform != "linux":
        pytest.skip("kills processes and looks for them as Linux has it")
    return ray


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine may take longer than a minute to start a worker, of which a user is warned."""
    monkeypatch.setattr(_ray, "_NO_ROOM_SECONDS", PATIENCE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two nodes on this machine, with a CPU each, whose workers take notes of what they compute."""
    require_ray()
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv(NICENESS, "0")
        patch.setenv(LOG, str(tmp_path_factory.mktemp("notes") / "log"))
        patch.setenv(PAUSE, "0.1")
        made = Cluster(initialize_head=True, head_node_args=SMALL)
        made.add_node(**SMALL)
        made.log = Path(os.environ[LOG])
        try:
            yield made
        finally:
            made.shutdown()


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Images, a plan on them, and its table computed undisturbed, in this process."""
    folder = tmp_path_factory.mktemp("many")
    plan = make_plan(paint(folder / "photos", MANY), [COUNTED, FEI, SALIENCY], "keep_maps = true")
    (folder / "plan.toml").write_text(plan.text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(LOG, raising=False)
        patch.delenv(PAUSE, raising=False)
        call(run, plan, folder / "undisturbed")
    return folder


# Without a cluster


def test_without_ray_one_sentence_says_what_to_install(many, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "run", str(many / "plan.toml"), "--out", str(tmp_path / "run"), "--engine", "ray"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.endswith(
        "error: The engine 'ray' needs ray, which is not installed; run pip install \"fei[ray]\".\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--address", "1.2.3.4:5"], "The engine 'local' takes no --address; add --engine ray."),
        (["--gpus-per-worker", "1"], "The engine 'local' takes no --gpus-per-worker; add --engine ray."),
        (["--engine", "ray", "--device", "cuda"], "the device follows from --gpus-per-worker; leave --device out."),
        (["--engine", "ray", "--address", "127.0.0.1:9"], "There is no Ray cluster to reach at '127.0.0.1:9' ("),
        (["--engine", "ray", "--address", "ray://here:9"], "(it is not of the form HOST:PORT); call this on a machine"),
    ],
)
def test_words_that_do_not_fit(many, tmp_path, capsys, words, told):
    if "ray" in words:
        require_ray()
    with pytest.raises(SystemExit) as ended:
        main(["bench", "run", str(many / "plan.toml"), "--out", str(tmp_path / "run"), *words])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_bad_numbers_are_refused():
    for wrong in ({"workers": -1}, {"workers": True}, {"threads": 0}, {"gpus_per_worker": -1}):
        with pytest.raises(InputError, match=f"`{next(iter(wrong))}` is"):
            RayEngine(**wrong)


def test_what_ray_tells_at_length_in_a_few_words():
    tell = _ray._reason
    assert tell(RuntimeError("The actor is dead because its worker process has died. Worker exit type: …")) == (
        "its process has died"
    )
    assert "ran out of memory" in tell(RuntimeError("The node was running low on memory, so that …"))
    assert tell(RuntimeError("ray::_Actor.start()\n  File …\nModuleNotFoundError: No module named 'fei'")) == (
        "ModuleNotFoundError: No module named 'fei'"
    )


def test_the_cluster_file_of_the_docs_is_one():
    ray = require_ray()
    jsonschema, yaml = pytest.importorskip("jsonschema"), pytest.importorskip("yaml")
    text = (Path(__file__).parents[1] / "docs" / "cluster.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    schema = (Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text(encoding="utf-8")
    jsonschema.validate(yaml.safe_load(block), json.loads(schema))


# A Ray of its own, on this machine


def parent_processes():
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(file.parent.name)] = int(file.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return parents


def family(root):
    """A process and all that it started."""
    parents, found = parent_processes(), {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def session_folders(root):
    """Where a Ray that a process started keeps its sockets and logs, from the words it was started with."""
    words = ""
    for pid in family(root):
        with contextlib.suppress(OSError):
            words += Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    return {Path(folder) for folder in re.findall(r"=(/[^ =\0]+)/session_", words)}


def listening(root):
    """Addresses at which a process or one of those it started listens, as /proc/net/tcp writes them."""
    inodes = set()
    for pid in family(root):
        with contextlib.suppress(OSError):  # of a process that has ended, or a file that was closed
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text(encoding="utf-8").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                found.add(words[1].split(":")[0])
    return found


def test_on_one_machine_it_is_reached_from_nowhere_else_and_ends_on_ctrl_c(many, tmp_path):
    require_ray()
    (tmp_path / "plan.toml").write_text((many / "plan.toml").read_text(encoding="utf-8"), encoding="utf-8")
    words = ["bench", "run", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "run"), "--engine", "ray", "--json"]
    paths = [str(Path(__file__).parent), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), PAUSE: "0.1", NICENESS: "0"}
    folder = tmp_path / "a stranger's"  # whose modules nobody is to run
    folder.mkdir()
    for name in ("fei", "torch", "numpy", "PIL", "json"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('{name}\\n')", encoding="utf-8")
    driver = subprocess.Popen(
        [sys.executable, "-P", "-m", "fei", *words, "--workers", "1"],
        env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    encoding="utf-8")  # fmt: skip
    while not committed(tmp_path / "run"):
        assert driver.poll() is None, driver.stderr.read()
        time.sleep(0.1)
    assert not (folder / "ran").exists()
    found = listening(driver.pid)
    assert found
    assert found <= {"0100007F", "0" * 16 + "FFFF00000100007F", "0" * 24 + "01000000"}  # 127.0.0.1 and ::1
    (kept,) = session_folders(driver.pid)
    assert kept.parent.stat().st_mode & 0o077 == 0  # nobody else can enter it
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does: to the driver and all it has started
    printed, told = driver.communicate(timeout=PATIENCE)
    line = f"Interrupted; what is computed is kept, go on with: fei bench resume {tmp_path / 'run'}"
    assert (driver.returncode, told.splitlines()[-1]) == (130, line)
    assert not kept.parent.exists()
    assert json.loads(printed.splitlines()[-1]) == {"error": line}
    before = committed(tmp_path / "run")
    assert 0 < len(before) < MANY
    assert call(resume, tmp_path / "run").failed == 0
    assert table(tmp_path / "run") == table(many / "undisturbed")


# On a cluster


def test_workers_that_die_or_hang_are_replaced(cluster, tmp_path):
    context = replace(context_of(tmp_path), retries=0, unit_timeout=5.0)
    units = [unit("dies"), unit("raises"), unit("sleeps"), *(unit(str(number)) for number in range(8))]
    engine = RayEngine(2, address=cluster.address)
    outcomes = {o.item: o for o in engine.run(iter(units), context)}
    assert set(outcomes) == {each.item for each in units}
    assert {item for item, o in outcomes.items() if o.status != "done"} == {"dies", "raises", "sleeps"}
    assert "A worker process ended while it computed this (its process has died, node " in outcomes["dies"].error
    assert "ended while it computed this (it took longer than 5 s, the time-out of a unit)" in outcomes["sleeps"].error
    assert outcomes["raises"].error == "It failed."
    assert {o.threads for o in outcomes.values() if o.status == "done"} == {1}
    # the one that dies, and who was with it when it did, are tried once more, each alone
    assert notes(tmp_path).count("dies") == 2
    assert sum(notes(tmp_path).count(each.item) > 1 for each in units) <= 2


@pytest.mark.parametrize("what", ["images", "network"])
def test_what_a_node_lacks_is_named_with_the_node(cluster, many, tmp_path, what):
    """A path that this process has and no other: through a file that it holds open."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "net.py").write_text("from test_bench_run import tiny\n", encoding="utf-8")
    paint(folder / "photos", 1)
    held = os.open(folder, os.O_RDONLY)
    mine = f"/proc/self/fd/{held}"
    try:
        data = f"{mine}/photos" if what == "images" else folder / "photos"
        model = f"{mine}/net.py:tiny" if what == "network" else f"{folder}/net.py:tiny"
        sentence = {
            "images": rf"The node .* \(.*\) has no file '{mine}/photos/0.png'; put the images at the same path",
            "network": rf"The node .* \(.*\) cannot load the network '{mine}/net.py:tiny' \(.*\); put its files at",
        }[what]
        plan = make_plan(data, [COUNTED], model=model)
        with pytest.raises(InputError, match=sentence):
            run(plan, tmp_path / "run", engine=RayEngine(1, address=cluster.address), device="cpu")
    finally:
        os.close(held)


def drive():
    """What a driver process does."""
    folder, address, workers = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    plan = parse_plan((folder / "plan.toml").read_text(encoding="utf-8"))
    run(plan, folder / "run", engine=RayEngine(workers, address=address), device="cpu")


def start_driver(folder, address, workers):
    paths = [str(Path(__file__).parent), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    script = "from test_bench_ray import drive; drive()"
    words = [sys.executable, "-c", script, str(folder), address, str(workers)]
    return subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)


def workers_of(cluster):
    """The processes of the cluster's actors that are at work."""
    raylets = {
        each.process.pid
        for node in cluster.list_all_nodes()
        for each in node.all_processes.get("raylet", [])
    }  # fmt: skip
    parents = parent_processes()
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            pid = int(file.parent.name)
            if file.read_bytes().startswith(b"ray::_Actor") and parents.get(pid) in raylets:
                found.append(pid)
    return found


def lines(file):
    return file.read_text(encoding="utf-8").split() if file.exists() else []


def until(enough, driver):
    """Wait until that many units of the counted method are computed, or the driver has ended."""
    while not enough() and driver.poll() is None:
        time.sleep(0.02)


def test_workers_nodes_and_drivers_that_are_killed_cost_nothing(cluster, many, tmp_path):
    (tmp_path / "plan.toml").write_text((many / "plan.toml").read_text(encoding="utf-8"), encoding="utf-8")
    folder, log = tmp_path / "run", cluster.log
    for number in range(KILLS):
        before = committed(folder)
        if len(before) == MANY:  # all done between two kills: begin again
            os.rename(folder, tmp_path / f"finished {number}")
            before = set()
        log.unlink(missing_ok=True)
        driver = start_driver(tmp_path, cluster.address, 2)
        until(lambda: lines(log), driver)
        if number % 3 != 1:  # a worker first
            for pid in workers_of(cluster)[:1]:
                os.kill(pid, signal.SIGKILL)
            seen = len(lines(log))
            until(lambda seen=seen: len(lines(log)) > seen, driver)
        if number % 3 != 2:  # then a node
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
            seen = len(lines(log))
            until(lambda seen=seen: len(lines(log)) > seen, driver)
        time.sleep(random.random() / 2)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        deadline = time.monotonic() + PATIENCE
        while workers_of(cluster) and time.monotonic() < deadline:  # they end with it
            time.sleep(0.05)
        assert workers_of(cluster) == []
        assert not before & set(lines(log)), "a unit was computed again after its commit"
        assert before <= committed(folder), "a commit was lost"
        if not cluster.worker_nodes and number + 1 < KILLS:
            cluster.add_node(**SMALL)
    before = committed(folder)
    log.unlink(missing_ok=True)
    plan = parse_plan((tmp_path / "plan.toml").read_text(encoding="utf-8"))
    summary = run(plan, folder, engine=RayEngine(address=cluster.address), device="cpu")
    assert (summary.done + summary.skipped, summary.failed) == (3 * MANY, 0)
    assert set(lines(log)) == {f"{n}.png" for n in range(MANY)} - before
    assert table(folder) == table(many / "undisturbed")
