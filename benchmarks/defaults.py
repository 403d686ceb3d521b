"""What the defaults rest on: learning rate, constraint, step count and `residual`, measured network by network.

    python benchmarks/defaults.py [--networks …] [--parts …] [--table]

Results go to benchmarks/results/defaults.jsonl; a second run computes only what is missing. `--table` prints Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from _common import COLUMNS, NETWORKS, PHOTOS, Results, load, measure

RESIDUAL_NETWORKS = ("efficientnet_lite0", "resnet50")


def configurations(part: str, network: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(variant, options) of one part of the study on one network."""
    cheap = network != "resnet50"
    if part == "residual" and network in RESIDUAL_NETWORKS:
        for variant in ("vm", "ibm"):
            for residual in ("post_add", "both"):  # "branch" is the preset, measured among the variants
                yield variant, {"preset": "fast", "residual": residual}
    elif part == "variants":
        for variant in ("vm", "none", "ibm", "avm", "ivm"):
            yield variant, {"preset": "fast"}
    elif part == "projection" and cheap:
        for steps in (10, 20, 60):  # 30 at .3 is the preset, measured among the variants
            yield "vm", {"preset": "fast", "steps": steps}
        for lr in (0.1, 1.0):
            yield "vm", {"preset": "fast", "lr": lr}
    elif part == "penalty" and cheap:
        for lr in (0.3,):  # 1.0 is the preset, measured by orderings.py
            yield "vm", {"preset": "paper", "lr": lr}


PARTS = ("residual", "variants", "projection", "penalty")


def label(options: dict[str, Any]) -> str:
    """The options in a few words."""
    return " ".join(f"{name}={value}" for name, value in options.items())


def table(results: Results, part: str) -> str:
    """Means over photographs of one part, in Markdown."""
    lines = [
        "| network | variant | options | n | " + " | ".join(COLUMNS) + " |",
        "|---|---|---|---|" + "---|" * len(COLUMNS),
    ]
    for network in NETWORKS:
        for variant, options in configurations(part, network):
            mean = results.mean(COLUMNS, network=network, variant=variant, options=label(options))
            if mean:
                cells = " | ".join(f"{mean[c]:.3f}" for c in COLUMNS)
                lines.append(f"| {network} | {variant.upper()} | {label(options)} | {mean['n']} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--table", action="store_true", help="only print what has been measured")
    arguments = parser.parse_args()
    results = Results("defaults")
    for part in arguments.parts.split(","):
        for network in arguments.networks.split(",") if not arguments.table else ():
            chosen = list(configurations(part, network))
            model = load(network) if chosen else None
            for variant, options in chosen:
                for synset in PHOTOS:
                    key = {"network": network, "photo": synset, "variant": variant, "options": label(options)}
                    row = results.once(key, lambda: measure(model, synset, variant, **options))  # noqa: B023
                    print(network, variant, label(options), synset, {c: round(row[c], 3) for c in COLUMNS}, flush=True)
        print(f"\n{part}\n\n{table(results, part)}\n", flush=True)


if __name__ == "__main__":
    main()
