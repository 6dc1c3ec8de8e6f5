"""Generalized multiple kernel learning."""

from ...records.declared import Profile

PROFILES = (
    Profile(
        "mkl",
        problem="support vector machine on a learnt weighted sum of kernels",
        returns="`kernel_weights_`, support vectors",
        certificate="all weights of all kernels",
        nearest="`SVC`; MKLpy `EasyMKL`; himalaya `MultipleKernelRidgeCV`",
        avoid="more than some ten thousand rows in one process, or a single kernel: `SVC` is enough",
    ),
)
