"""FEI as one attribution method among captum's: the same call, the same shapes, and scores to compare them by.

Run it from anywhere:  python examples/library.py
"""

import captum.attr
import torch

import fei
from fei.data import demo_image


def main(steps: int = 20) -> None:
    model = fei.models.load("efficientnet_lite0")  # any nn.Module classifier in evaluation mode
    images = model.preprocess(demo_image("chelsea"))[None]  # (1, 3, 224, 224), RGB in [0, 1]
    target = model(images).argmax(1).item()
    print(f"explained: {model.label(target)}")

    # captum's methods give a value for each colour; a map ranks pixels
    gradients = captum.attr.IntegratedGradients(model).attribute(images, target=target, n_steps=steps)
    explainer = fei.FEI(model, "vm", preset="fast", steps=steps)
    maps = {
        "captum's integrated gradients": gradients.abs().sum(1, keepdim=True).detach(),
        "fei-vm": explainer.attribute(images, target=target),
        # and FEI itself serves where captum wants one of its own methods
        "fei-vm in captum's NoiseTunnel": captum.attr.NoiseTunnel(explainer).attribute(
            images, target=target, nt_type="smoothgrad", nt_samples=2, stdevs=0.02
        ),
        "fei's gradcam": fei.methods.create("gradcam")(model, images, target),
    }

    print(f"{'':32} {'insertion':>9} {'deletion':>9} {'cosine inside':>14}")
    for name, attribution in maps.items():
        result = fei.metrics.evaluate(
            model, images, attribution, target, protocol="fei-paper", generator=torch.Generator().manual_seed(0)
        )
        deepest = list(result.internal.values())[-1]
        scores = (result.insertion.auc.item(), result.deletion.auc.item(), deepest.cosine.item())
        print(f"{name:32} {scores[0]:9.3f} {scores[1]:9.3f} {scores[2]:14.3f}")


if __name__ == "__main__":
    main()
