"""A bundle: a directory that holds a model beside a `jitney.toml` which describes and pins it."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loaders.errors import BundleError, ModelLoadError, UntrustedModelError
from loaders.formats.onnx_external import NotOnnxError, external_files
from loaders.input_kind import with_kind
from loaders.paths import check_inside, resolve_inside
from loaders.suffixes import FORMAT_OF_SUFFIX, model_files
from loaders.table_faults import listed_faults
from loaders.tables import BundleTables, OutputTable

BUNDLE_FILE = "jitney.toml"

_SHA256_LINE = re.compile(r"\s*(sha256|'sha256'|\"sha256\")\s*=")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A described model. `artifact`: its file, or directory, inside `directory`; links are followed in both.

    In `tables` a file of labels has become the list of its lines.
    """

    directory: Path
    artifact: Path
    tables: BundleTables

    def metadata(self) -> dict[str, Any]:
        """The tables as plain dictionaries, without the keys that were left out."""
        return self.tables.model_dump(exclude_none=True, exclude_unset=True)


def read_bundle(directory: Path) -> Bundle:
    """The bundle in `directory`, checked except for its digest.

    Raises `BundleError` naming the key that is wrong, `UnsafePathError` when a file lies outside the bundle.
    """
    directory = directory.resolve()
    tables = _with_file(_parse(_read_text(directory), directory), directory)
    artifact = resolve_inside(directory, tables.model.file, what=f"{BUNDLE_FILE}: [model] file")
    if artifact.is_dir():
        for file in _files(artifact):
            check_inside(file.resolve(), directory, what=f"{BUNDLE_FILE}: [model] file: {file.name!r}")
    if tables.output is not None and isinstance(tables.output.labels, str):
        labels = _read_labels(directory, tables.output.labels)
        tables = tables.model_copy(update={"output": tables.output.model_copy(update={"labels": labels})})
    if tables.output is not None:
        _check_output(tables.output)
    return Bundle(directory, artifact, tables)


def verify(bundle: Bundle) -> bool:
    """True when the artifact has the SHA-256 that the bundle pins, False when it pins none.

    Raises `UntrustedModelError` when the digests differ.
    """
    pinned = bundle.tables.model.sha256
    if pinned is None:
        return False
    actual = bundle_digest(bundle)
    if not hmac.compare_digest(actual, pinned.lower()):
        raise UntrustedModelError(
            f"{BUNDLE_FILE}: [model] sha256: the artifact's digest is {actual}, not the pinned {pinned.lower()}; "
            "if the model was changed on purpose, pin it again"
        )
    return True


def bundle_digest(bundle: Bundle) -> str:
    """The digest that pins the bundle: of its artifact, and of the files that an ONNX model reads its weights from."""
    return digest(bundle.artifact, _weights_beside(bundle))


def digest(artifact: Path, beside: Mapping[str, Path] | None = None) -> str:
    """The SHA-256 of a file in hexadecimal, or of a directory: over the `digest  name` lines of its sorted files.

    The directory's own `jitney.toml` is left out, as it is the place where the digest is written down. A file that
    needs others `beside` it, by name, is listed like a directory: itself first, then they.
    """
    try:
        if not artifact.is_dir() and not beside:
            return _file_digest(artifact)
        if artifact.is_dir():
            files = {file.relative_to(artifact).as_posix(): file for file in _files(artifact)}
        else:
            files = {artifact.name: artifact, **(beside or {})}
        listing = hashlib.sha256()
        for name, file in files.items():
            listing.update(f"{_file_digest(file)}  {name}\n".encode())
        return listing.hexdigest()
    except OSError as error:
        raise ModelLoadError(f"{artifact.name!r} cannot be read: {error.strerror}") from error


def pin(bundle_dir: str | os.PathLike[str]) -> str:
    """Write the artifact's SHA-256 into the bundle's `jitney.toml` and return it; nothing else in the file changes."""
    bundle = read_bundle(Path(bundle_dir))
    _check_holds_model(bundle)
    sha256 = bundle_digest(bundle)
    if bundle.tables.model.sha256 == sha256:
        return sha256
    text = _read_text(bundle.directory)
    pinned = _with_sha256(text, sha256)
    wanted = tomllib.loads(text)
    wanted.setdefault("model", {})["sha256"] = sha256
    try:
        right = tomllib.loads(pinned) == wanted
    except tomllib.TOMLDecodeError:
        right = False
    if not right:
        raise BundleError(
            f"{BUNDLE_FILE} is written in a way that cannot be changed safely: "
            f'add sha256 = "{sha256}" to [model] by hand'
        )
    target = bundle.directory / BUNDLE_FILE
    # A reader sees the old file or the new one, never half of it.
    scratch = target.with_name(f".{BUNDLE_FILE}.{os.getpid()}")
    scratch.write_text(pinned, encoding="utf-8", newline="")
    scratch.chmod(target.stat().st_mode & 0o777)
    scratch.replace(target)
    return sha256


