"""The same maps under every protocol: the table of docs/metrics.md.

python benchmarks/protocols.py [--network squeezenet]
"""

from __future__ import annotations

import argparse

import torch
from _common import PHOTOS, Results, load, photo

import fei

METHODS = ("fei-vm", "gradcam", "saliency", "random")


def main() -> None:
    """Score and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="squeezenet")
    network = parser.parse_args().network
    model = load(network)
    x = photo(model, PHOTOS[0])
    target = int(model(x).argmax())
    maps = {name: fei.methods.create(name)(model, x, target) for name in METHODS}
    results = Results("protocols")
    print("| protocol | " + " | ".join(f"{name} ins. / del." for name in METHODS) + " |")
    print("|---|" + "---|" * len(METHODS))
    for protocol in [name for name in fei.protocols.available() if not fei.protocols.get(name).drops_tokens]:
        cells = []
        for name in METHODS:
            with torch.no_grad():
                scores = fei.metrics.evaluate(model, x, maps[name], target, protocol=protocol, layers=[])
            row = {"network": network, "protocol": protocol, "method": name}
            row |= {"insertion": scores.insertion.auc.item(), "deletion": scores.deletion.auc.item()}
            results.append(row)
            cells.append(f"{row['insertion']:.3f} / {row['deletion']:.3f}")
        print(f"| `{protocol}` | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
