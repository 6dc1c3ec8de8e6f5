"""Texts end to end: as bytes and lengths, or ends."""

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def split_texts(letters: npt.NDArray[np.uint8], lengths: npt.NDArray[np.integer]) -> list[str]:
    """Return the texts of UTF-8 bytes that lie end to end."""
    data, ends = letters.tobytes(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).tolist()
    return [data[a:b].decode("utf-8", errors="replace") for a, b in pairwise(ends)]


def join_texts(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the UTF-8 bytes of texts end to end, and the bytes of each."""
    coded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(coded), np.uint8), np.array([len(code) for code in coded], np.int64)


def whole_numbers(texts: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """Return texts as whole numbers, if all of them are written as such; None otherwise: "007" is a name."""
    if not all(map(_WHOLE.fullmatch, texts)):
        return None
    return np.array([int(text) for text in texts], np.int64)
