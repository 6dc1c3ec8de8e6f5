"""Compilation with numba and limits on BLAS threads; no other module sets numba options or thread limits.

All compiled code goes through :func:`compiled`. All code that calls BLAS goes through :func:`one_thread`.
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
    """Start numba's function counter at a random number, so that names in cached code are unique across processes.

    numba numbers the functions of a process from 1, and cached code refers to them by that number. Two cache files written by different
    processes, or from different versions of the source, can then use one name for two functions. A call of such code fails with "'descr' is
    NULL".
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
    """Compile a function with numba: cached on disk, without the interpreter lock, with IEEE division. The decorator can be used with or
    without options.

    ``reassociate`` lets sums be reordered so that they vectorise. The order is fixed at compile time, so results are bit-identical on one
    type of CPU; NaN and infinity keep their meaning. A gather loop gets *slower* with this option (measured), so choose it loop by loop. A
    loop with such a sum must not also write to an array; otherwise the order would be chosen at run time, by the distance of the arrays in
    memory.

    ``inline`` pastes the body into compiled callers, which saves a call in an inner loop.

    ``deferred`` is for functions with little work, which take longer to compile than to run. Python runs them, with bit-identical
    results, until they have taken PATIENCE_SECONDS, unless compiled code is on disk. Deferred functions may use only float64 and
    integers, and no NumPy sums or products.
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
    """Compile a function with numba's cache if the cache can be written. A full or read-only cache is no error; it only costs compile
    time.

    ``decorate`` returns the decorator; its argument says whether to use the cache.
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
    """Make the cached code of a function depend on the files of all compiled functions that it calls, not only on its own file."""
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
    """Skip the Python entry point and the disk cache for functions that are compiled only as parts of others.

    The entry point takes a tenth of the compile time, and the disk is searched only for functions called from Python. If Python calls such
    a function later, its entry point is made at that time.
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
    """The stack of functions that this thread is compiling, and the processor time of the compilation.

    Garbage collection, a tenth of that time, is postponed until the whole stack is compiled.
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
    """A deferred function whose compiled code has not been found on disk."""


class _Deferral:
    """Decides how to run a deferred function for argument types for which it is not compiled: in Python, or by loading or compiling
    code.
    """

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
    """Disable deferral inside the ``with`` block, in all threads."""
    _Deferral.is_patient = False
    try:
        yield
    finally:
        _Deferral.is_patient = True


def _plain_number(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


class _Pipeline(compiler.Compiler):
    """Compiler pipeline that makes the Python entry point only for functions called from Python. numba sees equal options for all
    functions, so shared parts are compiled once.
    """

    def define_pipelines(self) -> Any:
        self.state.flags.no_cpython_wrapper = _COMPILATION.depth > 1
        return super().define_pipelines()


def _drop_entries_of_parts() -> bool:
    """Compile the parts of our functions, including parts from numba, without entry points for Python and C. Return whether this version
    of numba can be changed in this way.

    Sets of options are first compared by the values that were set explicitly. numba compares options very often, and its own comparison
    takes long.
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
    """Call ``tell`` with the name of each function just before this process compiles it, inside the ``with`` block. Functions loaded from
    the disk cache are not reported.
    """
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
"""Return ``a * b + c`` in float32 with a single rounding. This is one instruction if the processor has it; otherwise the result is
bit-identical.
"""
prefetch = cast(Callable[[Any, Any], None], intrinsic(_prefetch))
"""Prefetch the cache line of an entry for writing; does not wait and changes nothing."""


class one_thread(ContextDecorator):
    """Limit BLAS to one thread inside a ``with`` block or a decorated function; re-entrant.

    The first entry takes some tens of microseconds; entering again in the same thread takes about one microsecond. Most BLAS
    libraries have one limit per process, so all threads that run such a block or function share the limit, and the last of them to
    leave restores the previous one. Two BLAS threads on two loaded cores made the Newton steps 5 to 14 times slower, and results then
    depended on the computer in their last bits.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _HOLD.enter()

    def __exit__(self, *exc: object) -> None:
        _HOLD.leave()


def blas_threads() -> int:
    """Return the number of BLAS threads outside of :class:`one_thread`, as set by the caller or the environment."""
    return _HOLD.threads


class _Hold:
    """The limit on BLAS threads in this process, and the number of Python threads that need the limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here = threading.local()
        self._holders = 0
        self._blas: list[Any] | None = None
        self._found: list[int | None] = []  # of each library, when the first thread entered

    @property
    def threads(self) -> int:
        """Number of BLAS threads outside of the limit."""
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
        """Set thread counts only where they differ: reading a count takes a microsecond, setting it several."""
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
