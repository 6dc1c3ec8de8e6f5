"""Configuration errors: each names its position, the value, and a suggestion."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..pipeline.records.names import joined_branches, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    M = TypeVar("M", bound=BaseModel)

Loc = tuple[str | int, ...]
Locator = Callable[[Loc], str]
_SHOWN = 10


class ConfigError(ValueError):
    """A workflow file, a parameter or an option is invalid; every line of the message names the position of one problem.

    ``remedy``: what to do about it, if the message does not say so.
    """

    remedy = ""


class CheckFailed(Exception):
    """A score does not meet the bound of a ``check`` step."""


def choose(word: str, known: Iterable[str], what: str) -> str:
    """Return ``word`` if it is known. Raises ConfigError with the closest known name otherwise."""
    names = list(known)
    if word not in names:
        raise ConfigError(f"unknown {what} {word!r}{nearest(word, names)}")
    return word


def dotted_path(loc: Sequence[str | int]) -> str:
    """Return ``steps[1].with.C`` for ``("steps", 1, "with", "C")``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.lstrip(".")


def by_name(prefix: str) -> Locator:
    """Return a function that names values which come from no file, such as ``--set C``."""
    return lambda loc: f"{prefix}{dotted_path(loc)}" if loc else ""


def by_option(loc: Loc) -> str:
    """Return ``--zero-based`` for the field ``zero_based``."""
    return f"--{dotted_path((str(loc[0]).replace('_', '-'), *loc[1:]))}" if loc else ""


def _finding_message(error: Mapping[str, Any], known: Callable[[Loc], Iterable[str]]) -> str:
    key = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        return f"unknown key {key!r}{nearest(key, known(error['loc']))}"
    if error["type"] == "missing":
        return f"key {key!r} is missing"
    text = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "union_tag_invalid":
        context = error["ctx"]
        tags = re.findall(r"'([^']*)'", context["expected_tags"])
        return f"unknown {context['discriminator']} {context['tag']!r}{nearest(context['tag'], tags)}"
    if isinstance(error["input"], (str, int, float, bool)):
        return f"{text}, not {error['input']!r}" if text.startswith("must be ") else f"{text} (found {error['input']!r})"
    return text


def describe_problem(problem: ValidationError, place: Locator, known: Callable[[Loc], Iterable[str]]) -> ConfigError:
    """Convert pydantic's errors to a single error, whose message has one line for each of them, beginning with its position."""
    rows = joined_branches(problem.errors(include_url=False))
    lines = [": ".join(filter(None, (place(row["loc"]), _finding_message(row, known)))) for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        lines.append(f"and {len(rows) - _SHOWN} more")
    return ConfigError("\n".join(dict.fromkeys(lines)))


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the keys of a model as users type them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def validate_values(model: type[M], values: Mapping[str, Any], place: Locator) -> M:
    """Return a ``model`` with these values. Raises ConfigError with each wrong key or value, its position and the closest known name."""
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(values))
    except ValidationError as problem:
        raise describe_problem(problem, place, lambda loc: keys_of(model)) from None


TEMPLATE = r"\{\{\s*(.*?)\s*\}\}"
_VARIABLE = re.compile(rf"\$(?:\$|\{{([^}}]*)\}})|{TEMPLATE}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def template_key(expression: str) -> str:
    """Return the key of the value of a template: ``{{ ds }}`` for ``ds``."""
    return f"{{{{ {expression} }}}}"


def expand_variables(text: str, where: str, environ: Mapping[str, str] | None = None) -> str:
    """Replace ``${NAME}`` and ``${NAME:-default}`` by environment variables, ``$$`` by ``$``, and templates such as ``{{ ds }}`` by the
    values of the keys ``{{ ds }}``.

    Raises ConfigError, starting with ``where``, if a variable is unset and has no default, if ``${...}`` contains no valid name, or if a
    template has no value.
    """
    known = os.environ if environ is None else environ

    def value(found: re.Match[str]) -> str:
        if found[2] is not None:
            key = template_key(found[2])
            if key not in known:
                raise ConfigError(
                    f"{where}: template {key} has no value; Airflow gives it one, elsewhere add --template '{found[2]}=VALUE'"
                )
            return known.get(key, "")
        if found[1] is None:
            return "$"
        name = _NAME.fullmatch(found[1])
        if name is None:
            raise ConfigError(f"{where}: {found[0]!r} names no variable; write ${{NAME}} or ${{NAME:-default}}, and $$ for a dollar sign")
        default = name[2]
        if name[1] not in known and default is None:
            raise ConfigError(f"{where}: environment variable {name[1]} is not set; set it or write ${{{name[1]}:-default}}")
        return known.get(name[1], default or "")

    return _VARIABLE.sub(value, text)