def _parse(text: str, directory: Path) -> BundleTables:
    try:
        return BundleTables.model_validate(with_kind(tomllib.loads(text), directory))
    except tomllib.TOMLDecodeError as error:
        raise BundleError(f"{BUNDLE_FILE} is not valid TOML: {error}") from error
    except ValidationError as error:
        raise BundleError(f"{BUNDLE_FILE}: {listed_faults(error)}") from error


def _with_file(tables: BundleTables, directory: Path) -> BundleTables:
    """The tables with `[model] file`: where it was left out, the only model file that there is, or the directory."""
    if "file" in tables.model.model_fields_set or (directory / "config.json").is_file():
        return tables
    names = model_files(directory)
    if len(names) > 1:
        raise BundleError(f"{BUNDLE_FILE}: [model] file: which one is the model? here are {', '.join(names)}")
    if not names:
        return tables
    return tables.model_copy(update={"model": tables.model.model_copy(update={"file": names[0]})})


def _read_text(directory: Path) -> str:
    try:
        # newline="": line ends are kept, so that pinning a file changes one line of it.
        with (directory / BUNDLE_FILE).open(encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise BundleError(f"{BUNDLE_FILE} is not UTF-8: {error.reason}") from error
    except OSError as error:
        raise BundleError(f"{BUNDLE_FILE} in {directory.name!r} cannot be read: {error.strerror}") from error


def _read_labels(directory: Path, file: str) -> list[str]:
    path = resolve_inside(directory, file, what=f"{BUNDLE_FILE}: [output] labels")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{BUNDLE_FILE}: [output] labels: {file!r} cannot be read: {error}") from error
    # Not splitlines(): a label may hold a line separator that is not a newline.
    labels = [line.strip() for line in text.rstrip().split("\n")]
    if not all(labels):
        raise BundleError(f"{BUNDLE_FILE}: [output] labels: {file!r} is empty or has an empty line")
    return labels


def _check_output(output: OutputTable) -> None:
    if output.labels is not None and len(set(output.labels)) < len(output.labels):
        raise BundleError(f"{BUNDLE_FILE}: [output] labels: a label stands there twice")
    if output.task not in {None, "classification"}:
        for key in ("labels", "top_k", "softmax"):
            if getattr(output, key):
                raise BundleError(
                    f'{BUNDLE_FILE}: [output] {key}: only for task = "classification", not {output.task!r}'
                )


def _files(directory: Path) -> Iterator[Path]:
    """Every file below `directory`, in an order that does not depend on the machine."""
    own = directory / BUNDLE_FILE
    yield from sorted(
        (file for file in directory.rglob("*") if file.is_file() and file != own), key=lambda file: file.as_posix()
    )


def _check_holds_model(bundle: Bundle) -> None:
    """Refuse a directory that is no model: what it holds now is not what would be served."""
    if not bundle.artifact.is_dir() or (bundle.artifact / "config.json").is_file():
        return
    fmt = bundle.tables.model.format
    if fmt is None or fmt in FORMAT_OF_SUFFIX.values() or not any(_files(bundle.artifact)):
        raise BundleError(
            f"{BUNDLE_FILE}: [model] file: there is no model file here, and so nothing to pin; "
            f"known suffixes are {', '.join(FORMAT_OF_SUFFIX)}"
        )


def _weights_beside(bundle: Bundle) -> Mapping[str, Path]:
    fmt, file = bundle.tables.model.format, bundle.tables.model.file
    names = {Path(file).suffix.lower(), bundle.artifact.suffix.lower()}
    if bundle.artifact.is_dir() or not (fmt == "onnx" or (fmt is None and ".onnx" in names)):
        return {}
    try:
        return external_files(bundle.artifact)
    except NotOnnxError:
        return {}  # its digest then differs, or its loader says what is wrong


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _with_sha256(text: str, sha256: str) -> str:
    """`text` with the key in its `[model]` table replaced, or put at the end of that table."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    header = next((number for number, line in enumerate(lines) if re.match(r"\s*\[\s*model\s*\]", line)), None)
    new = f'sha256 = "{sha256}"{line_end}'
    if header is None:
        return f"[model]{line_end}{new}{line_end}{text}"
    last = header
    for number in range(header + 1, len(lines)):
        line = lines[number].lstrip()
        if line.startswith("["):
            break
        if _SHA256_LINE.match(line):
            lines[number] = new
            return "".join(lines)
        # Comments and blank lines before the next table belong to that one.
        if line and not line.startswith("#"):
            last = number
    if not lines[last].endswith("\n"):
        lines[last] += line_end
    lines.insert(last + 1, new)
    return "".join(lines)
