"""Reading and writing records: whole or not at all, old formats upgraded step by step, nothing trusted."""

from __future__ import annotations

import json
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from vmselect.errors import ProfileError
from vmselect.profile.record import FORMAT, Profile

MAX_FILE_BYTES = 32 * 1024 * 1024
"""A profile of a million watched steps is about half a megabyte; far more is not a profile."""

MAX_DEPTH = 32

KINDS = {"convergence study": rb'"kind"\s*:\s*"convergence"', "profile": rb'"timeline"\s*:\s*{'}
"""What a record is called to what tells it from others; quotes inside a text are escaped, so none can look like it."""

REMEDIES = {
    "convergence study": "Load it with vmselect.ConvergenceStudy.load, or give it to the command line as --study.",
    "profile": "Load it with vmselect.load_profiles.",
}

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
Model = TypeVar("Model", bound=BaseModel)

PROFILE_UPGRADES: Mapping[int, Upgrade] = {
    1: lambda data: {**data, "format": 2},  # boundaries did not say how much of them lies before validation
}
"""Format number to the function that turns a record of that format into the next one."""


# -- profiles ----------------------------------------------------------------------------------------------------------


def save_profile(profile: Profile, path: str | os.PathLike[str]) -> Path:
    """Write ``profile`` to a file, or into a folder as ``<instance>-<batch>-<time>.json``."""
    target = Path(path)
    if is_folder(target):
        machine, batch = safe_name(profile.instance_type or "unknown"), profile.batch_size or "x"
        target = unused_name(target, f"{machine}-{batch}-{profile.created:%Y%m%dT%H%M%S}")
    write_text(target, to_json(profile))
    return target


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read one profile."""
    return read_record(path, Profile, newest=FORMAT, upgrades=PROFILE_UPGRADES, noun="profile")


def load_profiles(*paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Profile]:
    """Read profiles from files and folders (every ``*.json`` inside, not deeper), in order of file name.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = Profile.from_times(instance_type="a", batch_size=8, iteration_seconds=0.1).save(folder)
    >>> [profile.instance_type for profile in load_profiles(folder)]
    ['a']
    """
    return [load_profile(file) for file in find_files(*paths, noun="profile")]


def find_files(*paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], noun: str) -> list[Path]:
    """The files that ``paths`` name: files themselves, and of folders the ``*.json`` files.

    Profiles and convergence studies may share a folder: there, those that are no ``noun`` are passed over.
    """
    files: list[Path] = []
    for given in paths:
        entries = [given] if isinstance(given, (str, os.PathLike)) else list(given)
        for entry in entries:
            path = Path(entry)
            if path.is_dir():
                inside = sorted(p for p in path.glob("*.json") if p.is_file() and not p.name.startswith("."))
                inside = [file for file in inside if _holds(file, noun)]
                if not inside:
                    raise ProfileError(
                        f"{path}: no {noun} (*.json) in this folder. Run a probe with path={str(path)!r}."
                    )
                files += inside
            else:
                files.append(path)
    if not files:
        raise ProfileError(f"No {noun} was named. Give at least one {noun} file or a folder of them.")
    return files


# -- any record --------------------------------------------------------------------------------------------------------


def read_record(
    path: str | os.PathLike[str],
    model: type[Model],
    *,
    newest: int,
    upgrades: Mapping[int, Upgrade],
    noun: str,
) -> Model:
    """Read a record of ``model`` from a JSON file, upgrading older formats; raises only :class:`ProfileError`."""
    text = read_text(path, noun=noun)
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as broken:
        raise ProfileError(f"{path}: not a {noun}: {_short(broken)}. Restore the file, or probe again.") from None
    if not isinstance(data, dict) or not isinstance(data.get("format"), int) or isinstance(data["format"], bool):
        raise ProfileError(f"{path}: not a {noun}: it has no format number. Give a file that vmselect wrote.")
    other = noun_of(text.encode())
    if other is not None and other != noun:
        raise ProfileError(f"{path}: this is a {other}, not a {noun}. {REMEDIES[other]}")
    number = written = data["format"]
    if number > newest:
        raise ProfileError(
            f"{path}: this {noun} has format {number}, and this version of vmselect reads up to {newest}. "
            "Upgrade it: pip install --upgrade vmselect"
        )
    while number < newest:
        if number not in upgrades:
            raise ProfileError(f"{path}: unknown {noun} format {number}. Give a file that vmselect wrote.")
        try:
            data = upgrades[number](data)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as broken:
            raise ProfileError(f"{path}: damaged {noun} of format {number}: {_short(broken)}. Probe again.") from None
        number += 1
    try:
        # Strictness must be that of JSON (a list is a tuple, text is a date), hence from text.
        return model.model_validate_json(text if data["format"] == written else json.dumps(data))
    except ValidationError as invalid:
        raise ProfileError(f"{path}: {_describe(invalid, noun)}") from None


def to_json(record: BaseModel) -> str:
    """The record as JSON for people too: indented, with each list of plain values on one line."""
    text = record.model_dump_json(exclude_none=True, indent=1)
    # Line breaks stand only between values (inside strings JSON escapes them), so joining lines changes no value.
    return re.sub(r"\[\n[^\[\]{}]*\]", lambda found: re.sub(r"\n\s*", " ", found[0]), text) + "\n"


def read_text(path: str | os.PathLike[str], *, noun: str, limit: int = MAX_FILE_BYTES) -> str:
    """The text of a file that may be anything; raises only :class:`ProfileError`."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as cannot:
        reason = getattr(cannot, "strerror", None) or str(cannot)
        raise ProfileError(f"{path}: cannot read this {noun}: {reason}. Check the path.") from None
    if len(data) > limit:
        raise ProfileError(f"{path}: larger than {limit // 2**20} MiB, so it is not a {noun}. Check the path.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ProfileError(f"{path}: not a {noun}: it is not UTF-8 text. Check the path.") from None
    if _depth(text) > MAX_DEPTH:
        raise ProfileError(f"{path}: not a {noun}: nested more than {MAX_DEPTH} levels deep. Check the path.")
    return text


def write_text(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` so that a reader sees the old file or the new one, never half of one."""
    beside = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as cannot:
        raise ProfileError(f"{path}: cannot write: {cannot.strerror or cannot}. Choose a writable path.") from cannot


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise :class:`ProfileError` now if ``path`` (a file or a folder) could not be written later."""
    target = Path(path)
    folder = target if is_folder(target) else target.parent
    try:
        if not is_folder(target) and target.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        folder.mkdir(parents=True, exist_ok=True)
        handle, probe = tempfile.mkstemp(prefix=".vmselect.", suffix=".part", dir=folder)
        os.close(handle)
        Path(probe).unlink()
    except (OSError, ValueError) as cannot:
        reason = getattr(cannot, "strerror", None) or str(cannot)
        raise ProfileError(f"{path}: cannot write there: {reason}. Choose a writable path.") from cannot


def is_folder(path: Path) -> bool:
    """Whether ``path`` means a folder: an existing one, or a name without the ending ``.json``."""
    return path.is_dir() or (path.suffix.lower() != ".json" and not path.is_file())


def unused_name(folder: Path, stem: str) -> Path:
    """``<stem>.json`` in ``folder``, numbered if that is taken."""
    number, path = 1, folder / f"{stem}.json"
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.json"
    return path


def safe_name(text: str) -> str:
    """``text`` as part of a file name: nothing that a file system or a shell could take for more than a name."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text).strip("._")[:100] or "unnamed"


def noun_of(text: bytes) -> str | None:
    """What the record in ``text`` is called, or None where it is none of ours."""
    return next((noun for noun, mark in KINDS.items() if re.search(mark, text)), None)


def _holds(path: Path, noun: str) -> bool:
    """Whether a file holds a ``noun``, or nothing that is known: reading it will then say what is wrong."""
    try:
        with path.open("rb") as file:
            return noun_of(file.read(MAX_FILE_BYTES)) in (noun, None)
    except OSError:
        return True


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that a measurement can have")


def _depth(text: str) -> int:
    """Deepest nesting of brackets outside strings, so that no parser has to recurse into a hostile file."""
    depth = deepest = 0
    for mark in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', text, re.DOTALL):
        if mark[0] in "[{":
            depth += 1
            if depth > deepest:
                deepest = depth
                if deepest > MAX_DEPTH:
                    break
        elif mark[0] in "]}":
            depth -= 1
    return deepest


def _describe(invalid: ValidationError, noun: str) -> str:
    errors = invalid.errors(include_url=False, include_input=False)
    first = errors[0]
    field = ".".join(str(part) for part in first["loc"]) or "the record"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"invalid {noun}: field {field}: {first['msg']}{more}. Correct the field or probe again."


def _short(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
