"""The possible contents of a disk after a power failure, given the system calls that were made on it.

The model guarantees only what POSIX guarantees, which is less than any file system guarantees:

* Writes to a file are durable after a sync of that file. Before that, each write may be on the disk completely, in
  some sectors, up to some byte, as zeros, or not at all.
* A created, moved or removed name is durable after a sync of its folder. Before that, each change may have happened or
  not, independently of the others. A sync of a file makes none of its names durable. A sync of a folder does not make
  the folder's own name durable.
* A failed sync makes nothing durable, and a later sync of the same file does not repair that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeAlias

from .shim import Call

SECTOR = 512
Tree: TypeAlias = dict[str, bytes | None]
"""The content of each file by its path, or ``None`` for a folder; a folder comes before its entries."""


@dataclass
class Change:
    """A change of a file's content: written bytes, or a new length."""

    offset: int
    data: bytes | None
    doubtful: bool = False
    """Whether a sync of the change has failed."""

    @property
    def end(self) -> int:
        return self.offset + len(self.data or b"")

    def apply(self, content: bytearray) -> None:
        if len(content) < self.end:
            content.extend(bytes(self.end - len(content)))
        if self.data is None:
            del content[self.offset :]
        else:
            content[self.offset : self.end] = self.data


@dataclass
class File:
    durable: bytes = b""
    pending: list[Change] = field(default_factory=list)

    def content(self, changes: Iterable[Change] | None = None) -> bytes:
        """Return the durable content with these changes, by default with all."""
        content = bytearray(self.durable)
        for change in self.pending if changes is None else changes:
            change.apply(content)
        return bytes(content)

    def doubt(self) -> int:
        return sum(1 + len(change.data or b"") // 1024 for change in self.pending)

    def sync(self) -> None:
        self.durable = self.content(change for change in self.pending if not change.doubtful)
        self.pending = [change for change in self.pending if change.doubtful]

    def fail_to_sync(self) -> None:
        for change in self.pending:
            change.doubtful = True


@dataclass
class Folder:
    durable: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[dict[str, File | Folder | None]] = field(default_factory=list)
    """The names that each call changed; ``None`` for a removed name."""

    def entries(self, changes: Iterable[dict[str, File | Folder | None]] | None = None) -> dict[str, File | Folder]:
        """Return the durable entries with these changes, by default with all."""
        entries: dict[str, File | Folder | None] = dict(self.durable)
        for change in self.pending if changes is None else changes:
            entries.update(change)
        return {name: node for name, node in entries.items() if node is not None}

    def doubt(self) -> int:
        return len(self.pending)

    def sync(self) -> None:
        self.durable, self.pending = self.entries(), []


class Disk:
    """The folder of the calls: its current state, and its durable state."""

    def __init__(self, root: Path) -> None:
        """Start with the present content of a folder, which counts as durable."""
        self.path = str(root.resolve())
        self.by_inode: dict[int, File | Folder] = {}
        self.root = Folder()
        self._read(root, self.root)

    def _read(self, path: Path, folder: Folder) -> None:
        self.by_inode[path.stat().st_ino] = folder
        for entry in path.iterdir():
            node: File | Folder
            if entry.is_dir():
                node = Folder()
                self._read(entry, node)
            else:
                node = File(entry.read_bytes())
                self.by_inode[entry.stat().st_ino] = node
            folder.durable[entry.name] = node

    def apply(self, call: Call) -> None:
        """Apply a call to the model."""
        node = self.by_inode.get(call.inode)
        if call.kind == "sync":
            if node is not None and call.error == 0:
                node.sync()
            elif isinstance(node, File):
                node.fail_to_sync()
        elif call.performed and call.kind in _EFFECTS:
            _EFFECTS[call.kind](self, call, node)

    def doubt(self) -> int:
        """Return the amount of data that is not durable; a name counts as a kibibyte."""
        return sum(node.doubt() for node in self.by_inode.values())

    def folder_of(self, path: str) -> tuple[Folder, str]:
        """Return the folder of a path, and the path's last name."""
        parts = Path(path).relative_to(self.path).parts
        folder = self.root
        for part in parts[:-1]:
            inner = folder.entries()[part]
            assert isinstance(inner, Folder), path
            folder = inner
        return folder, parts[-1]

    def _name(self, path: str, node: File | Folder) -> None:
        folder, name = self.folder_of(path)
        folder.pending.append({name: node})

    def _open(self, call: Call, node: File | Folder | None) -> None:
        if not call.flags & (os.O_CREAT | os.O_TRUNC):
            return
        folder, name = self.folder_of(call.path)
        found = folder.entries().get(name)
        if found is None:
            # An inode can be reused after its file was removed.
            self.by_inode[call.inode] = found = File()
            folder.pending.append({name: found})
        if call.flags & os.O_TRUNC and isinstance(found, File):
            found.pending.append(Change(0, None))

    def _write(self, call: Call, node: File | Folder | None) -> None:
        assert isinstance(node, File), call
        node.pending.append(Change(call.offset, call.data))

    def _truncate(self, call: Call, node: File | Folder | None) -> None:
        assert isinstance(node, File), call
        node.pending.append(Change(call.offset, None))

    def _mkdir(self, call: Call, node: File | Folder | None) -> None:
        self.by_inode[call.inode] = made = Folder()
        self._name(call.path, made)

    def _link(self, call: Call, node: File | Folder | None) -> None:
        assert node is not None, call
        self._name(call.other, node)

    def _rename(self, call: Call, node: File | Folder | None) -> None:
        assert node is not None, call
        (source, old), (target, new) = self.folder_of(call.path), self.folder_of(call.other)
        if source is target:
            # Within one folder a rename is atomic.
            source.pending.append({old: None, new: node})
        else:
            target.pending.append({new: node})
            source.pending.append({old: None})

    def _unlink(self, call: Call, node: File | Folder | None) -> None:
        folder, name = self.folder_of(call.path)
        folder.pending.append({name: None})


_EFFECTS: dict[str, Callable[[Disk, Call, File | Folder | None], None]] = {
    "open": Disk._open,
    "write": Disk._write,
    "truncate": Disk._truncate,
    "mkdir": Disk._mkdir,
    "link": Disk._link,
    "rename": Disk._rename,
    "unlink": Disk._unlink,
}


# Survivals


@dataclass(frozen=True)
class Survival:
    """A choice of the changes that reach the disk although they are not durable."""

    names: Callable[[list[dict[str, File | Folder | None]]], list[dict[str, File | Folder | None]]]
    content: Callable[[File], bytes]

    def tree(self, disk: Disk) -> Tree:
        """Return the content of the disk after a power failure at this point."""
        contents: dict[int, bytes] = {}
        tree: Tree = {}

        def walk(folder: Folder, prefix: str) -> None:
            for name, node in sorted(folder.entries(self.names(folder.pending)).items()):
                if isinstance(node, Folder):
                    tree[prefix + name] = None
                    walk(node, f"{prefix}{name}/")
                else:
                    # A file with two names has one content.
                    if id(node) not in contents:
                        contents[id(node)] = self.content(node) if node.pending else node.durable
                    tree[prefix + name] = contents[id(node)]

        walk(disk.root, "")
        return tree


def zeros(file: File) -> bytes:
    """Return a file of its current length whose pending writes are zeros."""
    return file.durable.ljust(len(file.content()), b"\0")[: len(file.content())]


NOTHING = Survival(lambda _: [], lambda file: file.durable)
EXTREMES = {
    "nothing": NOTHING,
    "everything": Survival(lambda names: names, File.content),
    "names": Survival(lambda names: names, lambda file: file.durable),
    "names and lengths": Survival(lambda names: names, zeros),
    "content": Survival(lambda _: [], File.content),
    "the last name": Survival(lambda names: names[-1:], File.content),
    "all but the first name": Survival(lambda names: names[1:], File.content),
}
"""The survivals to try at every point."""


def chance(random: Random) -> Survival:
    """Return a random survival; the probability that a change survives is random too."""
    share = random.choice((0.0, 0.2, 0.5, 0.8, 1.0))

    def names(pending: list[dict[str, File | Folder | None]]) -> list[dict[str, File | Folder | None]]:
        return [change for change in pending if random.random() < share]

    return Survival(names, lambda file: random.choice(_CONTENTS)(file, random))


def _dropped(file: File, random: Random) -> bytes:
    return file.durable


def _whole(file: File, random: Random) -> bytes:
    return file.content()


def _zeroed(file: File, random: Random) -> bytes:
    return zeros(file)


def _cut(file: File, random: Random) -> bytes:
    """Return the content with the writes in order, up to a random byte."""
    changes = file.pending[: random.randint(1, len(file.pending))]
    *before, last = changes
    if last.data is not None:
        last = Change(last.offset, last.data[: random.randint(0, len(last.data))])
    return file.content([*before, last])


def _some(file: File, random: Random) -> bytes:
    """Return the content with some of the writes, in a random order."""
    return file.content(change for change in file.pending if random.random() < 0.5)


def _sectors(file: File, random: Random) -> bytes:
    """Return the content with each sector either old or new."""
    after = file.content()
    content = bytearray(zeros(file))
    for at in range(0, len(after), SECTOR):
        if random.random() < 0.5:
            content[at : at + SECTOR] = after[at : at + SECTOR]
    return bytes(content)


_CONTENTS = (_dropped, _whole, _zeroed, _cut, _some, _sectors)


def write_tree(tree: Tree, folder: Path) -> None:
    """Write a tree to a new folder."""
    folder.mkdir()
    for name, content in tree.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)


