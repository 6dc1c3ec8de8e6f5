"""Table of the allowed uses of paths and URLs, checked by all commands and functions before they start.

No numerical library is imported here, so that the command line can check its arguments while parsing them.
"""

import os
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from .errors import UrlError

Kind = Literal["path", "file", "objects", "web"]
"""A local path or ``file://`` URL, an object store, or a web server (read-only)."""

SCHEMES: dict[str, Kind] = {
    **dict.fromkeys(("file",), "file"),
    **dict.fromkeys(("s3", "s3a", "gs", "az", "azure", "abfs", "abfss"), "objects"),
    **dict.fromkeys(("http", "https"), "web"),
}
_LOCAL: frozenset[Kind] = frozenset({"path", "file"})
_WRITTEN: frozenset[Kind] = frozenset({"path", "file", "objects"})
_READ: frozenset[Kind] = frozenset({"path", "file", "objects", "web"})


@dataclass(frozen=True)
class Use:
    """A use of a path or URL: its name in messages, the kinds of locations allowed, and the reason why other kinds are not allowed."""

    name: str
    kinds: frozenset[Kind]
    why: str


_RUN_WHY = "a run lies in a local folder, for its lock and its checkpoints; stores, sources and predictions may lie in an object store"
_TEXT_WHY = "it is read from a local file; download it first"
USES: dict[str, Use] = {
    "source": Use("a source", _READ, ""),
    "store": Use("a store to read", _READ, ""),
    "new-store": Use("a store to write", _WRITTEN, "a web server is only read; write to a path, file:// or an object store"),
    "predictions": Use("predictions to write", _WRITTEN, "a web server is only read; write to a path, file:// or an object store"),
    "run": Use("a run", _LOCAL, _RUN_WHY),
    "folder": Use("a folder to write", _LOCAL, "pages and tables are written to a local folder; copy them from there"),
    "file": Use("a file beside the data", _LOCAL, _TEXT_WHY),
    "stream": Use("a text that is learnt from as it is read", _LOCAL, "it is read from a local file or from standard input (-)"),
    "anything": Use("a store or run", _READ, ""),
    "left-overs": Use("what clean looks through", _WRITTEN, "a web server is only read"),
}
"""Allowed kinds of locations for each use; functions that take a path or URL name one of these uses."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Place:
    """A location: a path (also for ``file://``), or a URL without a trailing slash."""

    kind: Kind
    text: str


def parse_place(url: str | os.PathLike[str], use: str | None = None, what: str = "url") -> Place:
    """Return a path or URL as a location that is allowed for ``use``, a key of `USES`; without ``use`` only the form is checked.

    Raises UrlError for an unknown scheme, a form that is probably a mistake, credentials in the URL, or a kind of location that is not
    allowed for this use.
    """
    text = os.fspath(url)
    parsed = _read_form(text, what)
    if use is not None and parsed.kind not in USES[use].kinds:
        chosen = USES[use]
        forms = ", ".join(["a path", *(f"{scheme}://" for scheme, kind in SCHEMES.items() if kind in chosen.kinds)])
        raise UrlError(f"{what} {text!r} cannot be {chosen.name}: {chosen.why} (allowed: {forms})")
    return parsed


def check_place(url: str, use: str, what: str = "url") -> str:
    """Check a path or URL (see `parse_place`) and return it as text: a URL of an object store or web server, else a local path."""
    return parse_place(url, use, what).text


def is_local(url: str | os.PathLike[str]) -> bool:
    """Return whether this is a local path or a ``file://`` URL."""
    return parse_place(url).kind in _LOCAL


def _read_form(text: str, what: str) -> Place:
    if _WINDOWS.match(text):
        raise UrlError(f"{what} {text!r} looks like a Windows path; write / in paths (for a file of this name: ./{text})")
    match = _SCHEME.match(text)
    if match is None or (match[2] is None and match[1].lower() not in SCHEMES):
        if not text or "\0" in text:
            raise UrlError(f"{what} {text!r} is not a path")
        return Place("path", text)
    scheme = match[1].lower()
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise UrlError(f"{what} {_hide_secrets(text)!r} has the scheme {match[1]!r}; give a path, or a URL with {known}")
    if match[2] is None:
        raise UrlError(f"{what} {_hide_secrets(text)!r} lacks the slashes of {scheme}:// (for a local file of this name: ./{text})")
    return _parse_local(text, what) if scheme == "file" else _parse_remote(text, scheme, what)


def _parse_local(text: str, what: str) -> Place:
    # Not urlsplit alone: in a file name ? and # are letters.
    host, slash, path = text[len("file://") :].partition("/")
    if host not in ("", "localhost") or not slash:
        raise UrlError(f"{what} {_hide_secrets(text)!r} names the host {host!r}; a file URL of this computer starts with file:///")
    return Place("file", os.path.abspath("/" + unquote(path)))


def _parse_remote(text: str, scheme: str, what: str) -> Place:
    parts, shown = urlsplit(text), _hide_secrets(text)
    # A container of abfs://container@account is no secret.
    user = "" if scheme.startswith("abfs") and ":" not in parts.netloc.partition("@")[0] else parts.netloc.rpartition("@")[0]
    if user or parts.query or parts.fragment or "?" in text or "#" in text:
        advice = "set credentials in the environment, because URLs appear in logs and files"
        raise UrlError(f"{what} {shown!r} has a user, a query or a fragment; {advice} (in a name write %3F for ?, %23 for #)")
    if not parts.netloc:
        raise UrlError(f"{what} {shown!r} names no bucket or host")
    if _CONTROL.search(text) or any(part in (".", "..") for part in unquote(parts.path).split("/")):
        raise UrlError(f"{what} {shown!r} has a part '.' or '..', or a control character; write the place in full")
    return Place(SCHEMES[scheme], f"{scheme}{text[len(scheme) :]}".rstrip("/"))


def _hide_secrets(text: str) -> str:
    scheme, _, address = text.partition("://")
    host, slash, path = re.split(r"[?#]", address)[0].partition("/")
    hidden = "***@" + host.rpartition("@")[2] if "@" in host else host
    return f"{scheme}://{hidden}{slash}{path}{'?***' if re.search(r'[?#]', address) else ''}" if address else text
