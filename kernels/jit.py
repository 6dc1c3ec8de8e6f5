"""The only place with numba options and thread limits.

Everything compiled goes through :func:`compiled`; everything that calls BLAS goes through :func:`one_thread`.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ContextDecorator, contextmanager, suppress
from typing import Any, TypeVar, cast, overload

import numba
import numpy as np
import threadpoolctl
from llvmlite import ir
from numba.core import cgutils, compiler, dispatcher, event, sigutils, targetconfig, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

PATIENCE_SECONDS = 0.05  # A deferred function is compiled once Python has run it for so long, seconds of a processor.


def _number_functions_at_random() -> None:
    """Let the functions that this process compiles have names that no other process gives. numba numbers the functions of a process from 1
    and names by that number what cached code refers to. Two cache files that were written by two processes, or by two versions of the
    source, then now and then mean different things by one name, and a call ends with "'descr' is NULL". Numbers that begin at random do not
    meet.
    """
    identity: Any = getattr(importlib.import_module("numba.core.bytecode"), "FunctionIdentity", None)
    if hasattr(identity, "_unique_ids"):
        identity._unique_ids = itertools.count(secrets.randbits(48))


_number_functions_at_random()


@overload
def compiled(function: F) -> F: ...
@overload
def compiled(*, reassociate: bool = False, inline: bool = False, deferred: bool = False) -> Callable[[F], F]: ...
def compiled(function: F | None = None, *, reassociate: bool = False, inline: bool = False, deferred: bool = False) -> F | Callable[[F], F]:
    """Compile a function with numba: cached on disk, without the interpreter lock, IEEE division. Bare, or with options, a decorator.
    ``reassociate``: let sums be re-ordered so that they vectorise. The order is fixed at compile time, so results repeat bit for bit on one
    kind of CPU; NaN and infinity keep their meaning. Measured: a gather loop gets *slower* with it, so it is chosen loop by loop. A loop
    that sums may not write an array, too: its order would be chosen at run time, by whether arrays lie close to each other in memory.
    ``inline``: paste the body into compiled callers, which saves a call in an inner loop.
    ``deferred``: of work so little, on little data, that compiling takes longest: Python runs it, to the same bits, until that has taken
    PATIENCE_SECONDS, unless compiled code lies on disk. It has float64 and integers only, and no sums or products of NumPy.
    """
    # Without the second entry point, for callers in C, which nobody needs: a tenth of the time to compile.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    if reassociate:
        options["fastmath"] = {"reassoc"}
    if inline:
        options["inline"] = "always"

    def decorate(target: F) -> F:
        made = cache_if_possible(lambda cache: numba.njit(**options, cache=cache), target)
        if deferred and hasattr(made, "_compile_for_args"):
            _Deferral(made, target)
        return made

    return decorate if function is None else decorate(function)


def cache_if_possible(decorate: Callable[[bool], Callable[..., Any]], function: F) -> F:
    """Compile a function with numba's cache where there is one to write to; a cache that is full or may not be written costs time only.
    ``decorate`` returns the decorator, with the cache or without.
    """
    try:
        made = decorate(True)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return decorate(False)(function)
    cache: Any = getattr(made, "_cache", None)
    for name in ("save_overload", "load_overload"):
        if hasattr(cache, name):
            setattr(cache, name, _ignore_io_errors(getattr(cache, name), cache.flush))
    _stamp(made, function)
    _save_compile_time(made)
    return made


def _stamp(made: object, function: Callable[..., object]) -> None:
    """Let what is cached of a function be made anew when a file of a compiled function that it calls changes, not its own file alone."""
    called = (function.__globals__.get(name) for name in function.__code__.co_names)
    files: list[Any] = [getattr(getattr(each, "_cache", None), "_cache_file", None) for each in (made, *called)]
    if hasattr(files[0], "_source_stamp"):
        files[0].stamps = {files[0]._source_stamp}.union(*(file.stamps for file in files[1:] if hasattr(file, "stamps")))
        files[0]._source_stamp = tuple(sorted(files[0].stamps))


def _ignore_io_errors(touch: Callable[..., object], flush: Callable[[], None]) -> Callable[..., object]:
    def tried(*args: object) -> object:
        with suppress(OSError, EOFError):
            try:
                return touch(*args)
            except (AttributeError, ImportError):
                # What is cached names a class or a module that is no more: the code was changed.
                flush()
        return None

    return tried


def _save_compile_time(made: Any) -> None:
    """Let a function that is compiled for another one that calls it have no entry for Python, which is a tenth of the time, and stay off
    the disk, where only what Python calls is looked for. It gets its entry when Python calls it all the same.
    """
    if not (_CAN_SAVE and hasattr(made, "add_overload")):
        return
    without_entry: set[tuple[object, ...]] = set()
    compile_types, compile_signature = made._compiler.compile, made.compile
    add_overload, save_overload = made.add_overload, made._cache.save_overload

    def compile_here(*arguments: object) -> object:
        with _COMPILATION:
            return compile_types(*arguments)

    def add(result: Any) -> None:
        if _COMPILATION.depth == 0 or result.library.get_pointer_to_function(result.fndesc.llvm_cpython_wrapper_name):
            add_overload(result)
        else:
            made.overloads[tuple(result.signature.args)] = result
            without_entry.add(tuple(result.signature.args))

    def save(*arguments: object) -> None:
        if _COMPILATION.depth == 0:
            save_overload(*arguments)

    def compile_with_entry(signature: object) -> object:
        if _COMPILATION.depth == 0 and without_entry:
            types_of_arguments = tuple(sigutils.normalize_signature(signature)[0])
            if types_of_arguments in without_entry:
                without_entry.discard(types_of_arguments)
                made.overloads.pop(types_of_arguments, None)
        return compile_signature(signature)

    made._compiler.compile, made._compiler.pipeline_class, made.compile = compile_here, _Pipeline, compile_with_entry
    made.add_overload, made._cache.save_overload = add, save


class _Compilation(threading.local):
    """Functions that this thread is compiling, each for the one before it, and the time of its processor that this took. Garbage
    collections, a tenth of it, wait until all are compiled.
    """

    depth, collects, seconds, began = 0, False, 0.0, 0.0

    def __enter__(self) -> None:
        if self.depth == 0:
            self.collects, self.began = gc.isenabled(), time.thread_time()
            gc.disable()
        self.depth += 1

    def __exit__(self, *exc: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.seconds += time.thread_time() - self.began
            if self.collects:
                gc.enable()


_COMPILATION = _Compilation()


class _NotOnDisk(Exception):
    """What a deferred function was looked for."""


class _Deferral:
    """Chooses what runs a deferred function for arguments of types that it is not compiled for."""

    _here = threading.local()
    is_patient = True

    def __init__(self, made: Any, function: Callable[..., object]) -> None:
        self._function, self._compile_for = function, made._compile_for_args
        self._seconds_left, self._is_on_disk = PATIENCE_SECONDS, True
        self._load, made._cache.load_overload, made._compile_for_args = made._cache.load_overload, self._load_if_there, self._choose

    def _choose(self, *arguments: object) -> Callable[..., object]:
        if not _Deferral.is_patient:
            return self._compile_for(*arguments)
        if getattr(self._here, "is_inside", False):
            return self._function
        if self._is_on_disk:
            self._here.is_looking = True
            try:
                return self._compile_for(*arguments)
            except _NotOnDisk:
                self._is_on_disk = False
            finally:
                self._here.is_looking = False
        return self._run if self._seconds_left > 0.0 else self._compile_for(*arguments)

    def _load_if_there(self, *arguments: object) -> object:
        result = self._load(*arguments)
        if result is None and getattr(self._here, "is_looking", False):
            raise _NotOnDisk
        return result

    def _run(self, *arguments: object) -> object:
        began = time.thread_time() - _COMPILATION.seconds
        self._here.is_inside = True
        try:
            with np.errstate(all="ignore"):
                result = self._function(*arguments)
        finally:
            self._here.is_inside = False
            self._seconds_left -= time.thread_time() - _COMPILATION.seconds - began
        return tuple(map(_plain_number, result)) if isinstance(result, tuple) else _plain_number(result)


@contextmanager
def compile_at_once() -> Generator[None]:
    """Let nothing be deferred inside the ``with`` block, in any thread."""
    _Deferral.is_patient = False
    try:
        yield
    finally:
        _Deferral.is_patient = True


def _plain_number(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


class _Pipeline(compiler.Compiler):
    """Gives the function that Python calls its entry. To numba the options of all are equal, so it compiles what they share once."""

    def define_pipelines(self) -> Any:
        self.state.flags.no_cpython_wrapper = _COMPILATION.depth > 1
        return super().define_pipelines()


def _drop_entries_of_parts() -> bool:
    """Let nothing that is compiled for a function of ours have entries for Python and C, parts of numba included. Compare options as they
    were set, which is what numba does most often and takes longest for. Returns whether this numba has what is changed.
    """
    parts: Any = getattr(dispatcher, "_FunctionCompiler", None)
    options: Any = targetconfig.TargetConfig
    if not (hasattr(parts, "_customize_flags") and hasattr(options, "values")):
        return False
    customize, are_equal = parts._customize_flags, options.__eq__

    def customize_flags(self: object, flags: Any) -> object:
        if _COMPILATION.depth:
            flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return customize(self, flags)

    def compare(self: object, other: object) -> object:
        return getattr(self, "_values", None) == getattr(other, "_values", self) or are_equal(self, other)

    parts._customize_flags = customize_flags
    # numba hashes the names of the options, which are the same for all of a class.
    options.__eq__, options.__hash__ = compare, lambda self: hash(type(self))
    return True


_CAN_SAVE = _drop_entries_of_parts()


def _fused(typing_context: object, a: types.Type, b: types.Type, c: types.Type) -> tuple[object, Callable[..., object]]:
    single = types.float32
    return single(single, single, single), lambda context, builder, signature, arguments: builder.fma(*arguments)


def _prefetch(typing_context: object, array: types.Type, index: types.Type) -> tuple[object, Callable[..., object]]:
    return types.void(array, types.uint64), _build_prefetch


def _build_prefetch(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Sequence[Any]) -> object:
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    pointer = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
    # For writing, into every level of the cache, data.
    builder.call(builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind), [pointer, number(1), number(3), number(1)])
    return context.get_dummy_value()


@contextmanager
def watch_compilation(tell: Callable[[str], None]) -> Generator[None]:
    """Tell the name of every function that is compiled inside the ``with`` block by this process, before; what is cached on disk is not."""
    watch = _Watch(tell)
    event.register("numba:compile", watch)
    try:
        yield
    finally:
        event.unregister("numba:compile", watch)


class _Watch(event.Listener):
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def on_start(self, event: event.Event) -> None:
        self._tell(str(getattr((event.data or {}).get("dispatcher"), "__name__", "")))

    def on_end(self, event: event.Event) -> None:
        pass


fused = cast(Callable[[Any, Any, Any], Any], intrinsic(_fused))
"""Returns a b + c in float32, rounded once: one instruction where the processor has it, and the same bits where it has not."""
prefetch = cast(Callable[[Any, Any], None], intrinsic(_prefetch))
"""Lets the cache line of an entry be fetched for writing; nothing waits for it, and nothing is changed."""


class one_thread(ContextDecorator):
    """Hold BLAS to one thread in a ``with`` block or a function, whatever the caller had set; re-entrant. Entering again in the same
    thread costs about a microsecond, entering from outside some tens. Most BLAS libraries keep one limit for the whole process, so the
    threads that are inside count as one holder: the last to leave restores what was set before the first one. (Two BLAS threads on two
    loaded cores made the Newton steps 5 to 14 times slower, and let the bits depend on the machine.)
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _HOLD.enter()

    def __exit__(self, *exc: object) -> None:
        _HOLD.leave()


