"""Other machines, as far as this one can imitate them: environment variables that hide processor features, and more.

`golden.py` measures how far numbers move between them, `elsewhere.py` runs the tests on them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_NUMPY = np._core._multiarray_umath  # type: ignore[attr-defined]
# What NumPy may use beyond its minimum and this processor has: only that may be taken away.
_OFFERED = [name for name in _NUMPY.__cpu_dispatch__ if _NUMPY.__cpu_features__.get(name)]
_BEYOND_AVX2 = [name for name in _OFFERED if "512" in name or name == "X86_V4"]


def _processor(aten: str, onednn: str, mkl: str, openblas: str, numpy: list[str]) -> dict[str, str]:
    """A processor for each of the five libraries that look at it: torch, oneDNN, MKL, OpenBLAS and NumPy."""
    taken = {"NPY_DISABLE_CPU_FEATURES": " ".join(numpy)} if numpy else {}
    return {
        "ATEN_CPU_CAPABILITY": aten,
        "ONEDNN_MAX_CPU_ISA": onednn,
        "MKL_CBWR": mkl,
        "OPENBLAS_CORETYPE": openblas,
        **taken,
    }


PROCESSORS: Mapping[str, dict[str, str]] = {
    "plain instructions": _processor("default", "SSE41", "COMPATIBLE", "Prescott", _OFFERED),
    "AVX2": _processor("avx2", "AVX2", "AVX2", "Haswell", _BEYOND_AVX2),
}
"""A processor without vector units to speak of, and one without AVX-512."""
