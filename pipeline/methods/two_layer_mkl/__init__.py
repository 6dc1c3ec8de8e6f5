"""Two-layer multiple kernel learning."""

from ...records.declared import Profile

PROFILES = (
    Profile(
        "two-layer-mkl",
        problem="support vector machine on the exponential of a learnt sum of kernels",
        returns="`kernel_weights_` of the first layer",
        certificate="the SVMs, at these weights; the problem in the weights is not convex",
        nearest="`SVC` with a tuned product of kernels",
        avoid="a certificate over the weights is needed: `mkl`",
    ),
)
