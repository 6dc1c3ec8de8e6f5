"""The SVMlight parser: numbers to the last bit, rules with places, independence of the buffer, mutated input against a strict reading."""

import io
import random
import struct
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from gramplane.storage import DataError
from gramplane.storage.ingest.labels import Target
from gramplane.storage.ingest.options import Options
from gramplane.storage.ingest.text.cells import _POWERS, to_double
from gramplane.storage.ingest.text.lines import Rules
from gramplane.storage.ingest.text.svmlight import LineParser
from gramplane.storage.ingest.text.text import SvmlightSource
from tests.support.oracles import svmlight as oracle


def parse(text, *, buffer=1 << 12, max_line=1 << 16, low=1, high=2**31 - 2, single=False, skip_qid=False, declared=()):
    """Everything the parser finds in a text: lengths, labels, columns, values, lines counted."""
    rules = Rules(low, high, single, skip_qid, np.array(declared, dtype=np.float64))
    parser = LineParser("in.svm", rules, "is too large", buffer, max_line)
    kept, counted = [], 0
    for block, _, lines in parser.blocks(io.BytesIO(text), int):
        kept.append({name: array.copy() for name, array in block.items()})
        counted = lines
    join = {name: np.concatenate([np.zeros(0), *[block[name] for block in kept]]) for name in ("lengths", "y", "cols", "vals")}
    return join, counted, parser, kept


def same_bits(found, expected):
    return np.array_equal(np.asarray(found, dtype=np.float64).view(np.int64), np.asarray(expected, dtype=np.float64).view(np.int64))


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_every_mantissa_of_19_digits_rounds_as_float_does():
    rng = random.Random(0)
    for _ in range(30_000):
        w, q = rng.randrange(10 ** rng.randint(1, 19)), rng.randint(-345, 312)
        assert to_double(np.uint64(w), q) == float(f"{w}e{q}"), (w, q)


def test_powers_of_five_are_those_the_proof_of_the_rounding_is_about():
    for q, (high, low) in zip(range(-342, 309), _POWERS.tolist(), strict=True):
        scaled = Fraction(5) ** q * Fraction(2) ** (127 - exponent_of(Fraction(5) ** q))
        assert 2**127 <= scaled < 2**128
        assert (high << 64) + low == (ceil(scaled) if -27 <= q < 0 else floor(scaled)), q