def blas_threads() -> int:
    """Return how many threads BLAS has outside of :class:`one_thread`, as the caller or the environment set it."""
    return _HOLD.threads


class _Hold:
    """The one limit of this process and the threads inside it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here = threading.local()
        self._holders = 0
        self._blas: list[Any] | None = None
        self._found: list[int | None] = []  # of each library, when the first thread entered

    @property
    def threads(self) -> int:
        """Threads that BLAS has outside."""
        with self._lock:
            return max((number or 1 for number in (self._found if self._holders else self._numbers())), default=1)

    def enter(self) -> None:
        depth = getattr(self._here, "depth", 0)
        self._here.depth = depth + 1
        if depth == 0:
            with self._lock:
                # Every thread sets the limit: where BLAS sits on OpenMP it is set per thread.
                numbers = self._numbers()
                self._set([1] * len(numbers), numbers)
                if self._holders == 0:
                    self._found = numbers
                self._holders += 1

    def leave(self) -> None:
        self._here.depth -= 1
        if self._here.depth == 0:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._set(self._found, self._numbers())

    def _set(self, wanted: Sequence[int | None], numbers: Sequence[int | None]) -> None:
        """Give the libraries the numbers of threads that they have not yet: each is asked in a microsecond, and set in several."""
        if wanted != numbers:
            _take_control()
            for library, number in zip(self._libraries(), wanted, strict=True):
                library.set_num_threads(number)
            _take_control()

    def _numbers(self) -> list[int | None]:
        return [library.num_threads for library in self._libraries()]

    def _libraries(self) -> list[Any]:
        # Listing the libraries takes a millisecond, so it is done once; SciPy's own BLAS must be loaded before that.
        if self._blas is None:
            importlib.import_module("scipy.linalg.blas")
            self._blas = list(threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers)
        return self._blas


def _take_control() -> None:
    # Recent threadpoolctl silently ignores every thread but the first one that ever set a limit, until that one gives it back.
    give_back = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if give_back is not None:
        give_back(force=True)


_HOLD = _Hold()
