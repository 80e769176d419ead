"""Admission by a clients file: keys, expiry, rotation, changes of the file, and who brings nothing."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from thermocline.errors import ConfigInvalid, TooManyRequests, Unauthenticated
from thermocline.serving.access.admission import Admission
from thermocline.serving.access.clients import read_clients
from thermocline.serving.access.clients_file import ClientsFile
from thermocline.serving.access.keys import ApiKey
from thermocline.serving.access.limits import RateLimits
from thermocline.serving.read.caller import WHOLE, Action, Credentials, Grant, Part

KEY = ApiKey("0123456789ab", "a" * 43)
OTHER = ApiKey("ba9876543210", "b" * 43)
# printf '%s' aaaa… | sha256sum
HASH = "66d34fba71f8f450f7e45598853e53bfc23bbd129027cbb131a2f4ffd7878cd0"


def file_of(folder: Path, text: str) -> Path:
    path = folder / "clients.toml"
    path.write_text(text)
    return path


def client(name: str = "billing", keys: str = "", tables: str = 'profiles = { verbs = ["lookup"] }') -> str:
    entries = keys or f'{{ id = "{KEY.id}", sha256 = "{KEY.hash()}" }}'
    return f"[clients.{name}]\nkeys = [{entries}]\n[clients.{name}.tables]\n{tables}\n"


def bearer(key: ApiKey) -> Credentials:
    return Credentials(f"Bearer {key.text}")


def admission(folder: Path, text: str, clock: ManualClock | None = None) -> tuple[Admission, ClientsFile]:
    file = ClientsFile(file_of(folder, text))
    return Admission(file, clock or ManualClock()), file


def look(file: ClientsFile) -> None:
    """As a server does, each second."""
    file.look()
    file.look()


def test_a_key_has_its_name_a_secret_of_256_bits_and_this_form() -> None:
    key = ApiKey.new()
    assert key.text == f"thermocline_{key.id}_{key.secret}"
    assert ApiKey.parse(key.text) == key
    assert len(base64.urlsafe_b64decode(key.secret + "=")) == 32
    assert ApiKey.new().secret != key.secret
    assert key.secret not in repr(key)
    for wrong in (
        "",
        key.id,
        key.text[:-1],
        key.text + "a",
        key.text.replace("thermocline", "other"),
        f"{key.text}\n",
    ):
        assert ApiKey.parse(wrong) is None


def test_the_hash_that_is_kept_is_the_secrets_sha_256() -> None:
    assert ApiKey("0123456789ab", "a" * 43).hash() == HASH


def test_a_key_admits_its_client_by_bearer_and_basic(tmp_path: Path) -> None:
    admit, _ = admission(tmp_path, client())
    basic = base64.b64encode(f"anybody:{KEY.text}".encode()).decode()
    for said in (f"Bearer {KEY.text}", f"bearer {KEY.text}", f"Basic {basic}"):
        for _ in range(2):
            caller = admit(Credentials(said))
            assert (caller.name, caller.key) == ("billing", KEY.id)
            assert caller.grants == {"profiles": Grant(frozenset({Action.LOOKUP}), WHOLE)}


@pytest.mark.parametrize(
    "said",
    [
        *(
            "",
            "Bearer",
            "Bearer ",
            "Bearer x",
            f"Token {KEY.text}",
            KEY.text,
            "Basic",
            "Basic !",
            "Basic w6k=",
            "Basic \xe9",
        ),
        f"Bearer {ApiKey(KEY.id, OTHER.secret).text}",
        f"Bearer {OTHER.text}",
        f"Bearer {KEY.text} {KEY.text}",
        "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJiaWxsaW5nIn0.",
    ],
)
def test_whatever_else_is_brought_admits_nobody(tmp_path: Path, said: str) -> None:
    admit, _ = admission(tmp_path, client() + client("anonymous", keys=" "))
    with pytest.raises(Unauthenticated) as raised:
        admit(Credentials(said))
    assert KEY.id not in str(raised.value)


def test_who_brings_nothing_is_anonymous_where_there_is_such_a_client(tmp_path: Path) -> None:
    admit, _ = admission(tmp_path, client())
    with pytest.raises(Unauthenticated, match="no credentials"):
        admit(Credentials())
    admit, _ = admission(tmp_path, client() + client("anonymous", keys=" "))
    assert admit(Credentials()).name == "anonymous"
    assert admit(Credentials()).may(Action.LOOKUP, "profiles")


def test_a_key_counts_until_it_expires(tmp_path: Path) -> None:
    clock = ManualClock(1_798_761_599_000)  # 2026-12-31T23:59:59Z
    entry = f'{{ id = "{KEY.id}", sha256 = "{KEY.hash()}", expires = 2027-01-01T00:00:00Z }}'
    admit, _ = admission(tmp_path, client(keys=entry), clock)
    assert admit(bearer(KEY)).name == "billing"
    clock.advance(0.999)
    assert admit(bearer(KEY)).name == "billing"
    clock.advance(0.001)
    with pytest.raises(Unauthenticated):
        admit(bearer(KEY))


def test_a_revoked_key_is_refused_once_the_file_is_looked_at_and_the_other_goes_on(tmp_path: Path) -> None:
    entries = ", ".join(f'{{ id = "{key.id}", sha256 = "{key.hash()}" }}' for key in (KEY, OTHER))
    admit, file = admission(tmp_path, client(keys=entries))
    assert admit(bearer(KEY)) == admit(bearer(KEY))
    file_of(tmp_path, client(keys=f'{{ id = "{OTHER.id}", sha256 = "{OTHER.hash()}" }}') + "# revoked\n")
    look(file)
    assert admit(bearer(OTHER)).key == OTHER.id
    with pytest.raises(Unauthenticated):
        admit(bearer(KEY))


def test_a_file_that_cannot_be_read_changes_nothing_and_is_named(tmp_path: Path) -> None:
    admit, file = admission(tmp_path, client())
    for broken in ("[clients", client(tables='profiles = { verbs = ["write"] }')):
        file_of(tmp_path, broken)
        look(file)
        assert file.problem
        assert admit(bearer(KEY)).name == "billing"
    (tmp_path / "clients.toml").unlink()
    file.look()
    assert file.problem == "No such file or directory"
    assert admit(bearer(KEY)).name == "billing"
    file_of(tmp_path, client("other"))
    look(file)
    assert file.problem is None
    assert admit(bearer(KEY)).name == "other"


def test_a_file_that_is_half_written_grants_nothing_new(tmp_path: Path) -> None:
    tables = 'profiles = { verbs = ["lookup"] }'
    admit, file = admission(tmp_path, client(tables=tables))
    text = client(tables="").replace("[clients.billing.tables]\n", "[clients.billing.tables.profiles]\n")
    halves = (f'{text}verbs = ["lookup"]\n', 'columns = ["value"]\nscope = { app_id = 7 }\n')
    path = tmp_path / "clients.toml"
    seen = []
    for written in (halves[0], "".join(halves)):
        path.write_text(written)
        file.look()
        seen.append(admit(bearer(KEY)).grants)
    assert seen[0] == seen[1] == {"profiles": Grant(frozenset({Action.LOOKUP}), WHOLE)}, "of before"
    file.look()
    assert not admit(bearer(KEY)).sees_all("profiles")


@pytest.mark.parametrize("how", ["loop", "no folder", "nested"])
def test_a_file_that_is_repaired_counts_again(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    admit, file = admission(folder, client())
    path = folder / "clients.toml"
    path.unlink()
    match how:
        case "loop":
            path.symlink_to(path)
        case "no folder":
            folder.rmdir()
            folder.write_text("")
        case "nested":
            path.write_text("x = " + "[" * 100_000)
    look(file)
    assert file.told()
    assert admit(bearer(KEY)).name == "billing"
    if how == "no folder":
        folder.unlink()
        folder.mkdir()
    path.unlink(missing_ok=True)
    path.write_text("")
    look(file)
    assert file.told() is None
    with pytest.raises(Unauthenticated):
        admit(bearer(KEY))


def test_a_look_that_fails_is_not_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermocline.serving.access.admission.LOOK_SECONDS", 0.0)
    admit, file = admission(tmp_path, client())
    looks: list[int] = []
    third = asyncio.Event()
    loop: Any = None

    def look_in_vain() -> None:
        looks.append(1)
        if len(looks) == 3:
            loop.call_soon_threadsafe(third.set)
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(file, "look", look_in_vain)

    async def drive() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        tending = asyncio.create_task(admit.tend_forever())
        await third.wait()
        tending.cancel()

    asyncio.run(drive())


def test_what_is_kept_of_callers_is_bounded(tmp_path: Path) -> None:
    admit, _ = admission(tmp_path, client())
    padded = Credentials(f"Bearer {' ' * 10_000}{KEY.text}")
    assert admit(padded).name == "billing"
    assert admit.recognised(padded) is None
    assert admit(bearer(KEY)) is admit.recognised(bearer(KEY))


def test_a_verified_certificate_admits_its_client(tmp_path: Path) -> None:
    text = (
        '[clients.batch]\ncertificates = ["dns:batch.internal"]\ntables = { t = { verbs = ["extract"] } }\n'
    )
    admit, _ = admission(tmp_path, text + client("anonymous", keys=" "))
    caller = admit(Credentials(certificates=("cn:x", "dns:batch.internal")))
    assert (caller.name, caller.key) == ("batch", "dns:batch.internal")
    with pytest.raises(Unauthenticated, match="certificate"):
        admit(Credentials(certificates=("cn:x",)))
    assert admit(Credentials()).name == "anonymous"


def test_who_was_admitted_by_a_certificate_is_recognised_until_the_file_says_otherwise(
    tmp_path: Path,
) -> None:
    text = (
        '[clients.batch]\ncertificates = ["dns:batch.internal"]\ntables = { t = { verbs = ["extract"] } }\n'
    )
    admit, file = admission(tmp_path, text)
    shown = Credentials(certificates=("cn:x", "dns:batch.internal"))
    assert admit.recognised(shown) is None
    caller = admit(shown)
    assert admit.recognised(shown) is caller
    for other in (
        Credentials(),
        Credentials(certificates=("cn:x",)),
        Credentials("Bearer x", shown.certificates),
    ):
        assert admit.recognised(other) is None
    file_of(tmp_path, text.replace("batch.internal", "other.internal"))
    look(file)
    assert admit.recognised(shown) is None
    with pytest.raises(Unauthenticated):
        admit(shown)


def test_failed_credentials_slow_an_address_down_and_no_other(tmp_path: Path) -> None:
    clock = ManualClock()
    rates = RateLimits(tmp_path, 1, clock)
    admit = Admission(ClientsFile(file_of(tmp_path, client())), clock, rates)
    admit(Credentials(f"Bearer {KEY.text}", address="192.0.2.1"))
    for _ in range(5):
        with pytest.raises(Unauthenticated):
            admit(Credentials("Bearer x", address="192.0.2.1"))
    with pytest.raises(TooManyRequests):
        admit(Credentials("Bearer x", address="192.0.2.1"))
    assert admit(Credentials(f"Bearer {KEY.text}", address="192.0.2.1")).name == "billing", "known before"
    with pytest.raises(Unauthenticated):
        admit(Credentials("Bearer x", address="192.0.2.2"))
    rates.close()


def test_who_was_let_in_goes_on_where_credentials_fail_though_the_file_changes(tmp_path: Path) -> None:
    clock = ManualClock()
    rates = RateLimits(tmp_path, 1, clock)
    file = ClientsFile(file_of(tmp_path, client()))
    admit = Admission(file, clock, rates)
    known = Credentials(f"Bearer {KEY.text}", address="192.0.2.1")
    assert admit(known).name == "billing"
    for _ in range(5):
        with pytest.raises(Unauthenticated):
            admit(Credentials("Bearer x", address="192.0.2.1"))
    file_of(tmp_path, client("accounts") + "# called otherwise\n")
    look(file)
    assert admit(known).name == "accounts"
    file_of(
        tmp_path, client(keys=f'{{ id = "{OTHER.id}", sha256 = "{OTHER.hash()}" }}') + "# without its key\n"
    )
    look(file)
    with pytest.raises(TooManyRequests):
        admit(known)
    rates.close()


def test_a_scope_and_columns_become_the_part_that_is_seen(tmp_path: Path) -> None:
    scope = 'scope = { app_id = 7, user_id = "u" }'
    tables = f'profiles = {{ verbs = ["lookup", "extract"], columns = ["value"], {scope} }}'
    admit, _ = admission(tmp_path, client(tables=tables))
    assert admit(bearer(KEY)).grant("profiles") == Grant(
        frozenset({Action.LOOKUP, Action.EXTRACT}), Part(("value",), (("app_id", "7"), ("user_id", "u")))
    )
    assert not admit(bearer(KEY)).knows("other")


def test_a_grant_for_all_tables_is_for_those_without_one_of_their_own(tmp_path: Path) -> None:
    tables = '"*" = { verbs = ["admin"] }\nprofiles = { verbs = ["lookup"] }'
    caller = admission(tmp_path, client(tables=tables))[0](bearer(KEY))
    assert (caller.may(Action.ADMIN, "other"), caller.may(Action.ADMIN, "profiles")) == (True, False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[clients.a]\nkey = 1", "clients.a.key: Extra inputs are not permitted"),
        ("[client.a]", "client: Extra inputs are not permitted"),
        ('[clients."a b"]', "should match pattern"),
        (client(keys='{ id = "zz", sha256 = "" }'), "clients.billing.keys.0.id"),
        (client(keys=f'{{ id = "{KEY.id}", sha256 = "{HASH}", expires = 2027-01-01 }}'), "time zone"),
        (client(tables="profiles = { verbs = [] }"), "clients.billing.tables.profiles.verbs"),
        (client(tables='profiles = { verbs = ["drop"] }'), "clients.billing.tables.profiles.verbs.0"),
        (client(tables='profiles = { verbs = ["catalog"], columns = ["value"] }'), "no verb catalog"),
        (client(tables='profiles = { verbs = ["catalog"], scope = { app_id = 1 } }'), "no verb catalog"),
        (client(tables='profiles = { verbs = ["admin"], columns = ["value"] }'), "no verb admin"),
        (client(tables='profiles = { verbs = ["lookup"], scope = { app_id = "claim:t" } }'), "issuer"),
        (client(tables='profiles = { verbs = ["lookup"], scope = { app_id = true } }'), "scope.app_id"),
        (client() + client("other"), f"the key {KEY.id} is of billing and of other"),
        (client("anonymous"), "can't have any"),
        ('[clients.a]\ncertificates = ["billing"]', "clients.a.certificates.0"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_by_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        read_clients(file_of(tmp_path, text))
    assert problem in str(raised.value.problems)
    assert HASH not in str(raised.value)


def test_an_error_of_a_file_shows_nothing_of_what_is_in_it(tmp_path: Path) -> None:
    secret: Any = "c" * 43
    for text in (f'[clients.a]\nkeys = ["{secret}"]', f'[clients.a]\nissuer = 1\nclaims = "{secret}"'):
        with pytest.raises(ConfigInvalid) as raised:
            read_clients(file_of(tmp_path, text))
        assert secret not in str(raised.value)
        assert secret not in repr(raised.value.__context__.__class__)
