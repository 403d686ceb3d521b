"""Boxes follow the preprocessing of their images."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fei.errors import InputError
from fei.models import Classifier


class TestPlaceBoxes:
    WAYS = pytest.mark.parametrize(
        "options",
        [
            {},
            {"input_size": 64, "resize": 64},
            {"input_size": 100, "resize": 131, "interpolation": "bilinear"},
            {"input_size": 96, "resize": 110, "squash": True},
        ],
    )

    @WAYS
    @pytest.mark.parametrize("size", [(320, 200), (200, 320), (224, 224), (60, 40), (3000, 100)])
    def test_a_painted_box_is_found_where_it_is_said_to_be(
        self, size: tuple[int, int], options: dict[str, Any]
    ) -> None:
        model = Classifier(nn.Flatten(), **options)
        width, height = size
        box = (round(0.45 * width), round(0.3 * height), round(0.55 * width) + 1, round(0.7 * height) + 1)
        image = np.zeros((height, width, 3), dtype=np.uint8)
        image[box[1] : box[3], box[0] : box[2]] = 255
        white = model.preprocess(image)[0] > 0.5
        (placed,) = model.place_boxes([box], size)
        columns, rows = torch.nonzero(white.any(0)).flatten(), torch.nonzero(white.any(1)).flatten()
        found = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
        assert placed == pytest.approx(found, abs=0.75)  # half a pixel, and what the filter overshoots

    @WAYS
    @pytest.mark.parametrize("size", [(200, 120), (90, 211), (255, 255), (60, 40), (250, 12)])
    def test_every_pixel_is_where_it_came_from(self, size: tuple[int, int], options: dict[str, Any]) -> None:
        """In an image whose pixels say which column, or row, they are of, so do those of the preprocessed one."""
        model = Classifier(nn.Flatten(), **options)
        width, height = size
        across, down = np.meshgrid(np.arange(width), np.arange(height))
        values = model.preprocess(np.stack([across, down, down], 2).astype(np.uint8)) * 255 + 0.5
        middle = model.input_size // 2
        for axis, origin in enumerate((values[0, middle], values[1, :, middle])):
            inner = [p for p in range(model.input_size) if 2 <= origin[p] <= size[axis] - 2]  # off the border
            corners = [(float(origin[p]), 0.0) if axis == 0 else (0.0, float(origin[p])) for p in inner]
            placed = model.place_boxes([(*corner, 1e4, 1e4) for corner in corners], size)
            errors = [box[axis] - (p + 0.5) for box, p in zip(placed, inner, strict=True) if box is not None]
            assert len(errors) > 1
            assert abs(float(np.mean(errors))) < 0.3  # their numbers are rounded

    def test_boxes_are_cut_and_left_out_in_order(self) -> None:
        model = Classifier(nn.Flatten(), input_size=100, resize=100)  # of 300 × 100: the middle third as it is
        boxes = [(0, 0, 300, 100), (0, 0, 100, 100), (110, 10, 130.5, 20), (90, -5, 101, 50), (200, 0, 250, 100)]
        assert model.place_boxes(boxes, (300, 100)) == [
            (0.0, 0.0, 100.0, 100.0),
            None,
            (10.0, 10.0, 30.5, 20.0),
            (0.0, 0.0, 1.0, 50.0),
            None,
        ]
        assert model.place_boxes([], (300, 100)) == []

    @pytest.mark.parametrize("box", [(0, 0, 1), (1, 0, 1, 1), (0, 5, 1, 2), (0, 0, float("nan"), 1)])
    def test_what_is_no_box(self, box: tuple[float, ...]) -> None:
        with pytest.raises(InputError, match=r"A box is .*; give \(left, top, right, bottom\)"):
            Classifier(nn.Flatten()).place_boxes([box], (10, 10))

    @pytest.mark.parametrize("size", [(0, 10), (10,), (1.5, 2)])
    def test_what_is_no_size(self, size: Any) -> None:
        with pytest.raises(InputError, match="`size` is .*; give the image's width and height in pixels"):
            Classifier(nn.Flatten()).place_boxes([], size)
