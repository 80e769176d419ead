"""The settings of connections: TLS, trusted proxies, and the hosts that a server answers to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certificates import Authority
from thermocline.errors import ConfigInvalid
from thermocline.settings import ServingSettings, Settings, check_settings, load_settings, problems_of_tls

CONFIG = """
[kafka]
bootstrap_servers = "broker:9092"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[serving]
{serving}
"""


def loaded(folder: Path, serving: str) -> Settings:
    file = folder / "thermocline.toml"
    file.write_text(CONFIG.format(serving=serving))
    return load_settings(file)


def test_a_server_speaks_plain_http_to_everybody_by_default(tmp_path: Path) -> None:
    serving = loaded(tmp_path, "").serving
    assert (serving.tls_certificate, serving.tls_key, serving.tls_client_ca) == (None, None, None)
    assert (serving.hosts, serving.forwarded_from) == ((), ())
    assert serving.url == "http://127.0.0.1:8080"
    assert list(problems_of_tls(serving)) == []


def test_files_are_beside_the_file_that_names_them_and_the_url_says_https(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_SERVING__HOSTS", "lake.example,*.lakes.example, [2001:db8::1]")
    monkeypatch.setenv("THERMOCLINE_SERVING__FORWARDED_FROM", "10.0.0.1, 10.1.0.0/16, 2001:db8::/32")
    files = 'tls_certificate = "tls/tls.crt"\ntls_key = "tls/tls.key"\ntls_client_ca = "/etc/ca.pem"'
    serving = loaded(tmp_path, f'host = "::"\n{files}').serving
    assert serving.tls_certificate == tmp_path / "tls" / "tls.crt"
    assert serving.tls_key == tmp_path / "tls" / "tls.key"
    assert serving.tls_client_ca == Path("/etc/ca.pem")
    assert serving.hosts == ("lake.example", "*.lakes.example", "[2001:db8::1]")
    assert serving.forwarded_from == ("10.0.0.1", "10.1.0.0/16", "2001:db8::/32")
    assert serving.url == "https://[::1]:8080"


@pytest.mark.parametrize(
    ("serving", "problem"),
    [
        ('tls_certificate = "a"', "serving: tls_certificate and tls_key belong together: give both, or none"),
        ('tls_key = "a"', "serving: tls_certificate and tls_key belong together: give both, or none"),
        ('tls_client_ca = "a"', "serving: tls_client_ca needs tls_certificate and tls_key: "),
        ('forwarded_from = ["proxy"]', "serving.forwarded_from.0: 'proxy' does not appear to be"),
        ('forwarded_from = ["10.0.0.1/8"]', "serving.forwarded_from.0: 10.0.0.1/8 has host bits set"),
        ('hosts = ["https://lake.example"]', "serving.hosts.0: must match pattern"),
        ('hosts = ["lake.example:8443"]', "serving.hosts.0: must match pattern"),
        ('hosts = ["*"]', "serving.hosts.0: must match pattern"),
        ('hosts = ["a.*.example"]', "serving.hosts.0: must match pattern"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, serving: str, problem: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        loaded(tmp_path, serving)
    (found,) = caught.value.problems
    assert found.startswith(problem)


def test_files_that_cannot_be_used_are_said_when_the_configuration_is_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    one, other = authority.issue(), authority.issue()
    empty = tmp_path / "empty"
    empty.touch()
    missing = tmp_path / "missing"

    def problems(certificate: Path, key: Path, client_ca: Path | None = None) -> list[str]:
        serving = ServingSettings(tls_certificate=certificate, tls_key=key, tls_client_ca=client_ca)
        return list(problems_of_tls(serving))

    assert problems(*one.paths) == problems(*one.paths, authority.file) == []
    assert problems(missing, one.key) == [
        f"serving.tls_certificate: {missing} can't be read: No such file or directory"
    ]
    assert problems(one.certificate, missing) == [
        f"serving.tls_key: {missing} can't be read: No such file or directory"
    ]
    names = "serving.tls_certificate, serving.tls_key"
    assert problems(one.certificate, other.key) == [
        f"{names}: {one.certificate} and {other.key} can't be used: the key is not that of the certificate"
    ]
    assert problems(empty, other.key) == [
        f"{names}: {empty} and {other.key} can't be used: it is not PEM, or of something else"
    ]
    locked = authority.issue(password=b"x")
    assert problems(*locked.paths) == [
        (
            f"{names}: {locked.certificate} and {locked.key} can't be used: "
            "the key is encrypted, and there is no password for it"
        )
    ]
    assert problems(*one.paths, empty) == [
        f"serving.tls_client_ca: {empty} can't be used: OpenSSL says: no certificate or crl found"
    ]
    config = tmp_path / "thermocline.toml"
    lines = f'tls_certificate = "{one.certificate}"\ntls_key = "{other.key}"'
    config.write_text(CONFIG.format(serving=lines))
    with pytest.raises(ConfigInvalid, match="the key is not that of the certificate"):
        check_settings(config)
