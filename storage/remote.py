"""Objects in an object store or on a web server, accessed by obstore's synchronous calls.

The asynchronous calls finish in one of obstore's own threads, which passes the result to Python. If the process ends at that moment, the
thread accesses an interpreter that is shutting down and aborts the process (PyO3/pyo3-async-runtimes#40). The synchronous calls do not
touch Python until they return.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import copy
from datetime import timedelta
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from .errors import AccessRefused, Foreign, MissingBlock, NothingThere, SchemaError, StorageError, Unreachable, space_for
from .locks import LOCK, Lease, object_version
from .objects import Bytes, as_bytes, check_key, total_bytes, wrong_length
from .places import SCHEMES

if TYPE_CHECKING:
    from obstore.store import ObjectStore

P = ParamSpec("P")
T = TypeVar("T")
_PIECE = 8 << 20
ASK_THE_MACHINE = "GRAMPLANE_INSTANCE_CREDENTIALS"
"""Environment variable that permits requesting credentials from the metadata address of a cloud instance."""

_CREDENTIALS = {
    "s3": r"AWS_(ACCESS_KEY_ID|WEB_IDENTITY_TOKEN_FILE|CONTAINER_CREDENTIALS_(RELATIVE|FULL)_URI)",
    "gs": r"GOOGLE_(SERVICE_ACCOUNT(_PATH|_KEY)?|APPLICATION_CREDENTIALS|BEARER_TOKEN)",
    "az": r"AZURE_(STORAGE_)?((ACCOUNT_)?(ACCESS_|MASTER_)?KEY|SAS_(KEY|TOKEN)|TOKEN|CLIENT_SECRET|FEDERATED_TOKEN_FILE|USE_AZURE_CLI"
    r"|USE_EMULATOR)",
}
_FAMILY = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "azure": "az", "abfs": "az", "abfss": "az"}
_GCLOUD = Path(".config", "gcloud", "application_default_credentials.json")

_CLIENT: dict[str, Any] = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=30)}
_CLIENT_VARIABLES = re.compile(r"(?:AWS|GOOGLE|AZURE)_(ALLOW_HTTP|ALLOW_INVALID_CERTIFICATES|CONNECT_TIMEOUT|TIMEOUT|PROXY_URL|USER_AGENT)")
_RETRY: Foreign = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=45),  # longer than one request may take, so that one that hangs is sent again
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 2},
}
"""Retry settings: temporary failures are retried. An unreachable store is reported within half a minute, a store that hangs within two
minutes.
"""

_BODIES = 3
"""Largest number of attempts to read the body of an answer."""


class _Broken(Unreachable):
    """The body of an answer ended early."""


def _whole(read: Callable[P, T]) -> Callable[P, T]:
    """Repeat a request if its answer is cut off. The client itself resumes only objects that have a tag."""

    @wraps(read)
    def whole(*args: P.args, **names: P.kwargs) -> T:
        for _ in range(_BODIES - 1):
            with suppress(_Broken):
                return read(*args, **names)
        return read(*args, **names)

    return whole


def _has_credentials(scheme: str, environment: Mapping[str, str] | None = None) -> bool:
    variables = os.environ if environment is None else environment
    family = _FAMILY[scheme]
    if any(value and re.fullmatch(_CREDENTIALS[family], name, re.IGNORECASE) for name, value in variables.items()):
        return True
    return family == "gs" and Path(variables.get("HOME", "/"), _GCLOUD).is_file()


def is_unsigned(scheme: str, environment: Mapping[str, str] | None = None) -> bool:
    """Return whether requests are unsigned: no credentials are set, and asking the cloud instance for them is not permitted. Raises
    SchemaError for malformed settings.
    """
    variables = os.environ if environment is None else environment
    allowed = variables.get(ASK_THE_MACHINE, "").lower()
    if allowed not in ("", "0", "no", "false", "1", "yes", "true"):
        raise SchemaError(f"{ASK_THE_MACHINE}={allowed!r}: must be 1 or 0")
    return allowed in ("", "0", "no", "false") and not _has_credentials(scheme, variables)


def connect_store(url: str) -> "ObjectStore":
    """Return a client of the store behind a URL. Raises SchemaError if obstore is not installed or does not accept the URL."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import HTTPStore, from_url
    except ImportError as error:
        raise SchemaError(f"url {url!r} needs obstore: install gramplane[s3]") from error
    scheme = urlsplit(url).scheme
    try:
        if SCHEMES[scheme] == "web":
            options: Foreign = {**_CLIENT, "allow_http": True}
            return HTTPStore.from_url(url, client_options=options, retry_config=_RETRY)
        signature: Foreign = {"skip_signature": True} if is_unsigned(scheme) else {}
        return from_url(url, client_options=_client_options(scheme), retry_config=_RETRY, **signature)
    except (BaseError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"url {url!r} cannot be opened: {_first_line(error)}") from error


