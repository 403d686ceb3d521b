"""How tests wait: for a condition, and never for a number of seconds. A busy machine is slow, not wrong."""

import time

PATIENCE = 300
"""Seconds after which what a test waits for is taken never to come."""


def until(condition):
    """Wait for something that happens in another thread or process."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
