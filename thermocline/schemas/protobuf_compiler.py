"""Protobuf schemas in text, compiled to descriptors by protoc, which runs as a program of its own.

It is that of grpcio-tools, so that nothing needs to be installed beside Python's packages.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from thermocline.rules.avro_schema import SchemaInvalid

__all__ = ["CompilerFailed", "compiled", "compiled_file", "is_descriptors"]

TIMEOUT_SECONDS: Final = 60.0
"""A schema takes a fifth of a second; a machine that is busy may take longer, and then it is tried again."""
_PATH: Final = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
_NAME_CHARACTERS_MAX: Final = 255
"""Of a file's name: what file systems take."""
_LOG: Final = re.compile(r"WARNING: All log messages|[IWEF]\d{4} ")  # of the library that protoc logs by
_KNOWN: Final = {
    # Confluent's registry knows both by itself.
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type;\n'
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }\n"
    ),
    "confluent/meta.proto": (
        'syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";\n'
        "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }\n"
        "extend google.protobuf.FileOptions { Meta file_meta = 1088; }\n"
        "extend google.protobuf.MessageOptions { Meta message_meta = 1088; }\n"
        "extend google.protobuf.FieldOptions { Meta field_meta = 1088; }\n"
        "extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }\n"
        "extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }\n"
    ),
}


class CompilerFailed(RuntimeError):
    """The compiler said nothing of a schema; it may the next time."""


def compiled(texts: Mapping[str, str], main: str) -> bytes:
    """The descriptors of a file and of all that it imports, its own last.

    ``texts`` are files by the names that they import each other by.

    Raises:
        SchemaInvalid: with what the compiler says.
        CompilerFailed: it did not come to an end.
    """
    files = {**_KNOWN, **texts}
    for name in texts:
        is_folder = any(other.startswith(f"{name}/") for other in files)
        if is_folder or not _is_path(name):  # safety: protobuf-import-path
            raise SchemaInvalid(f'it imports a file by the name "{name[:80]}"')
    with tempfile.TemporaryDirectory(prefix="thermocline-protobuf-") as folder:
        _write(Path(folder), files)
        return _run(Path(folder), main)


def _is_path(name: str) -> bool:
    """Whether a file may have that name, below a folder."""
    parts = name.split("/")
    is_inside = not {".", ".."} & set(parts)
    return bool(_PATH.fullmatch(name)) and is_inside and max(map(len, parts)) <= _NAME_CHARACTERS_MAX


def compiled_file(path: Path) -> bytes:
    """The descriptors of a file on disk, which imports others from its folder; or those that it has itself.

    Compiled ones have the comments that the text has.

    Raises:
        SchemaInvalid: with what the compiler says.
        CompilerFailed: it did not come to an end.
        OSError: the file can't be read.
    """
    content = path.read_bytes()
    if is_descriptors(content):
        return content
    with tempfile.TemporaryDirectory(prefix="thermocline-protobuf-") as folder:
        _write(Path(folder), _KNOWN)
        return _run(path.parent.absolute(), path.name, Path(folder))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def is_descriptors(content: bytes) -> bool:
    """Whether a file is a compiled schema, and not its text: that has no such bytes."""
    return any(byte < 9 or 13 < byte < 32 for byte in content)


def _run(folder: Path, main: str, *more: Path) -> bytes:
    result = folder if not more else more[0]
    output = result / "descriptors.bin"
    command = [
        *(sys.executable, "-P", "-m", "grpc_tools.protoc"),
        *(f"--proto_path={place}" for place in (folder, *more, *_installed())),
        *("--include_imports", "--include_source_info", f"--descriptor_set_out={output}", main),
    ]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerFailed(f"protoc did not come to an end: {error}") from error
    if ended.returncode == 0:
        return output.read_bytes()
    said = ended.stderr.decode(errors="replace")
    why = [line for line in said.splitlines() if line.strip() and not _LOG.match(line)]
    if ended.returncode < 0 or not why:
        raise CompilerFailed(f"protoc ended with {ended.returncode}: {said[-500:]}")
    raise SchemaInvalid(why[0].removeprefix(f"{folder}/")[:500])


def _installed() -> list[Path]:
    """Where the files are that come with the compiler, and those of googleapis."""
    compiler, googleapis = find_spec("grpc_tools"), find_spec("google.type.date_pb2")
    assert compiler is not None
    assert compiler.origin is not None
    assert googleapis is not None
    assert googleapis.origin is not None
    return [Path(compiler.origin).parent / "_proto", Path(googleapis.origin).parents[2]]
