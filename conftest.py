"""Let the tests run in a bare checkout: inert when gramplane is installed, so it cannot hide a packaging error."""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("gramplane") is None:
    sys.path.insert(0, str(Path(__file__).parent / "tests" / "support" / "_bare"))
