"""Write the JSON Schemas that ship: ``python tests/support/write_schemas.py``.

A schema whose structure differs from its file is not written: raise the version of the output in
``vmselect/cli/schema.py``, or the format of the record. If the version was never released, delete the file
instead.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from vmselect.cli.schema import FOLDER, generate_schema, schema_file, schema_names


def structure(schema: Any) -> Any:
    """``schema`` without titles and descriptions, which may change within a version."""
    if isinstance(schema, dict):
        words = {key for key in ("title", "description") if isinstance(schema.get(key), str)}
        return {key: structure(value) for key, value in schema.items() if key not in words}
    return [structure(one) for one in schema] if isinstance(schema, list) else schema


def main() -> int:
    """Write files that are missing or differ in words; name those that differ in structure."""
    FOLDER.mkdir(exist_ok=True)
    changed = []
    for name in schema_names():
        path, schema = FOLDER / schema_file(name), generate_schema(name)
        if path.exists() and structure(json.loads(path.read_text(encoding="utf-8"))) != structure(schema):
            changed.append(path.name)
        else:
            path.write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if changed:
        print(f"The structure changed, but the version did not: {', '.join(changed)}.", file=sys.stderr)
    return len(changed) > 0


if __name__ == "__main__":
    sys.exit(main())
