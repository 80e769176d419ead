"""Certificate authorities for Java: which of the machine's are written, and that each comes once."""

from __future__ import annotations

import ssl
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from thermocline.jvm.trust import write_trust_store


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder and a bundle that OpenSSL would look into."""
    places = SimpleNamespace(cafile=str(tmp_path / "bundle.pem"), capath=str(tmp_path / "certs"))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: places)
    (tmp_path / "certs").mkdir()
    return tmp_path


def test_each_authority_is_written_once(machine: Path) -> None:
    first, second = ssl.DER_cert_to_PEM_cert(b"first"), ssl.DER_cert_to_PEM_cert(b"second")
    (machine / "bundle.pem").write_text(f"# a comment\n{first}\n{second}")
    (machine / "certs" / "0a1b2c3d.0").write_text(first)
    assert write_trust_store(machine / "store.jks")
    store = (machine / "store.jks").read_bytes()
    assert struct.unpack(">III", store[:12]) == (0xFEEDFEED, 2, 2)
    assert store.count(b"first") == store.count(b"second") == 1


def test_a_machine_without_authorities_gets_no_store(machine: Path) -> None:
    assert not write_trust_store(machine / "store.jks")
    assert not (machine / "store.jks").exists()
