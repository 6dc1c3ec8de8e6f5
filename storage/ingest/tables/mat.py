"""Program that converts the variables of a .mat file to a .npz file.

``scipy.io.loadmat`` can crash the whole process on a damaged file (scipy/scipy#6072), so the conversion runs in a process of its own.
"""

import sys
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.io import loadmat


def plain_arrays(name: str, value: Any) -> dict[str, Any]:
    """Return the arrays of one variable: itself, or the parts of a sparse matrix. The result is empty for structures and cells."""
    if sp.issparse(value):
        csc = sp.csc_array(value)
        parts = {"data": csc.data, "indices": csc.indices, "indptr": csc.indptr, "shape": csc.shape, "format": "csc"}
        return {f"{name}_{part}": np.asarray(array) for part, array in parts.items()}
    return {} if value.dtype.hasobject or value.dtype.names else {name: value}


def main(source: str, target: str) -> None:
    """Convert a file; if it cannot be read, the reason is written to standard error."""
    arrays: dict[str, Any] = {}
    try:
        for name, value in loadmat(source, appendmat=False).items():
            if not name.startswith("__"):
                arrays |= plain_arrays(name, value)
    except NotImplementedError:
        sys.exit("this is a MATLAB 7.3 file (HDF5), which is not read; save it with -v7")
    except Exception as error:  # damaged files make SciPy raise almost anything
        sys.exit(f"{type(error).__name__}: {error}")
    np.savez(target, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