def read_tree(folder: Path) -> Tree:
    """Return the tree in a folder."""
    found = sorted(folder.rglob("*"))
    return {path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes() for path in found}


# Histories


@dataclass(frozen=True)
class Step:
    """A process: the number of calls before it began, and before it ended with status 0."""

    began: int
    acknowledged: int
    runs: frozenset[bytes]
    """The content of the archive after the step."""


@dataclass
class History:
    """A history of processes that worked on a disk one after another."""

    before: Disk
    """The initial, durable content of the disk."""
    calls: list[Call]
    steps: list[Step]

    def states(self) -> Iterator[tuple[int, Disk]]:
        """Yield the disk before the first call and after each one; it is the same object each time."""
        disk = deepcopy(self.before)
        yield 0, disk
        for number, call in enumerate(self.calls, start=1):
            disk.apply(call)
            yield number, disk

    def possible(self, position: int) -> list[frozenset[bytes] | None]:
        """Return the possible contents of the archive after ``position`` calls; ``None`` means no archive."""
        acknowledged = sum(step.acknowledged <= position for step in self.steps)
        begun = sum(step.began < position for step in self.steps)
        possible: list[frozenset[bytes] | None] = [step.runs for step in self.steps[:begun]]
        # Creating an archive and adding to it are two commits.
        return possible[acknowledged - 1 :] if acknowledged else [None, frozenset(), *possible]

    def final_contents(self) -> dict[str, bytes]:
        """Return the complete content of every file, by each name that it ever had."""
        contents: dict[str, bytes] = {}
        for _, disk in self.states():
            tree = EXTREMES["everything"].tree(disk)
            contents.update((name, content) for name, content in tree.items() if content is not None)
        return contents