def _client_options(scheme: str) -> Foreign:
    """Return the client's options: environment variables, and our defaults where these are not set. The variables are passed explicitly
    because explicit options would otherwise hide them.
    """
    prefix = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}[_FAMILY[scheme]]
    variables = [(_CLIENT_VARIABLES.fullmatch(name), value) for name, value in os.environ.items() if name.startswith(prefix)]
    options: dict[str, Any] = {match[1].lower(): value for match, value in variables if match}
    for flag in ("allow_http", "allow_invalid_certificates"):
        if flag in options:
            options[flag] = options[flag].lower() in ("1", "true", "yes", "on", "y")
    return {**_CLIENT, **options}


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].strip()


@cache
def _waiting_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="gramplane-objects")


def wait_for(call: Callable[[], T]) -> T:
    """Run ``call`` and return its result. In the main thread, another thread runs it, because a native call would block signals."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    return _waiting_thread().submit(call).result()


def _as_array(data: Foreign) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8)


class RemoteObjects:
    """Objects below a URL, accessed through a client of its store."""

    def __init__(self, url: str, store: "ObjectStore") -> None:
        self.url = url
        self.store = store
        self._folder = ""
        self._answered = False

    def below(self, folder: str) -> "RemoteObjects":
        """Return the objects below a folder (those whose keys begin with it), using the same client."""
        made = copy(self)
        made.url, made._folder = f"{self.url}/{folder}", f"{self._folder}{folder}/"
        return made

    @contextmanager
    def asking(self, key: str) -> Iterator[None]:
        """Convert the store's errors into gramplane's; an object that does not exist gives ``FileNotFoundError``."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError:
            self._require_bucket()
            raise
        except BaseError as error:
            raise _translate_error(f"{self.url}/{key}" if key else self.url, error) from error
        self._answered = True

    def _require_bucket(self) -> None:
        # Only a listing tells a bucket that is not there from an object that is not; a web server knows neither.
        if not self._answered and urlsplit(self.url).scheme not in ("http", "https"):
            self._answered = True
            try:
                self.any()
            except BaseException:
                self._answered = False
                raise

    def any(self) -> bool:
        """Return whether there is any object below the URL."""
        import obstore

        with self.asking(""):
            return wait_for(lambda: next(iter(obstore.list(self.store, self._folder or None, chunk_size=1)), None)) is not None

    def about(self, key: str) -> Mapping[str, Any] | None:
        """Return the store's metadata of an object (size, e_tag, last_modified); None if it is absent."""
        import obstore

        with suppress(FileNotFoundError), self.asking(key):
            return wait_for(lambda: obstore.head(self.store, self._folder + key))

    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes; None if it is absent."""
        about = self.about(check_key(key))
        return None if about is None else int(about["size"])

    @_whole
    def read(self, key: str) -> Bytes:
        """Return the content of an object."""
        import obstore

        try:
            with self.asking(check_key(key)):
                return _as_array(wait_for(lambda: obstore.get(self.store, self._folder + key).bytes()))
        except FileNotFoundError as error:
            raise self._absent(key) from error

    def read_into(self, key: str, out: Bytes, offset: int, nbytes: int) -> None:
        """Fill ``out`` with the bytes from ``offset`` on, after checking that the object has ``nbytes`` bytes."""
        whole = offset == 0 and out.nbytes == nbytes
        data = self.read(key) if whole else self._range(key, offset, offset + out.nbytes, nbytes)
        if data.nbytes != out.nbytes:
            raise wrong_length(self.url, key, offset + data.nbytes, nbytes)
        out[:] = data

    @_whole
    def _range(self, key: str, start: int, end: int, nbytes: int) -> Bytes:
        import obstore

        try:
            with self.asking(check_key(key)):
                return _as_array(wait_for(lambda: obstore.get_range(self.store, self._folder + key, start=start, end=end)))
        except FileNotFoundError as error:
            raise self._absent(key) from error
        except StorageError as error:
            # A range beyond the end is answered by an error, in a form of each store's own.
            size = None if isinstance(error, Unreachable | AccessRefused) else self.size(key)
            if size is None or size == nbytes:
                raise
            raise wrong_length(self.url, key, size, nbytes) from error

    def _absent(self, key: str) -> MissingBlock:
        return MissingBlock(f"{self.url}/{key} is absent: the store is incomplete or damaged")

    def write(self, key: str, *parts: npt.NDArray | bytes, fsync: bool = False) -> None:
        """Replace an object by the concatenated parts; object stores do this atomically and durably."""
        self.put(check_key(key), b"".join(as_bytes(part).tobytes() for part in parts), total_bytes(*parts))

    def put(self, key: str, data: bytes | Path, nbytes: int) -> None:
        """Replace an object by bytes, or by the content of a file."""
        import obstore

        try:
            with space_for(f"{self.url}/{key}", nbytes), self.asking(key):
                wait_for(lambda: obstore.put(self.store, self._folder + key, data))
        except FileNotFoundError as error:
            raise NothingThere(f"{self.url} does not exist") from error

    def replace(self, key: str, data: bytes, seen: Mapping[str, Any] | None) -> bool:
        """Replace an object if it has not changed since it was ``seen`` (by `about`; None: absent); return whether it was replaced."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Foreign = "create" if seen is None else object_version(seen)
        with space_for(f"{self.url}/{key}", len(data)), self.asking(key):
            try:
                wait_for(lambda: obstore.put(self.store, self._folder + key, data, mode=mode))
            except (AlreadyExistsError, PreconditionError):
                # A request that was sent again may have met what it wrote the first time.
                return self.read(key).tobytes() == data
        return True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lease of the store at the URL. Raises RunLocked if another process holds it or took it over meanwhile."""
        with self.asking(LOCK), Lease(self.store, self._folder + LOCK).held(wait=True) as lease:
            yield
            lease.check()

    def folders(self) -> list[str]:
        """Return the names of the folders directly below the URL."""
        import obstore

        with self.asking(""):
            found = wait_for(lambda: obstore.list_with_delimiter(self.store, self._folder or None)["common_prefixes"])
        return [str(name).rstrip("/").rpartition("/")[2] for name in found]

    def delete(self, key: str) -> None:
        import obstore

        with suppress(FileNotFoundError), self.asking(check_key(key)):
            wait_for(lambda: obstore.delete(self.store, self._folder + key))

    def listing(self) -> Iterator[str]:
        """Yield all keys, in no particular order."""
        import obstore

        with self.asking(""):
            pages = wait_for(lambda: list(obstore.list(self.store, self._folder or None)))
        yield from (str(row["path"]).removeprefix(self._folder) for page in pages for row in page)

    def clear(self) -> None:
        """Remove every object."""
        import obstore

        if keys := list(self.listing()):
            with self.asking(""):
                wait_for(lambda: obstore.delete(self.store, [self._folder + key for key in keys]))

    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield the content of an object in pieces. Raises NothingThere if it is absent."""
        import obstore

        try:
            with self.asking(key):
                stream = iter(wait_for(lambda: obstore.get(self.store, self._folder + key)).stream(min_chunk_size=_PIECE))
            while True:
                with self.asking(key):
                    piece = wait_for(lambda: next(stream, b""))
                if not len(piece):
                    return
                yield piece
        except FileNotFoundError as error:
            raise NothingThere(f"{self.url}/{key} does not exist") from error

    @_whole
    def fetch(self, key: str, path: Path) -> None:
        """Copy an object into a file in pieces. Raises NothingThere if it is absent."""
        with path.open("wb") as file:
            for piece in self.pieces(key):
                with space_for(path, len(piece)):
                    file.write(piece)


