"""Signs of eigenvectors: the largest entry is positive, the first where rounding alone decides between equal ones."""

import numpy as np

from gramplane.kernels.eigen.block_lanczos import column_signs


def test_the_largest_entry_decides():
    vectors = np.array([[0.1, -0.9, 0.0], [-0.5, 0.2, 0.0], [0.4, 0.3, 0.0]])
    assert column_signs(vectors).tolist() == [-1.0, -1.0, 1.0]


def test_rounding_does_not_decide_between_equal_ones():
    for noise in (-1e-9, 0.0, 1e-9):
        vectors = np.array([[0.3], [-0.5 + noise], [0.5], [-0.2]])
        assert column_signs(vectors).tolist() == [-1.0]
        assert column_signs(-vectors).tolist() == [1.0]
    assert column_signs(np.array([[-0.5], [0.5 + 1e-4]])).tolist() == [1.0]
    assert column_signs(np.zeros((3, 0))).tolist() == []
