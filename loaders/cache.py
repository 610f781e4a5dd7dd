"""The loaded models of a process: at most so many, the least recently used one goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from loaders.handle import ModelHandle

Key = tuple[str, str]
"""(name, version)"""


class ModelCache:
    """Keeps up to `capacity` handles; `retire(handle)` is called with each that leaves, and decides when to close it.

    *Thread:* one at a time; it has no lock of its own.
    """

    def __init__(self, capacity: int, retire: Callable[[ModelHandle], None] = ModelHandle.close) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self._capacity = capacity
        self._retire = retire
        self._handles: OrderedDict[Key, ModelHandle] = OrderedDict()

    def __repr__(self) -> str:
        names = ", ".join(f"{name}/{version}" for name, version in self._handles)
        return f"<ModelCache {len(self._handles)} of {self._capacity}: {names}>"

    def __len__(self) -> int:
        return len(self._handles)

    def __contains__(self, key: Key) -> bool:
        return key in self._handles

    def keys(self) -> list[Key]:
        """What is loaded, least recently used first."""
        return list(self._handles)

    def handles(self) -> list[ModelHandle]:
        """The loaded handles, least recently used first."""
        return list(self._handles.values())

    def peek(self, key: Key) -> ModelHandle | None:
        """The handle, without counting as a use; None when it is not loaded."""
        return self._handles.get(key)

    def get(self, key: Key) -> ModelHandle | None:
        """The handle, which counts as used now; None when it is not loaded."""
        handle = self._handles.get(key)
        if handle is not None:
            self._handles.move_to_end(key)
        return handle

    def put(self, handle: ModelHandle) -> None:
        """Keep a handle as the most recently used one; an older one of the same name and version is replaced.

        Whatever leaves is retired after the new one is in its place.
        """
        key = (handle.name, handle.version)
        leaving = [old] if (old := self._handles.pop(key, None)) is not None and old is not handle else []
        self._handles[key] = handle
        while len(self._handles) > self._capacity:
            leaving.append(self._handles.popitem(last=False)[1])
        for gone in leaving:
            self._retire(gone)

    def remove(self, key: Key) -> bool:
        """Retire one handle; False when it is not loaded."""
        handle = self._handles.pop(key, None)
        if handle is None:
            return False
        self._retire(handle)
        return True

    def clear(self) -> None:
        """Retire all of them."""
        for key in self.keys():
            self.remove(key)
