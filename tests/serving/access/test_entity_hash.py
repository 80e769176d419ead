"""Entities in the audit log: keyed hashes that anybody with the key can compute, and nobody without."""

from __future__ import annotations

import hashlib
import hmac
import multiprocessing
import struct
import tracemalloc
from pathlib import Path

import pytest

from tests.thermocline.profiles import PROFILES
from thermocline.errors import ConfigInvalid
from thermocline.rules.definition import LiveTable
from thermocline.serving.access.entity_hash import EntityHash, hash_key
from thermocline.serving.read.entity import entity_of

KEY = bytes(range(32))
ADA = {"app_id": "7", "user_id": "ada"}


def test_a_hash_is_the_hmac_of_the_table_and_the_entitys_columns() -> None:
    """By hand: an int is 4 bytes with its sign flipped, a string ends with 00 01."""
    message = b"profiles\x00" + b"\x80\x00\x00\x07" + b"ada\x00\x01"
    expected = hmac.new(KEY, message, hashlib.sha256).hexdigest()[:32]
    assert EntityHash(KEY).of(PROFILES, entity_of(PROFILES, ADA)) == expected


def test_a_lookup_of_one_row_has_the_hash_of_its_entity() -> None:
    hashes = EntityHash(KEY)
    whole = hashes.of(PROFILES, entity_of(PROFILES, ADA))
    assert hashes.of(PROFILES, entity_of(PROFILES, {**ADA, "key": "plan"})) == whole
    assert hashes.of(PROFILES, entity_of(PROFILES, {**ADA, "user_id": "bob"})) != whole


def test_long_entities_that_somebody_asks_for_are_not_kept() -> None:
    hashes, long = EntityHash(KEY), "a" * 60_000
    tracemalloc.start()
    try:
        made = {
            hashes.of(PROFILES, entity_of(PROFILES, {**ADA, "user_id": f"{n}{long}"})) for n in range(100)
        }
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(made) == 100
    assert kept_bytes < 1_000_000, "all of them are 6 MB"


def test_the_same_key_in_another_table_or_by_another_secret_is_another_hash() -> None:
    other = LiveTable.build(
        name="orders",
        identifier="app.orders",
        topics=["orders"],
        key=["app_id", "user_id"],
        columns={"app_id": "int", "user_id": "string"},
    )
    hashes = {
        EntityHash(KEY).of(PROFILES, entity_of(PROFILES, ADA)),
        EntityHash(KEY).of(other, entity_of(other, ADA)),
        EntityHash(bytes(32)).of(PROFILES, entity_of(PROFILES, ADA)),
    }
    assert len(hashes) == 3
    assert all(len(one) == 32 and set(one) <= set("0123456789abcdef") for one in hashes)


def test_a_key_is_made_once_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "audit.key"
    key = hash_key(path)
    assert (len(key), hash_key(path), path.read_bytes()) == (32, key, key)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["audit.key"]


def test_processes_that_start_at_once_have_one_key(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        keys = pool.map(hash_key, [tmp_path / "audit.key"] * 40, chunksize=1)
    assert len(set(keys)) == 1
    assert len(keys[0]) == 32


def test_a_hash_shows_nothing_of_its_key() -> None:
    shown = f"{EntityHash(KEY)!r} {EntityHash(KEY)}"
    assert repr(KEY)[2:-1] not in shown
    assert KEY.hex() not in shown


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def test_a_key_of_the_operators_own_is_taken_as_it_is(tmp_path: Path) -> None:
    own = struct.pack(">8Q", *range(8))
    write(tmp_path / "own", own, 0o640)
    assert hash_key(tmp_path / "own") == own


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        (b"", 0o600, "it holds 0 bytes; a key has 32 to 4,096"),
        (bytes(31), 0o600, "it holds 31 bytes"),
        (bytes(5_000), 0o600, "it holds 5,000 bytes"),
        (bytes(32), 0o644, "every user of this machine can read it: chmod o-r"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(
    tmp_path: Path, content: bytes, mode: int, problem: str
) -> None:
    write(tmp_path / "audit.key", content, mode)
    with pytest.raises(ConfigInvalid, match=r"audit\.hash_key_file") as refused:
        hash_key(tmp_path / "audit.key")
    assert problem in refused.value.what


def test_a_place_where_no_key_can_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigInvalid, match="it can't be used"):
        hash_key(tmp_path / "file" / "audit.key")
