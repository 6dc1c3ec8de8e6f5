"""Unsupervised multiple kernel learning."""

from ...records.declared import Profile

PROFILES = (
    Profile(
        "unsupervised-mkl",
        problem="weights of kernels without labels, and kernel principal components on their sum",
        returns="`kernel_weights_`, `transform`",
        certificate="the weights, for the neighbours found",
        nearest="`KernelPCA` on an average of kernels",
        avoid="labels at hand: `mkl` uses them; on eight tables equal weights were as good for an SVM afterwards",
    ),
)
