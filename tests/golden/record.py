"""``python tests/golden/record.py [NAMES]`` writes the golden values."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from golden_cases import CASES  # noqa: E402


def main() -> None:
    """Compute the named cases, or all, and write their files."""
    for name in sys.argv[1:] or CASES:
        text = json.dumps(CASES[name](), indent=1)
        (HERE / "values" / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
