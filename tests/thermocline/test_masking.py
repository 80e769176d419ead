"""Passwords inside of texts."""

from __future__ import annotations

import pytest

from thermocline.process.masking import mask_password, mask_secrets, remember


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://u:secret@db:5432/x", "postgresql://u:****@db:5432/x"),
        ("postgresql://u:p@ss:w@db/x", "postgresql://u:****@db/x"),
        ("postgresql://u@server:secret@db/x", "postgresql://u@server:****@db/x"),
        ("s3://bucket/a and http://u:p@h", "s3://bucket/a and http://u:****@h"),
        ("jdbc.password=abc&user=u", "jdbc.password=****&user=u"),
        ("ssl.key.password: 'a b' rest", "ssl.key.password: **** rest"),
        ("AWS_SECRET_ACCESS_KEY=abc", "AWS_SECRET_ACCESS_KEY=****"),
        ('{"s3.secret-access-key": "abc", "x": 1}', '{"s3.secret-access-key": ****, "x": 1}'),
        ("{'credential': 'id:abc'}", "{'credential': ****}"),
        ("Authorization: Bearer abc rest", "Authorization: **** rest"),
        ("401 for Bearer abcdefgh.ijk", "401 for Bearer ****"),
        (
            'org.x.Login required username="u" password="a b";',
            'org.x.Login required username="u" password=****;',
        ),
        ("adls.account-key=abc", "adls.account-key=****"),
    ],
)
def test_a_password_is_replaced(text: str, masked: str) -> None:
    assert mask_password(text) == masked


@pytest.mark.parametrize(
    "text",
    ["localhost:9092,other:9093", "sqlite:////srv/catalog.db", "http://h:80/a@b", "no such table: app.x"],
)
def test_other_text_stays(text: str) -> None:
    assert mask_password(text) == text


@pytest.mark.parametrize(
    ("secret", "text", "masked"),
    [
        ("canary-7f3a", "the broker refused canary-7f3a.", "the broker refused ****."),
        ("canary/7f3a", "GET /canary%2F7f3a", "GET /****"),
        ('canary"7f3a', r'{"x": "canary\"7f3a"}', '{"x": "****"}'),
        ("canary-7f3a-canary", "xcanary-7f3a-canaryx", "x****x"),
        ("zyxwvut", "zyxwvuts://zyxwvut@h", "zyxwvuts://****@h"),
        ("-----BEGIN KEY-----\nMIIEvQIBADANBgkqh\n", "near MIIEvQIBADANBgkqh:", "near ****:"),
    ],
)
def test_a_secret_that_is_known_is_replaced_wherever_it_stands(secret: str, text: str, masked: str) -> None:
    remember([secret])
    assert mask_secrets(text) == masked
    assert mask_password(text) == masked


def test_a_longer_secret_is_replaced_before_one_that_is_part_of_it() -> None:
    remember(["canary-7f3a"])
    remember(["canary-7f3a-and-more"])
    assert mask_secrets("canary-7f3a-and-more canary-7f3a") == "**** ****"


@pytest.mark.parametrize("secret", ["", "kafka", "thermocline"])
def test_what_is_in_any_text_is_not_replaced(secret: str) -> None:
    remember([secret])
    assert mask_secrets("thermocline asks kafka") == "thermocline asks kafka"
