"""Who waits is told for what, and how long it will take."""

import json

import pytest
from commands import NETWORK, furnish
from commands import run as cli

import fei
from fei.progress import doing, reporter, span, time_left
from fei.service import Inquiry, Request, look
from fei.service.inquiry import expected


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(furnish(tmp_path, NETWORK, "photo.png"))
    return tmp_path


def test_the_time_left_counts_down_and_comes_from_all_that_was_done():
    assert time_left(0, 100, 0.0, 5.0) is None
    assert time_left(25, 100, 50.0, 0.0) == 150.0  # two seconds a step
    assert time_left(25, 100, 50.0, 10.0) == 140.0  # while the next step is on its way it goes on falling
    assert time_left(25, 100, 50.0, 500.0) == 0.0
    # a single slow step among many moves it by little
    assert time_left(51, 100, 102.0 + 8.0, 0.0) - time_left(50, 100, 100.0, 0.0) < 10
    assert [span(seconds) for seconds in (40.4, 89, 90, 3600, 7200)] == ["40 s", "89 s", "2 min", "60 min", "2.0 h"]


def test_a_bar_says_what_is_being_done(capsys):
    with doing("photo.png, rise [x]"), reporter(True, 2) as tick:
        tick()
        tick()
    assert "photo.png, rise [x]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("rise", {}, ", about 7 min (4000 + 0 passes)"),
        ("rise", {"samples": 1000}, ", about 100 s (1000 + 0 passes)"),
        ("fei-vm", {"steps": 100, "quantiles": (0.2, 0.8)}, ", about 60 s (200 + 200 passes)"),
        ("smoothgrad", {}, ", about 15 s (50 + 50 passes)"),
        ("gradcam", {}, ""),
    ],
)
def test_the_time_of_a_slow_method_is_told_before_it_starts(name, options, words):
    said = expected(name, fei.methods.create(name, **options), 0.1)
    assert said == words.replace("100 s", "2 min")


def test_an_inquiry_tells_it_with_image_and_method():
    told = []
    inquiry = Inquiry.of(Request.of("net.py:net", ["rise"], texts=["samples=10"]), tell=told.append)
    seen = look(inquiry.model, "photo.png")
    assert seen.seconds > 0
    slow = type(seen)(**vars(seen) | {"seconds": 2.0})
    inquiry.find("rise", slow)
    assert told == ["photo.png: rise, about 20 s (10 + 0 passes)"]


def test_what_is_loaded_is_told_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert cli("explain", "photo.png", "--model", "net.py:net", "--method", "gradcam") == 0
    said = capsys.readouterr().err
    assert said.startswith("Loading net.py:net\n")
    assert "photo.png: gradcam" in said


def test_the_page_offers_any_class_and_a_sentence_for_each_method(tmp_path, folder):
    from fei.app.desk import Desk, Visits
    from fei.app.limits import Limits
    from fei.app.photos import load_networks
    from fei.app.runs import Lane
    from fei.app.web import _choices
    from fei.errors import InputError

    many = NETWORK.replace("nn.Linear(6, 3)", "nn.Linear(6, 9)").replace(
        '["dark", "bright", "striped"]', "list('abcdefghi')"
    )
    (folder / "net.py").write_text(many, encoding="utf-8")
    networks = load_networks(["net.py:net"], fei.common.device.choose_device("cpu"))
    place = tmp_path / "visits"
    place.mkdir()
    visits, lane = Visits(place, 2, grace=10), Lane(2)
    desk = Desk(networks, [], Limits(), visits, lane)
    offer = json.loads(json.dumps(_choices(desk)))
    assert offer["labels"] == {"net.py:net": list("abcdefghi")}
    assert set(offer["about"]) == set(fei.methods.available())
    assert offer["about"]["rise"] == "the mean score of random masks that show a pixel (4000 + 0 passes)"
    desk.take_photo("me", (folder / "photo.png").read_bytes())
    look = visits.enter("me").photo.looks["net.py:net"]
    unseen = min(set(range(9)) - {guess.index for guess in look.guesses})
    run = desk.start("me", "net.py:net", [str(unseen)], ["random"], "default", 0)
    assert [request.target for request in run.requests] == [str(unseen)]
    run.cancel()
    with pytest.raises(InputError, match="There is no such class"):
        desk.start("me", "net.py:net", ["9"], ["random"], "default", 0)
    with pytest.raises(InputError, match="6 classes are chosen; choose at most 5"):
        desk.start("me", "net.py:net", list("012345"), ["random"], "default", 0)
    lane.close()
