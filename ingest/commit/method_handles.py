"""Java's method handles: what is put together of them runs over many objects without a call from Python.

A call from Python into the JVM takes some 0.2 ms, so loops over files and manifests' entries are Java's.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass

__all__ = ["Handles", "class_of"]


class Handles:
    """Finds methods of Java's classes as handles, and puts handles together.

    Classes may be py4j's, or ``java.lang.Class`` itself, as those of primitive types are.
    """

    def __init__(self, jvm: Any, inside: Any = None) -> None:
        """With ``inside``, also what only the package of that class sees."""
        self._java = jvm.java
        self._handles = jvm.java.lang.invoke.MethodHandles
        self._lookup = (
            self._handles.publicLookup()
            if inside is None
            else self._handles.privateLookupIn(class_of(inside), self._handles.lookup())
        )

    def static(self, owner: Any, name: str, returned: Any, *parameters: Any) -> Any:
        """A static method."""
        return self._lookup.findStatic(class_of(owner), name, self._type(returned, *parameters))

    def virtual(self, owner: Any, name: str, returned: Any, *parameters: Any) -> Any:
        """A method, whose first argument is the object."""
        return self._lookup.findVirtual(class_of(owner), name, self._type(returned, *parameters))

    def given(self, handle: Any, place: int, *values: Any) -> Any:
        """With some arguments set."""
        return self._handles.insertArguments(handle, place, self._list(*values).toArray())

    def chain(self, first: Any, *others: Any) -> Any:
        """One after the other, each with what the one before it returns."""
        for other in others:
            taken = first.type().returnType()
            first = self._handles.filterReturnValue(
                first, other.asType(other.type().changeParameterType(0, taken))
            )
        return first

    def returning(self, handle: Any, returned: Any) -> Any:
        """With what it returns cast."""
        return handle.asType(handle.type().changeReturnType(class_of(returned)))

    def with_first(self, handle: Any, of_second: Any) -> Any:
        """Of (a, b) → c, and b → a: b → c."""
        of_both = self._handles.collectArguments(handle, 0, of_second)
        alone = of_second.type().changeReturnType(handle.type().returnType())
        both_first = self._java.lang.reflect.Array.newInstance(self._java.lang.Integer.TYPE, 2)
        return self._handles.permuteArguments(of_both, alone, both_first)

    def as_interface(self, interface: Any, handle: Any) -> Any:
        """An object of the interface, whose one method is the handle."""
        return self._java.lang.invoke.MethodHandleProxies.asInterfaceInstance(class_of(interface), handle)

    def _type(self, returned: Any, *parameters: Any) -> Any:
        classes = self._list(*(class_of(one) for one in parameters))
        return self._java.lang.invoke.MethodType.methodType(class_of(returned), classes)

    def _list(self, *values: Any) -> Any:
        some = self._java.util.ArrayList()
        for value in values:
            some.add(value)
        return some


def class_of(java_class: Any) -> Any:
    """What Java calls ``.class``."""
    if not isinstance(java_class, JavaClass):
        return java_class
    return java_class._java_lang_class  # noqa: SLF001  py4j's name for it
