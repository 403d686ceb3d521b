"""The study's tables of insertion against the probability of the whole photograph, and of one class against another."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # `studies` is a folder of the repository, not of the package

from studies import other_class
from studies._confidence import insertions, lead_table, overshoot_table
from studies._scores import opened

NUMBERS = {
    "chain": {
        "FEI-VM": {"cat": (0.2, 0.5), "dog": (0.6, 0.6), "owl": (0.9, 0.4), "elk": (0.1, 1.0)},
        "Grad-CAM": {"cat": (0.2, 0.1), "dog": (0.6, 0.4), "owl": (0.9, 0.8)},
    },
    "net [2]": {"Grad-CAM": {"cat": (0.3, 0.31)}},
}


def cells(table: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()]
    return {line[0]: line[1:] for line in lines}


def test_a_tie_is_not_above() -> None:
    found = cells(overshoot_table(NUMBERS))
    assert found["FEI-VM"] == ["2 of 4", "0 of 0"]
    assert found["Grad-CAM"] == ["0 of 3", "1 of 1"]


def test_methods_that_never_go_above_are_left_out() -> None:
    assert "Grad-CAM" not in cells(overshoot_table({"chain": NUMBERS["chain"]}))


def test_the_lead_is_taken_over_the_photographs_that_both_have() -> None:
    found = cells(lead_table(NUMBERS))
    assert found["FEI-VM"] == ["-1.00", "–"]  # leads .4, .2 and -.4 where the network says .2, .6 and .9
    assert found["FEI-IBM"] == ["–", "–"]


def test_the_committed_scores_are_read() -> None:
    with opened("resnet50") as store:
        found = insertions({"resnet50": store})["ResNet50"]
        expected = store.rows(
            "SELECT avg(value), avg(probability) FROM results WHERE method = 'FEI-VM' AND metric = 'insertion'"
        )
    pairs = list(found["FEI-VM"].values())
    means = tuple(sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    assert abs(means[1] - expected[0][0]) < 1e-12
    assert abs(means[0] - expected[0][1]) < 1e-12


def test_the_answers_for_two_classes_are_averaged_over_the_photographs() -> None:
    asked = [{"network": "SqueezeNet", "method": "gradcam", "spearman": value} for value in (0.5, 0.5, 0.2)]
    found = cells(other_class.table(asked))
    assert found["gradcam"] == ["0.40 [0.20, 0.50]", "–", "3"]
    assert "fei-vm" not in found  # what was not computed has no row


def test_how_flat_the_map_of_the_other_class_is_stands_beside_where_it_is_known() -> None:
    row = {"network": "SqueezeNet", "method": "gradcam", "spearman": 0.5}
    asked = [row, row | {"deviations": [0.1, 0.02]}, row | {"deviations": [0.2, 0.1]}]
    found = cells(other_class.table([*asked, row | {"method": "fei"}]))
    assert found["gradcam"][2:] == ["3", "0.35 (0.20 to 0.50)", "2"]
    assert found["fei"][2:] == ["1", "–", "–"]