def exponent_of(x):
    """Largest e with 2^e <= x."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def test_seventeen_digits_of_any_double_come_back():
    rng = random.Random(1)
    doubles = [struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0] for _ in range(20_000)]
    doubles = [x for x in doubles if np.isfinite(x) and x != 0] + [5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308]
    text = "".join(f"1 {k + 1}:{x!r}\n" for k, x in enumerate(doubles)).encode()
    assert same_bits(parse(text)[0]["vals"], doubles)


@settings(max_examples=300, deadline=None)
@given(st.from_regex(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?", fullmatch=True))
def test_any_decimal_reads_as_float_does(token):
    expected = float(token)
    line = f"1 1:{token} 2:7\n".encode()
    if not np.isfinite(expected):
        with pytest.raises(DataError, match="beyond the range of float64"):
            parse(line)
        return
    assert same_bits(parse(line)[0]["vals"], [x for x in (expected, 7.0) if x != 0])


def half_way(seed):
    """Decimal texts exactly between two doubles, and just off: 19 digits cannot decide them."""
    rng = random.Random(seed)
    low = struct.unpack("<d", struct.pack("<Q", rng.randrange(0x3FF, 0x430) << 52 | rng.getrandbits(52)))[0]
    middle = (Fraction(low) + Fraction(np.nextafter(low, np.inf))) / 2
    digits = f"{middle.numerator * 10**60 // middle.denominator}"
    text = f"{digits[:-60] or '0'}.{digits[-60:].rjust(60, '0')}"
    return [text, f"{text}1", f"{text[:-1]}", f"{text}{'0' * 30}1"]


def test_numbers_19_digits_do_not_decide_go_to_the_exact_parser():
    tokens = [token for seed in range(60) for token in half_way(seed)]
    text = ("1 " + " ".join(f"{k + 1}:{token}" for k, token in enumerate(tokens)) + "\n").encode()
    found, _, parser, _ = parse(text, buffer=1 << 16)
    assert same_bits(found["vals"], [float(token) for token in tokens])
    assert parser._deferred[:1].any(), "the case was meant to reach the exact parser"


def test_zeros_behind_19_digits_are_read_as_any_other_digits():
    tokens = [f"{head}{'0' * 12}" for head in ("9007199254740993.", "9007199254740995.", "0.5", "0.1", "1234567890123456789", "-17.25")]
    found = parse(("1 " + " ".join(f"{k + 1}:{token}" for k, token in enumerate(tokens)) + "\n").encode())[0]
    assert same_bits(found["vals"], [float(token) for token in tokens])


def test_more_undecided_numbers_than_places_for_them():
    token = half_way(0)[1]
    text = ("1 " + " ".join(f"{k + 1}:{token}" for k in range(2500)) + "\n" + f"{token} 3:2\n" * 1100).encode()
    found, lines, _, _ = parse(text, buffer=1 << 18, max_line=1 << 18)
    assert same_bits(found["vals"], [float(token)] * 2500 + [2.0] * 1100)
    assert same_bits(found["y"], [1.0] + [float(token)] * 1100)
    assert lines == 1101


def decimals(value, places=1200):
    """A fraction below one in decimals, exactly."""
    digits = str(value.numerator * 10**places // value.denominator).rjust(places, "0")
    assert Fraction(int(digits), 10**places) == value
    return "0." + digits


def test_undecided_numbers_at_the_edge_of_zero():
    half = decimals(Fraction(5e-324) / 2).rstrip("0")
    below, above = half[:-1] + "4", half + "1"
    assert (float(below), float(half), float(above)) == (0.0, 0.0, 5e-324)
    found = parse(f"1 1:1 2:{below} 3:4 4:{above}\n1 5:{half} 6:{half}\n2 6:1 7:{below}\n".encode())[0]
    assert found["lengths"].tolist() == [3, 0, 1]
    assert found["cols"].tolist() == [1, 3, 4, 6]
    assert same_bits(found["vals"], [1, 4, 5e-324, 1])


@pytest.mark.parametrize("place", ["1 1:{}", "{} 1:1"])
def test_undecided_numbers_at_the_edge_of_infinity(place):
    tie = 2**1024 - 2**970
    assert float(str(tie - 1)) == np.finfo(float).max
    found = parse(place.format(tie - 1).encode())[0]
    assert np.finfo(float).max in (*found["vals"], *found["y"])
    with pytest.raises(DataError, match="beyond the range of float64") as caught:
        parse(b"1 1:1\n" + place.format(tie).encode())
    assert caught.value.line == 2


def test_single_precision_rounds_like_the_loader_and_drops_what_becomes_zero():
    tokens = ["0.1", "1e-46", "16777217", "3.4028234e38", "-1e-45"]
    found = parse(("1 " + " ".join(f"{k + 1}:{t}" for k, t in enumerate(tokens)) + "\n").encode(), single=True)[0]
    with np.errstate(under="ignore"):
        expected = np.array([float(t) for t in tokens]).astype(np.float32)
    assert same_bits(found["vals"], expected[expected != 0])
    with pytest.raises(DataError, match="'1e39' is beyond the range of float32"):
        parse(b"1 1:1e39\n", single=True)


@pytest.mark.parametrize(("values", "kind"), [("1:0.5 2:3", np.float32), ("1:0.5 2:0.1", np.float64), ("1:1e-300", np.float64)])
def test_blocks_are_single_precision_only_if_nothing_is_lost(values, kind):
    assert [block["vals"].dtype for block in parse(f"1 {values}\n".encode())[3]] == [kind]


# -- text --------------------------------------------------------------------------------------------------------------


def sample(rng, rows=60, cols=400, form="%.6g"):
    lines = []
    for _ in range(rows):
        index = np.unique(rng.integers(1, cols, rng.integers(0, 12)))
        lines.append(f"{rng.choice([-1, 1, 2.5])} " + " ".join(f"{k}:{form % x}" for k, x in zip(index, rng.normal(size=index.size))))
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("form", ["%.3g", "%.6g", "%.17g", "%.12e", "%.25f"])
def test_bit_equal_to_scikit_learn(form):
    text = sample(np.random.default_rng(0), rows=300, form=form)
    X, y = load_svmlight_file(io.BytesIO(text), zero_based=False)
    X.eliminate_zeros()
    found = parse(text)[0]
    assert same_bits(found["vals"], X.data)
    assert same_bits(found["y"], y)
    assert np.array_equal(found["cols"] - 1, X.indices)
    assert np.array_equal(found["lengths"], np.diff(X.indptr))


def test_blanks_comments_carriage_returns_and_a_missing_last_line_end():
    text = b"# head\r\n\r\n1 1:2\t3:4 \r\n   \n-1.5# no entries\n\x0b2\x0c1:1#x\n+3 2:0 4:-0.0 5:5e0"
    found, lines, parser, _ = parse(text)
    assert same_bits(found["y"], [1, -1.5, 2, 3])
    assert found["lengths"].tolist() == [2, 0, 1, 1]
    assert found["cols"].tolist() == [1, 3, 1, 5]
    assert (lines, parser.lowest, parser.highest) == (7, 1, 5)


@pytest.mark.parametrize("buffer", [32, 47, 64, 100, 333])
def test_the_buffer_does_not_matter(buffer):
    text = sample(np.random.default_rng(3)) + b"1 1:1"
    whole, part = parse(text), parse(text, buffer=buffer)
    for name in whole[0]:
        assert same_bits(whole[0][name], part[0][name])
    assert whole[1] == part[1]
    assert (whole[2].lowest, whole[2].highest) == (part[2].lowest, part[2].highest)


@pytest.mark.parametrize("buffer", [32, 100, 1 << 12])
def test_every_block_tells_how_far_the_text_was_read(buffer):
    text = sample(np.random.default_rng(3)) + b"1 1:1\n"
    parser = LineParser("in.svm", Rules(1, 2**31 - 2, False, False, np.zeros(0)), "is too large", buffer, 1 << 16)
    places = [(at, lines) for _, at, lines in parser.blocks(io.BytesIO(text), int)]
    assert places[-1][0] == len(text) and (len(places) > 1 or buffer > len(text))
    assert all(text[at - 1 : at] == b"\n" and lines == text[:at].count(b"\n") for at, lines in places)


def test_empty_text_has_no_rows():
    for text in (b"", b"\n", b"# nothing\n\n", b"   "):
        assert parse(text)[0]["y"].size == 0


def test_query_ids():
    with pytest.raises(DataError, match=r"in\.svm:1:3: 'qid:7': query ids are not used; set --qid ignore"):
        parse(b"1 qid:7 1:2\n")
    assert parse(b"1 qid:7 1:2\n", skip_qid=True)[0]["cols"].tolist() == [1]
    for bad in (b"1 qid: 1:2\n", b"1 qid:x 1:2\n", b"1 1:2 qid:3\n"):
        with pytest.raises(DataError):
            parse(bad, skip_qid=True)


FAULTS = [
    ("1 1:x", 1, 5, "value 'x' is not a decimal number"),
    ("1 1:2 2:1_000", 1, 9, "value '1_000' is not a decimal number"),
    ("1 1:0x10", 1, 5, "not a decimal number"),
    ("1 1:1.2.3", 1, 5, "not a decimal number"),
    ("1 1:1e", 1, 5, "not a decimal number"),
    ("1 1:", 1, 5, "value '' is not a decimal number"),
    ("1 1:+-1", 1, 5, "not a decimal number"),
    ("1 1:nan", 1, 5, "value 'nan' is not finite"),
    ("1 1:-Infinity", 1, 5, "value '-Infinity' is not finite"),
    ("1 1:1e999", 1, 5, "'1e999' is beyond the range of float64"),
    ("1 1:2 3", 1, 7, "'3' has no colon"),
    ("1 1:2 a:3", 1, 7, "does not start with an index"),
    ("1 -1:2", 1, 3, "does not start with an index"),
    ("1 1.5:2", 1, 3, "does not start with an index"),
    ("1 1 :2", 1, 3, "'1' has no colon"),
    ("1 1: 2", 1, 5, "value '' is not a decimal number"),
    ("1 0:2", 1, 3, "--zero-based"),
    ("1 3:1 2:1", 1, 7, "index 2 comes after 3; indices must ascend"),
    ("1 3:1 03:1", 1, 7, "index 03 occurs twice"),
    ("1 2147483647:1", 1, 3, "index 2147483647 is too large"),
    ("1 99999999999999999999999:1", 1, 3, "is too large"),
    ("x 1:2", 1, 1, "label 'x' is not a decimal number"),
    ("nan 1:2", 1, 1, "label 'nan' is not finite"),
    ("1,2 1:2", 1, 1, "data with several labels a row are not supported"),
    ("1e400 1:2", 1, 1, "beyond the range of float64"),
    ("1:2 2:3", 1, 1, "label '1:2' is not a decimal number"),
    ("\0", 1, 1, "label"),
    ("1 1:2\n\n# c\n-1 2:z", 4, 6, "value 'z'"),
]


@pytest.mark.parametrize("buffer", [40, 4096])
@pytest.mark.parametrize(("text", "line", "column", "message"), FAULTS)
def test_faults_name_file_line_and_column(text, line, column, message, buffer):
    good = "1 1:2 # fine\n\n" * 9
    with pytest.raises(DataError) as caught:
        parse((good + text + "\n" + good).encode(), buffer=buffer)
    assert (caught.value.file, caught.value.line, caught.value.column) == ("in.svm", line + 18, column)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"in.svm:{line + 18}:{column}: ")


def test_labels_outside_the_declared_ones():
    assert parse(b"1 1:1\n-1 1:1\n", declared=(-1, 1))[0]["y"].tolist() == [1, -1]
    with pytest.raises(DataError, match=r"in\.svm:2:1: label 0 is not one of the declared labels -1, 1"):
        parse(b"1 1:1\n0 1:1\n", declared=(-1, 1))
    with pytest.raises(DataError, match="declared labels"):
        parse(f"1 1:1\n{half_way(0)[1]} 1:1\n".encode(), declared=(-1, 1))


@pytest.mark.parametrize("budget", [8 << 20, 64 << 20, 1 << 30])
def test_text_is_read_into_a_share_of_the_budget(tmp_path, budget):
    (tmp_path / "a.svm").write_text("1 1:1\n")
    parser = SvmlightSource(tmp_path / "a.svm").parser(Options(budget=budget), Target("classification", None))
    assert max(1 << 20, budget // 32) <= parser.buffer.size <= max(2 << 20, budget // 8)
    assert parser.buffer.size <= parser.max_line + 4096 <= max(2 << 20, budget // 4)


def test_lines_longer_than_the_limit():
    text = b"1 1:1\n" + b"1 " + b" ".join(b"%d:1" % k for k in range(1, 400)) + b"\n"
    assert parse(text, buffer=32)[0]["cols"].size == 400
    with pytest.raises(DataError, match=r"in\.svm:2: the line is longer than 1024 bytes; raise the budget"):
        parse(text, buffer=32, max_line=1024)


# -- mutations ---------------------------------------------------------------------------------------------------------

TOKENS = [
    *(
        b"nan",
        b"inf",
        b"1e999",
        b"1_0",
        b"0:1",
        b"-1:2",
        b"5:5:5",
        b"0x10",
        b"qid:3",
        b",",
        b"\r",
        b"\0",
        b"\n",
        b"#",
        b":",
        b" ",
        b"+",
        b"-",
    ),
    *(b".", b"e", b"1:", b":1", b"99999999999:1", b"2147483646:1", b"00007:3", b"1:0", b"7:-0", b"1e-400", b"8:1e-400", b"9:1e+0005"),
    *(b"0." + b"3" * 30, b"9" * 25, b"1:" + b"7" * 22 + b"." + b"1" * 9, b"\xff", b"\t", b"\x0b", b"1.e1", b".5", b"5.", b"e5", b"1E5"),
]


def mutated(rng, text):
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(text) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            text = text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        elif kind == 1:
            text = text[:at] + text[at + rng.randint(1, 9) :]
        elif kind == 2:
            text = text[:at] + rng.choice(TOKENS) + text[at:]
        elif kind == 3:
            text = text[:at] + b" " + rng.choice(TOKENS) + b" " + text[at:]
        else:
            end = at + rng.randint(1, 30)
            text = text[:end] + text[at:end] + text[end:]
    return text


@pytest.mark.parametrize("seed", range(4))
def test_mutated_text_is_refused_at_the_right_line_or_read_as_the_strict_reading_does(seed):
    rng = random.Random(seed)
    base = sample(np.random.default_rng(seed), rows=6, cols=30) + b"# c\n1 2:3\r\n"
    single, buffer = bool(seed % 2), (64, 4096)[seed // 2]
    accepted = refused = 0
    for _ in range(1500):
        text = mutated(rng, base)
        try:
            rows, labels = oracle.read(text, single=single)
        except oracle.Refused as why:
            with pytest.raises(DataError) as caught:
                parse(text, single=single, buffer=buffer)
            assert caught.value.line == why.line, (text, why, caught.value)
            refused += 1
            continue
        found = parse(text, single=single, buffer=buffer)[0]
        assert same_bits(found["y"], labels), text
        assert found["lengths"].tolist() == [len(row) for row in rows], text
        assert found["cols"].tolist() == [index for row in rows for index, _ in row], text
        assert same_bits(found["vals"], [value for row in rows for _, value in row]), text
        accepted += 1
    assert min(accepted, refused) > 100
