"""Records that runs keep: whoever changes the fields of one raises its version, and what an older version wrote is refused by its name."""

import dataclasses
import importlib
import inspect
import json
import pkgutil
import typing
from collections.abc import Iterator
from typing import Any

import gramplane.pipeline.methods as methods
from gramplane.pipeline import METHODS
from gramplane.storage.records import record_name, record_optional
from tests.support.places import ROOT

TABLE = ROOT / "tests" / "fixtures" / "record_fields.json"
"""Fields of every version of every record; one that is written once stays as it is."""


def within(hint: Any) -> Iterator[type]:
    """The dataclasses a type is made of."""
    for part in typing.get_args(hint):
        yield from within(part)
    if inspect.isclass(hint) and dataclasses.is_dataclass(hint):
        yield hint


def named(cls: type) -> str:
    """What it is stored as; two systems call a state alike."""
    stored = record_name(cls)
    return f"{cls.__module__.split('.')[-2]}.{stored}" if stored == "BatchState" else stored


def records() -> dict[str, type]:
    """States of all loops and models of all methods, with the records inside them."""
    modules = [importlib.import_module(module.name) for module in pkgutil.walk_packages(methods.__path__, f"{methods.__name__}.")]
    loops = [item for module in modules for _, item in inspect.getmembers(module, inspect.isclass) if hasattr(item, "state_type")]
    waiting, found = [loop.state_type for loop in loops] + [kind for info in METHODS.values() for kind in info.method.models], {}
    while waiting:
        cls = waiting.pop()
        if inspect.isclass(cls) and dataclasses.is_dataclass(cls) and named(cls) not in found:
            found[named(cls)] = cls
            waiting += [part for hint in typing.get_type_hints(cls).values() for part in within(hint)]
    return found


def fields(cls: type) -> list[str]:
    """Names of its fields, but for those that a stored record may lack."""
    optional = record_optional(cls)
    defaults = [(field.default, field.default_factory) for field in dataclasses.fields(cls) if field.name in optional]
    assert all(any(default is not dataclasses.MISSING for default in both) for both in defaults)
    return sorted(field.name for field in dataclasses.fields(cls) if field.init and field.name not in optional)


def version(cls: type) -> str:
    return str(getattr(cls, "record_version", 1))


def test_a_record_whose_fields_change_has_another_version():
    table = json.loads(TABLE.read_text())
    told = {name: (version(cls), fields(cls)) for name, cls in records().items()}
    changed = {name: (at, names) for name, (at, names) in told.items() if table.get(name, {}).get(at) != names}
    assert not changed, f"raise record_version where there was one before, and write {TABLE.name} the new version: {changed}"
    assert {name: max(table[name], key=int) for name in told} == {name: at for name, (at, _) in told.items()}


def test_states_of_all_methods_are_looked_at():
    some = {"FGMState", "multitask_selector.BatchState", "group_lasso.BatchState", "MachineState", "KernelModel"}
    assert some <= set(records())


def test_every_record_says_itself_what_it_is_stored_as():
    """A class may be renamed; what runs of an earlier version kept is found by this name."""
    silent = [name for name, cls in records().items() if "record_name" not in cls.__dict__]
    assert not silent
