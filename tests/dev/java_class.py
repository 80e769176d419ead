"""A Java class of one method, as its compiler would write it: where there is a JVM, but maybe no compiler."""

from __future__ import annotations

import struct
from typing import Final

_MAGIC: Final = 0xCAFEBABE
_JAVA_8: Final = 52  # the newest format whose code needs no map of its stack here, and none anywhere below it
_PUBLIC, _STATIC, _SUPER = 0x0001, 0x0008, 0x0020
_UTF8, _CLASS, _STRING, _METHOD, _NAME_AND_TYPE = 1, 7, 8, 10, 12
_NEW, _DUP, _INVOKESPECIAL, _LDC, _INVOKEVIRTUAL, _RETURN = 0xBB, 0x59, 0xB7, 0x12, 0xB6, 0xB1


def class_that_calls(name: str, target: str, method: str, argument: str) -> bytes:
    """Gives a class whose ``main`` does ``new target().method(argument)``; names have slashes for dots.

    Source: The Java Virtual Machine Specification, chapter 4.
    """
    pool = _Pool()
    this, parent = pool.named_class(name), pool.named_class("java/lang/Object")
    created = pool.named_class(target)
    constructor = pool.method(created, "<init>", "()V")
    called = pool.method(created, method, "(Ljava/lang/String;)V")
    code = (
        struct.pack(">BHB", _NEW, created, _DUP)
        + struct.pack(">BH", _INVOKESPECIAL, constructor)
        + struct.pack(">BB", _LDC, pool.text(argument))
        + struct.pack(">BHB", _INVOKEVIRTUAL, called, _RETURN)
    )
    body = struct.pack(">HHI", 2, 1, len(code)) + code + struct.pack(">HH", 0, 0)
    main = struct.pack(
        ">HHHH", _PUBLIC | _STATIC, pool.utf8("main"), pool.utf8("([Ljava/lang/String;)V"), 1
    ) + struct.pack(">HI", pool.utf8("Code"), len(body))
    return (
        struct.pack(">IHHH", _MAGIC, 0, _JAVA_8, len(pool.entries) + 1)
        + b"".join(pool.entries)
        + struct.pack(">HHHHHH", _PUBLIC | _SUPER, this, parent, 0, 0, 1)
        + main
        + body
        + struct.pack(">H", 0)
    )


class _Pool:
    """The constants of a class; an index counts from 1."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def utf8(self, text: str) -> int:
        encoded = text.encode("ascii")
        return self._index(struct.pack(">BH", _UTF8, len(encoded)) + encoded)

    def named_class(self, name: str) -> int:
        return self._index(struct.pack(">BH", _CLASS, self.utf8(name)))

    def text(self, value: str) -> int:
        return self._index(struct.pack(">BH", _STRING, self.utf8(value)))

    def method(self, owner: int, name: str, descriptor: str) -> int:
        named = self._index(struct.pack(">BHH", _NAME_AND_TYPE, self.utf8(name), self.utf8(descriptor)))
        return self._index(struct.pack(">BHH", _METHOD, owner, named))

    def _index(self, entry: bytes) -> int:
        if entry not in self.entries:
            self.entries.append(entry)
        return self.entries.index(entry) + 1
