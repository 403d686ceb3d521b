"""Pixels made up from their neighbours, so that a removed pixel leaves no shape of its own behind.

Scipy's sparse matrices take long to import and only ROAD needs them, so they are imported where they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from scipy import sparse


def neighbour_weights(height: int, width: int) -> sparse.csr_matrix:
    """The symmetric matrix (HW, HW) of weights between pixels: 1/6 to direct, 1/12 to diagonal neighbours."""
    from scipy import sparse

    down, across = (sparse.diags([1.0, 1.0], [-1, 1], shape=(size, size)) for size in (height, width))
    direct = sparse.kron(down, sparse.eye(width)) + sparse.kron(sparse.eye(height), across)
    return sparse.csr_matrix(direct / 6 + sparse.kron(down, across) / 12)


def impute(image: Tensor, missing: Tensor, weights: sparse.csr_matrix) -> Tensor:
    """Replace missing pixels so that each is the weighted mean of its neighbours (Rong et al. 2022, section 4.2).

    For each missing pixel i, Σ_j w_ij (v_i − v_j) = 0 over its neighbours j in the image; known pixels keep their
    value. Neighbours beyond the edge of the image are left out, and the weights of the others thereby raised. As soon
    as one pixel is known the system has one solution. If all are missing, every constant solves it: the image's mean
    colour is taken, the constant closest to the image.

    Args:
        image: (C, H, W).
        missing: Which pixels to replace, boolean (H, W).
        weights: `neighbour_weights` of this size.

    Returns:
        (C, H, W), on the image's device and in its precision.
    """
    from scipy import sparse
    from scipy.sparse.linalg import splu

    gone = missing.flatten().cpu().numpy()
    if not gone.any():
        return image.clone()
    values: NDArray[np.float64] = image.detach().cpu().double().flatten(1).numpy().T.copy()
    if gone.all():
        values[:] = values.mean(0)
    else:
        rows = weights[gone]
        inner = sparse.diags(np.asarray(rows.sum(1)).ravel()) - rows[:, gone]
        # symmetric and diagonally dominant: no pivoting is needed, which keeps the factors thin
        factors = splu(
            inner.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
        values[gone] = factors.solve(rows[:, ~gone] @ values[~gone])
    return torch.from_numpy(values.T.copy()).view(image.shape).to(image)
