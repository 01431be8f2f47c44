"""What a disk can hold after the power fails, given the system calls that were made on it.

The model is the least that POSIX promises, less than any file system does:

* What was written to a file is durable once the file was synced after it. Until then each write may be there, in whole,
  in sectors, up to some byte, as zeros, or not at all.
* A name that was given, moved or taken away is durable once its folder was synced after it. Until then each may have
  happened or not, whatever became of the others. To sync a file makes none of its names durable, and to sync a folder
  not the folder's own name.
* A sync that failed makes nothing durable, and a later one of the same file does not make up for it.
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
"""The content of each file by its path, None for a folder; folders come before what is in them."""


@dataclass
class Change:
    """To a file's content: bytes that were written, or a new length."""

    offset: int
    data: bytes | None
    doubtful: bool = False
    """Whether a sync of it has failed."""

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
        """With these changes to what is durable, by default all."""
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
    """What each call changed, None for a name that was taken away."""

    def entries(self, changes: Iterable[dict[str, File | Folder | None]] | None = None) -> dict[str, File | Folder]:
        """With these changes to what is durable, by default all."""
        entries: dict[str, File | Folder | None] = dict(self.durable)
        for change in self.pending if changes is None else changes:
            entries.update(change)
        return {name: node for name, node in entries.items() if node is not None}

    def doubt(self) -> int:
        return len(self.pending)

    def sync(self) -> None:
        self.durable, self.pending = self.entries(), []


class Disk:
    """The folder that calls were made on, as they left it and as far as it is durable."""

    def __init__(self, root: Path) -> None:
        """With all that lies there now, which is durable."""
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
        """Do to the model what a call did to the disk."""
        node = self.by_inode.get(call.inode)
        if call.kind == "sync":
            if node is not None and call.error == 0:
                node.sync()
            elif isinstance(node, File):
                node.fail_to_sync()
        elif call.performed and call.kind in _EFFECTS:
            _EFFECTS[call.kind](self, call, node)

    def doubt(self) -> int:
        """How much is not durable: a name counts as much as a kibibyte."""
        return sum(node.doubt() for node in self.by_inode.values())

    def folder_of(self, path: str) -> tuple[Folder, str]:
        """The folder that a path's last name is in."""
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
            # An inode can be that of a file that is no more.
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
            # In one folder it happens as a whole or not at all.
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


# What survives


@dataclass(frozen=True)
class Survival:
    """Which of the changes that are not durable are on the disk all the same."""

    names: Callable[[list[dict[str, File | Folder | None]]], list[dict[str, File | Folder | None]]]
    content: Callable[[File], bytes]

    def tree(self, disk: Disk) -> Tree:
        """What the disk holds after the power failed now."""
        contents: dict[int, bytes] = {}
        tree: Tree = {}

        def walk(folder: Folder, prefix: str) -> None:
            for name, node in sorted(folder.entries(self.names(folder.pending)).items()):
                if isinstance(node, Folder):
                    tree[prefix + name] = None
                    walk(node, f"{prefix}{name}/")
                else:
                    # A file of two names has one content.
                    if id(node) not in contents:
                        contents[id(node)] = self.content(node) if node.pending else node.durable
                    tree[prefix + name] = contents[id(node)]

        walk(disk.root, "")
        return tree


def zeros(file: File) -> bytes:
    """As long as it was, but nothing of what was pending was written."""
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
"""What must be tried at every point."""


def chance(random: Random) -> Survival:
    """Some of what is not durable, drawn at random; how much of it is drawn too."""
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
    """Written in order up to some byte."""
    changes = file.pending[: random.randint(1, len(file.pending))]
    *before, last = changes
    if last.data is not None:
        last = Change(last.offset, last.data[: random.randint(0, len(last.data))])
    return file.content([*before, last])


def _some(file: File, random: Random) -> bytes:
    """Some of the writes, in some order of their own."""
    return file.content(change for change in file.pending if random.random() < 0.5)


def _sectors(file: File, random: Random) -> bytes:
    """Each sector as it was before or as it is."""
    after = file.content()
    content = bytearray(zeros(file))
    for at in range(0, len(after), SECTOR):
        if random.random() < 0.5:
            content[at : at + SECTOR] = after[at : at + SECTOR]
    return bytes(content)


_CONTENTS = (_dropped, _whole, _zeroed, _cut, _some, _sectors)


def write_tree(tree: Tree, folder: Path) -> None:
    """Make a folder that holds this."""
    folder.mkdir()
    for name, content in tree.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)


def read_tree(folder: Path) -> Tree:
    """What a folder holds."""
    found = sorted(folder.rglob("*"))
    return {path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes() for path in found}


# Histories


@dataclass(frozen=True)
class Step:
    """A process, by how many calls had been made when it began and when it had ended with status 0."""

    began: int
    acknowledged: int
    runs: frozenset[bytes]
    """What the archive holds since."""


@dataclass
class History:
    """Processes that worked on a disk one after another."""

    before: Disk
    """What lay on it, durable."""
    calls: list[Call]
    steps: list[Step]

    def states(self) -> Iterator[tuple[int, Disk]]:
        """The disk before the first call and after each one; it changes under the caller's hands."""
        disk = deepcopy(self.before)
        yield 0, disk
        for number, call in enumerate(self.calls, start=1):
            disk.apply(call)
            yield number, disk

    def possible(self, position: int) -> list[frozenset[bytes] | None]:
        """What the archive may hold after so many calls: what was acknowledged, or more. None is no archive."""
        acknowledged = sum(step.acknowledged <= position for step in self.steps)
        begun = sum(step.began < position for step in self.steps)
        possible: list[frozenset[bytes] | None] = [step.runs for step in self.steps[:begun]]
        # To create an archive and to add to it is two commits.
        return possible[acknowledged - 1 :] if acknowledged else [None, frozenset(), *possible]

    def final_contents(self) -> dict[str, bytes]:
        """The whole content of every file by each name that it ever had."""
        contents: dict[str, bytes] = {}
        for _, disk in self.states():
            tree = EXTREMES["everything"].tree(disk)
            contents.update((name, content) for name, content in tree.items() if content is not None)
        return contents
