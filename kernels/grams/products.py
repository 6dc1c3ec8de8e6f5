"""Products of kernels, and of sums of kernels, as one kernel: the nodes of a graph of kernels.

A product of positive semi-definite kernels is positive semi-definite (Schur), and so is a sum with non-negative weights. Entries are
computed block by block from the entries of the factors; matrices of the factors are not stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array
from .functions import KERNELS
from .spec import KernelSpec, format_kernel, record_digest

Term = tuple[float, KernelSpec | None]  # Weight and kernel; None is the constant kernel.

Factor = tuple[Term, ...]  # A sum of terms.

CONSTANT_TEXT = "constant"  # Text of the product of no kernels.
_STAR = re.compile(r"\s*\*\s*(?=[A-Za-z_])")


@dataclass(frozen=True)
class ProductSpec:
    """The kernel ``k(x, z) = scale * prod_f sum_t w_ft k_ft(x, z)``, over raw kernels; without factors, a constant kernel."""

    factors: tuple[Factor, ...] = ()
    scale: float = 1.0

    normalize = "none"
    centre = False
    columns = None

    @classmethod
    def of(cls, kernels: Sequence[KernelSpec], scale: float = 1.0) -> ProductSpec:
        """Return the product of some kernels."""
        return cls(tuple(((1.0, spec),) for spec in kernels), scale)

    @classmethod
    def parse(cls, text: str, close: Callable[[KernelSpec], KernelSpec] = lambda spec: spec) -> ProductSpec:
        """Parse a text such as ``rbf(gamma=1.0)[0] * linear[3]``; ``close`` adapts the kernel of each part to the data."""
        return cls() if text.strip() == CONSTANT_TEXT else cls.of([close(KernelSpec.parse(part)) for part in _STAR.split(text)])

    @property
    def kernels(self) -> tuple[KernelSpec, ...]:
        """The distinct kernels among the terms, in order of first appearance."""
        return tuple(dict.fromkeys(spec for factor in self.factors for _, spec in factor if spec is not None))

    @property
    def single(self) -> KernelSpec | None:
        """The kernel itself if the product consists of a single kernel without weights, otherwise None."""
        (weight, spec), *more = self.factors[0] if len(self.factors) == 1 else ((0.0, None),)
        return spec if weight == self.scale == 1.0 and not more else None

    def __str__(self) -> str:
        return " * ".join(_format_factor(factor) for factor in self.factors) or CONSTANT_TEXT

    def to_json(self) -> dict[str, Any]:
        """Return the kernel as a JSON-compatible dictionary."""
        factors = [[[weight, None if spec is None else spec.to_json()] for weight, spec in factor] for factor in self.factors]
        return {"name": "product", "factors": factors, "scale": self.scale}

    raw_json = to_json

    def digest(self) -> str:
        """Return the SHA-256 of the kernel, its key in a Gram store."""
        return record_digest(self.to_json())

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ProductSpec:
        """Return the kernel of a dictionary made by :meth:`to_json`."""
        factors = [[(float(w), None if spec is None else KernelSpec.from_json(spec)) for w, spec in factor] for factor in record["factors"]]
        return cls(tuple(tuple(factor) for factor in factors), float(record["scale"]))

    @property
    def is_bounded(self) -> bool:
        """Whether all entries are known to be at most one, because the kernel is a product of exponentials of distances."""
        plain = [factor[0][1] for factor in self.factors if len(factor) == 1 and factor[0][0] == 1.0]
        return (
            self.scale <= 1.0 and len(plain) == len(self.factors) and all(spec is not None and KERNELS[spec.name].decays for spec in plain)
        )

    def block(self, places: Mapping[KernelSpec, int], base: Array, out: Array) -> None:
        """Write the entries of a block (r, c) of the product into ``out``. ``base``, (k, r, c), holds the entries of the kernels in the
        product; ``places`` are the positions of these kernels in ``base``.
        """
        parts = [self._factor(factor, places, base) for factor in self.factors]
        if self.scale == 1.0 and len(parts) > 1:
            np.multiply(parts[0], parts[1], out=out)
            parts = parts[2:]
        else:
            out[...] = self.scale
        for part in parts:
            out *= part

    def _factor(self, factor: Factor, places: Mapping[KernelSpec, int], base: Array) -> Array:
        """Return the entries of one factor; for a single kernel, a view of ``base``."""
        if len(factor) == 1 and factor[0][0] == 1.0 and factor[0][1] is not None:
            return base[places[factor[0][1]]]
        total = np.zeros(base.shape[1:], base.dtype)
        for weight, spec in factor:
            total += base.dtype.type(weight) * (base.dtype.type(1.0) if spec is None else base[places[spec]])
        return total


def _format_factor(factor: Factor) -> str:
    if len(factor) == 1 and factor[0][0] == 1.0:
        return str(factor[0][1])
    return "(" + " + ".join(f"{weight:g}{'' if spec is None else f' {spec}'}" for weight, spec in factor) + ")"


AnyKernel = KernelSpec | ProductSpec


def kernel_from_json(record: Mapping[str, Any]) -> AnyKernel:
    """Return the kernel, or product of kernels, that a JSON record describes."""
    return ProductSpec.from_json(record) if record.get("name") == "product" else KernelSpec.from_json(record)


MAX_NAMED = 4  # columns of a kernel up to which their names stand in its text


def named_text(kernel: AnyKernel, columns: Sequence[str] | None) -> str:
    """Return the text of a kernel, or product. A kernel that reads few columns is shown with the names of these columns. ``columns`` are
    the names of all columns, or ``None`` if these have no names.
    """
    if columns is None:
        return str(kernel)
    if isinstance(kernel, KernelSpec):
        if kernel.columns is None or len(kernel.columns) > MAX_NAMED:
            return str(kernel)
        return format_kernel(kernel, [str(columns[j]) for j in kernel.columns])
    factors = [factor[0][1] if len(factor) == 1 and factor[0][0] == 1.0 else None for factor in kernel.factors]
    named = [named_text(spec, columns) for spec in factors if spec is not None]
    return " * ".join(named) if named and len(named) == len(factors) else str(kernel)


def distinct_kernels(specs: Sequence[AnyKernel]) -> list[KernelSpec]:
    """Return the distinct kernels that occur in some kernels and products, in order of first appearance."""
    parts = [spec.kernels if isinstance(spec, ProductSpec) else (spec,) for spec in specs]
    return list(dict.fromkeys(one for part in parts for one in part))
