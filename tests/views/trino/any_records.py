"""Records at random, most of them nearly good; what the record rule says of them, others find out."""

from __future__ import annotations

import base64
from random import Random

DIGITS = "0123456789"
ODD_NUMBERS = [
    *("1e999", "-1e999", "9" * 400, "9" * 400 + ".5", "0." + "0" * 400 + "1", "1" + "0" * 400 + ".0e-400"),
    *(
        "0e999",
        "0e1000",
        "0.0e1000",
        "1e0001",
        "1." + "0" * 998,
        "1." + "0" * 999,
    ),
    *("0e99999999999999999999999999999999999999999999", "-0", "-0.0", "-0e0", "1e-400", "5e-324"),
    *("0.1000000000000000000001", "0.1000000000000000055511151231257827", "12345678901234567.50"),
]
WORDS = [
    *("true", "false", "null", "null", "True", "nul", "Infinity", "NaN", "-Infinity", "-", "+1", ".5", "5."),
    *('"Infinity"', '"-Infinity"', '"NaN"', "[]", "{}", '["a",1.5]', '["1e999"]', '{"x":[1,{"y":null}]}'),
]
PIECES = [
    *("a", "Z", " ", "/", "ä", "€", "😀", "\u2028", "\x7f", "\ufffd", "\uffff", "[", "{", "}", "]", ",", ":"),
    *('\\"', "\\\\", "\\/", "\\n", "\\t", "\\b", "\\u0000", "\\u0041", "\\u00e4", "\\u0022", "\\u005c"),
    *(
        "\\ud83d\\ude00",
        "\\uD83D\\uDE00",
        "\\\\ud800",
        "\\\\\\ud83d\\ude00",
        "1e999",
        "12345678901234567890.5",
    ),
]
BAD_PIECES = [
    *("\\ud800", "\\udfff", "\\uDC00\\uD800", "\\ud83d\\ud83d\\ude00", "\\ud800\\u0041"),
    *("\\x", "\\u12", "\n", "\x00", "\x1f", '"'),
]
BEGINNINGS = [b" ", b"\n", b"\xef\xbb\xbf", b"[", b"\x0c", b"\xc2\xa0"]
ENDINGS = [b" ", b"\n", b"x", b"{}", b"\x00", b",", b"\xc2\xa0"]


def any_document(random: Random, names: list[str]) -> bytes:
    """A JSON object with some of the names, or nearly one."""
    fields = [
        _blank(random)
        + '"'
        + _name(random, names)
        + '"'
        + _blank(random)
        + ":"
        + _blank(random)
        + _token(random)
        for _ in range(random.choice([0, 1, 1, 1, 2, 3, 4]))
    ]
    text = ("{" + ",".join(fields) + _blank(random) + "}").encode()
    return _damaged(random, text) if random.random() < 0.1 else text


def _damaged(random: Random, text: bytes) -> bytes:
    place = random.randrange(len(text))
    return random.choice(
        [
            text[:place] + bytes([random.randrange(256)]) + text[place + random.randint(0, 1) :],
            text[:place],
            random.choice(BEGINNINGS) + text,
            text + random.choice(ENDINGS),
        ]
    )


def _name(random: Random, names: list[str]) -> str:
    chance, name = random.random(), random.choice(names)
    if chance < 0.1:
        return random.choice(["other", "", "x y", "ä", "\\ud800", "\\u0000"])
    return f"\\u{ord(name[0]):04x}{name[1:]}" if chance < 0.15 else name


def _blank(random: Random) -> str:
    return random.choice([" ", "\n\t", "\r", "\x0b"]) if random.random() < 0.02 else ""


def _token(random: Random) -> str:
    kinds = [
        _number,
        _number,
        _number,
        _quoted_number,
        _text,
        _text,
        _word,
        _day,
        _time,
        _time,
        _clock,
        _uuid,
        _base64,
    ]
    return random.choice(kinds)(random)


def _digits(random: Random, count: int) -> str:
    return "".join(random.choice(DIGITS) for _ in range(count))


def _number(random: Random) -> str:
    if random.random() < 0.05:
        return random.choice(ODD_NUMBERS)
    whole = str(random.randrange(10 ** random.choice([1, 1, 2, 5, 9, 10, 12, 15, 17, 18, 19, 20, 30])))
    text = random.choice(["", "", "-"]) + whole
    if random.random() < 0.5:
        text += (
            "."
            + _digits(random, random.choice([1, 2, 2, 2, 3, 6, 15, 16, 17, 20, 40]))
            + "0" * random.choice([0, 0, 1, 30])
        )
    if random.random() < 0.3:
        power = random.choice([str(random.randrange(13)), str(random.randrange(400)), "0" * 25 + "2"])
        text += random.choice("eE") + random.choice(["", "+", "-"]) + power
    return text


def _quoted_number(random: Random) -> str:
    return '"' + _number(random) + '"'


def _text(random: Random) -> str:
    pieces = [
        random.choice(BAD_PIECES if random.random() < 0.02 else PIECES) for _ in range(random.randrange(9))
    ]
    return '"' + "".join(pieces) + '"'


def _word(random: Random) -> str:
    return random.choice(WORDS)


def _date(random: Random) -> str:
    year = random.choice([0, 1, 1582, 2024, 2026, 9999, random.randint(1, 9999)])
    return f"{year:04d}-{random.randrange(1, 13 + (random.random() < 0.1)):02d}-{random.randrange(1, 33):02d}"


def _day(random: Random) -> str:
    return '"' + _date(random) + '"'


def _clock(random: Random) -> str:
    return f'"{_time_of_day(random)}"'


def _time_of_day(random: Random) -> str:
    hour, minute, second = (random.randrange(limit + (random.random() < 0.05)) for limit in (24, 60, 60))
    fraction = "." + _digits(random, random.randrange(8)) if random.random() < 0.5 else ""
    return f"{hour:02d}:{minute:02d}:{second:02d}{fraction}"


def _time(random: Random) -> str:
    offset = f"{random.choice('+-')}{random.randrange(25):02d}:{random.randrange(61):02d}"
    zone = random.choice(["Z", "Z", offset, offset, "z", ""])
    separator = random.choice("TTTTTTTTt ")
    return f'"{_date(random)}{separator}{_time_of_day(random)}{zone}"'


def _uuid(random: Random) -> str:
    parts = [
        "".join(random.choice("0123456789abcdefABCDEF") for _ in range(count)) for count in (8, 4, 4, 4, 12)
    ]
    text = "-".join(parts)
    if random.random() < 0.2:
        place = random.randrange(len(text))
        text = text[:place] + random.choice(["", "-", "g", " "]) + text[place + 1 :]
    return f'"{text}"'


def _base64(random: Random) -> str:
    text = base64.b64encode(random.randbytes(random.randrange(13))).decode()
    if text and random.random() < 0.4:
        place = random.randrange(len(text))
        text = text[:place] + random.choice("=A/+-_ BZ") + text[place + random.randint(0, 1) :]
    return f'"{text}"'
