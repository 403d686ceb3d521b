"""Do the paper's orderings show? NONE and the constrained variants at the paper's preset, four networks, four photos.

    python benchmarks/orderings.py [--networks …] [--variants …] [--table]

Results go to benchmarks/results/orderings.jsonl, a row for each network, photograph and variant; a second run computes
only what is missing. `--table` prints the table in Markdown from what is there.
"""

from __future__ import annotations

import argparse

from _common import COLUMNS, NETWORKS, PHOTOS, Results, load, measure

VARIANTS = ("none", "vm", "ivm", "avm", "ibm", "bm", "abm")


def table(results: Results) -> str:
    """The means over photographs in Markdown."""
    lines = ["| network | variant | n | " + " | ".join(COLUMNS) + " |", "|---|---|---|" + "---|" * len(COLUMNS)]
    for network in results.values("network"):
        for variant in VARIANTS:
            mean = results.mean(COLUMNS, network=network, variant=variant)
            if mean:
                cells = " | ".join(f"{mean[c]:.3f}" for c in COLUMNS)
                lines.append(f"| {network} | {variant.upper()} | {mean['n']} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--table", action="store_true", help="only print what has been measured")
    options = parser.parse_args()
    results = Results("orderings")
    if not options.table:
        for network in options.networks.split(","):
            model = load(network)
            for synset in PHOTOS:
                for variant in options.variants.split(","):
                    key = {"network": network, "photo": synset, "variant": variant, "preset": "paper"}
                    row = results.once(key, lambda: measure(model, synset, variant, preset="paper"))  # noqa: B023
                    print(network, variant, synset, {c: round(row[c], 3) for c in COLUMNS}, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
