"""One rule for numbers: what a text is, and when values that are compared for equality are numbers.

A numeral is a decimal number that float64 holds: written as an integer it is at most 2^53. Labels, tasks and categories are numbers only if
every one of them reads back as it was written; else they are names, so that 007 and 7, 1.10 and 1.1, or two codes of 18 digits stay apart.
"""

import re
from collections.abc import Collection

import numpy as np

EXACT_INTEGERS = 2**53
BEYOND = "is beyond 2^53 and cannot be stored exactly"
"""What to say of an integer that float64 does not hold."""

MISSING_WORDS = frozenset(("", "na", "nan", "-nan", "null", "none", "?", ".", "n/a", "#n/a", "<na>"))
"""What stands for a missing number, in small letters; in a column of names only an empty text is missing."""

_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_INFINITE = ("inf", "infinity")


def is_decimal(text: str) -> bool:
    """Whether a text is written as a decimal number, however large."""
    return _DECIMAL.fullmatch(text.strip()) is not None


def is_number_like(text: str) -> bool:
    """Whether a text is written as a number, finite or not."""
    return is_decimal(text) or text.strip().lstrip("+-").lower() in _INFINITE


def is_large_integer(text: str) -> bool:
    """Whether a text is written as an integer beyond 2^53."""
    word = text.strip()
    return _WHOLE.fullmatch(word) is not None and abs(int(word)) > EXACT_INTEGERS


def has_leading_zero(text: str) -> bool:
    """Whether a text is a numeral with a zero in front that says nothing of a number: 007."""
    bare = text.strip().lstrip("+-")
    return bare[:1] == "0" and bare[1:2].isdigit() and is_decimal(bare)


def as_number(text: str) -> float | None:
    """Value of a numeral; None for any other text."""
    if not is_decimal(text) or is_large_integer(text):
        return None
    value = float(text.strip())  # (float itself takes fewer characters for blanks)
    return value if np.isfinite(value) else None


def is_missing_word(word: str) -> bool:
    """Whether a text stands for a missing number."""
    return word.strip().lower() in MISSING_WORDS


def exact_number(text: str) -> int | float | None:
    """Number that reads back as the text was written; None where it does not."""
    word, value = text.strip(), as_number(text)
    if value is None:
        return None
    number = int(word) if _WHOLE.fullmatch(word) else value
    return number if str(number) == word else None


def are_numbers(texts: Collection[str]) -> bool:
    """Whether texts that are compared for equality are numbers: each reads back as it was written, and no two mean the same one."""
    numbers = {exact_number(text) for text in texts}
    return None not in numbers and len(numbers) == len({text.strip() for text in texts})


def labels_of_words(words: Collection[str]) -> list[str | int | float]:
    """Labels that words mean: numbers, if the rule makes numbers of them, else names."""
    return [float(word.strip()) for word in words] if are_numbers(words) else list(words)