_STATUS = re.compile(r"status code: (\d{3})")


def _translate_error(url: str, error: BaseException) -> StorageError:
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    text = str(error)
    status = int(match[1]) if (match := _STATUS.search(text)) else None
    if "NoSuchBucket" in text or ("error performing list" in text.lower() and status == 404):
        return NothingThere(f"the bucket of {url} does not exist; create it, or correct the URL")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in (401, 403):
        scheme = urlsplit(url).scheme
        machine = f", or {ASK_THE_MACHINE}=1 to ask the cloud computer for its own" if scheme in _FAMILY and is_unsigned(scheme) else ""
        return AccessRefused(f"{url}: access refused (status {status}); set credentials with this right in the environment{machine}")
    if status is None and "HTTP error" in text:
        kind = re.search(r"kind: (\w+)", text)
        causes = {"Connect": "no connection", "Timeout": "no answer in time", "Interrupted": "its answer ends half way"}
        cause = causes.get(kind[1] if kind else "", "the request was not answered")
        what = _Broken if kind and kind[1] in ("Interrupted", "Decode") else Unreachable
        return what(f"{url} is not reached: {cause}; run the same command again when it is")
    if status is not None and (status >= 500 or status == 429):
        return Unreachable(f"{url}: the store answers {status}, now and when asked again; run the same command later")
    return StorageError(f"{url}: {_first_line(error)}")
