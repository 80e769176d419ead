"""Passwords inside of texts."""

from __future__ import annotations

import pytest

from thermocline.process.masking import mask_password


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
