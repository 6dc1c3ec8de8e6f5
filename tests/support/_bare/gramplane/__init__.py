from pathlib import Path

_root = Path(__file__).resolve().parents[4]
_door = _root / "pipeline" / "public" / "__init__.py"
__path__ = [str(_door.parent), str(_root)]
exec(compile(_door.read_text(), str(_door), "exec"))
