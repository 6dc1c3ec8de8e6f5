"""Write what follows from the folders and from the registry: ``packages`` of pyproject.toml, and the stubs that editors read.

``python .ci/make_package.py`` writes; ``--check`` only tells whether all is up to date (a test does). Run it after adding a folder, a
method or a parameter.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("cluster", "kernels", "pipeline", "storage", "workflows")
DOOR = "pipeline/public"
HEAD = '"""Written by .ci/make_package.py."""\n\n'


def package_names() -> list[str]:
    """Return every package of the wheel: the door itself, and the folders that hold modules, but for the door's own folder."""
    folders = sorted({path.parent.relative_to(ROOT).as_posix() for name in FOLDERS for path in (ROOT / name).rglob("*.py")})
    return ["gramplane", *(f"gramplane.{folder.replace('/', '.')}" for folder in folders if folder != DOOR)]


def project_text(text: str) -> str:
    """Return pyproject.toml with the list of packages, and the folder of each top-level one."""
    folders = ", ".join(f'"gramplane.{name}" = "{name}"' for name in FOLDERS)
    text = re.sub(r"package-dir = \{.*?\}\n", f'package-dir = {{ "gramplane" = "{DOOR}", {folders} }}\n', text, flags=re.DOTALL)
    return re.sub(
        r"packages = \[.*?\n\]", "packages = [\n" + "".join(f'  "{name}",\n' for name in package_names()) + "]", text, flags=re.DOTALL
    )


def hint_text(hint: Any) -> str:
    """Return an annotation as a stub writes it."""
    text = inspect.formatannotation(hint)
    text = re.sub(r"\b(?:collections\.abc|typing|gramplane(?:\.\w+)+)\.(?=\w)", "", text)
    text = re.sub(r"Union\[(.*)\]$", lambda found: " | ".join(_split(found[1])), text)
    text = re.sub(r"Optional\[(.*)\]$", r"\1 | None", text)
    return text.replace("NoneType", "None")


def _split(text: str) -> Iterator[str]:
    """Yield the parts of a list at its outer commas."""
    depth, part = 0, ""
    for letter in text:
        depth += (letter in "[(") - (letter in ")]")
        if letter == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += letter
    yield part.strip()


def estimator_stub(cls: type, module: str) -> str:
    """Return a class whose constructor has the parameters that its method declares."""
    parameters = list(inspect.signature(cls).parameters.values())
    lines = "".join(f"        {p.name}: {hint_text(p.annotation)} = {p.default!r},\n" for p in parameters)
    return f"class {cls.__name__}(_{module}.{cls.__name__}):\n    def __init__(\n        self,\n{lines}    ) -> None: ...\n"


def pipeline_stub() -> str:
    """Return the stub of ``gramplane.pipeline``: functions by name, estimators with their parameters."""
    from gramplane import pipeline
    from gramplane.pipeline.estimators.base import MethodEstimator
    from gramplane.pipeline.registry import METHODS

    names = dict(pipeline._HOMES)
    systems = sorted({info.system for info in METHODS.values()})
    lines = ["from collections.abc import Callable, Mapping, Sequence\nfrom typing import Any, Literal\n"]
    lines += ["import numpy\n", "from ..kernels.graphs.kernel_graphs import KernelDag\n", "from ..kernels.grams.spec import KernelSpec\n"]
    plain = [name for name in names if not _is_estimator(getattr(pipeline, name), MethodEstimator)]
    lines += [f"from .{names[name]} import {name} as {name}\n" for name in sorted(plain, key=lambda name: (names[name], name))]
    lines += [f"from .methods.{system} import estimator as _{system}\n" for system in systems]
    lines += ["from .registry import METHODS as METHODS, MethodInfo as MethodInfo\n"]
    for name in sorted(set(names) - set(plain)):
        lines.append("\n" + estimator_stub(getattr(pipeline, name), names[name].split(".")[1]))
    return HEAD + "".join(lines) + f"\n__all__ = {pipeline.__all__!r}\n"


def _is_estimator(value: Any, base: type) -> bool:
    return inspect.isclass(value) and issubclass(value, base)


def door_stub() -> str:
    """Return the stub of ``gramplane``."""
    import gramplane
    from gramplane import pipeline

    lines = [f"from gramplane.pipeline import {name} as {name}\n" for name in pipeline.__all__]
    lines += [f"from {home} import {name} as {name}\n" for name, home in sorted(gramplane.OTHERS.items())]
    lines += [f"from gramplane import {name} as {name}\n" for name in gramplane.DOORS]
    return HEAD + "".join(lines) + f"\n__version__: str\n__all__ = {dir(gramplane)!r}\n"


def module_stub(name: str) -> str:
    """Return the stub of a module beside the door."""
    homes = import_module(f"gramplane.{name}")._HOMES
    lines = [f"from gramplane.{home} import {public} as {public}\n" for public, home in homes.items()]
    return HEAD + "".join(lines) + f"\n__all__ = {sorted(homes)!r}\n"


def folder_stub(folder: str) -> str:
    """Return the stub of ``gramplane.storage`` or ``gramplane.cluster``."""
    homes = import_module(f"gramplane.{folder}")._HOMES
    lines = [f"from .{home} import {name} as {name}\n" for name, home in sorted(homes.items(), key=lambda item: (item[1], item[0]))]
    return HEAD + "".join(lines) + f"\n__all__ = {sorted(homes)!r}\n"


def written() -> dict[Path, str]:
    """Return every file with the text it should have."""
    import gramplane

    project = ROOT / "pyproject.toml"
    return {
        project: project_text(project.read_text()),
        ROOT / "pipeline" / "__init__.pyi": pipeline_stub(),
        ROOT / DOOR / "__init__.pyi": door_stub(),
        **{ROOT / DOOR / f"{name}.pyi": module_stub(name) for name in gramplane.DOORS},
        **{ROOT / folder / "__init__.pyi": folder_stub(folder) for folder in ("cluster", "storage")},
    }


def main(check: bool) -> int:
    """Write or compare; 1 where a comparison fails."""
    stale = [path for path, text in written().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is not up to date' if check else 'written'}")
        if not check:
            path.write_text(written()[path])
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
