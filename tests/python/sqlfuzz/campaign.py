"""Running many statements: findings and coverage."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from . import data, oracles, worker
from .defects import known
from .generator import Generator
from .minimizer import minimized
from .oracles import Engine, Finding
from .tree import Node, duck_sql, engine_sql


def statement(seed: int, index: int) -> tuple[Node, list[str]]:
    """Return a statement and its checks, which seed and index determine."""
    rng = random.Random(f"{seed}/{index}")
    generator = Generator(rng)
    draw = rng.random()
    if draw < 0.25:
        return generator.steps(), ["duck", *oracles.TABLES]
    if draw < 0.45:
        return generator.filters(), ["duck", *rng.sample([*oracles.FILTERS], 3)]
    checks = ["duck", rng.choice([*oracles.SELF])]
    checks += rng.sample([*oracles.FILTERS], 1)
    return generator.statement(), checks


@dataclass
class Report:
    """The result of a campaign."""

    findings: list[tuple[int, Finding]] = field(default_factory=list)
    statements: int = 0
    parts: Counter[str] = field(default_factory=Counter)
    """The number of statements with each kind of part."""
    answered: Counter[str] = field(default_factory=Counter)
    """The number of such statements that were compared with DuckDB, because they were not refused."""
    pairs: Counter[str] = field(default_factory=Counter)
    """How often two types were combined, by the kind of part."""
    met: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        lines = [f"{self.statements} statements, {len(self.findings)} findings"]
        lines.append("parts: " + ", ".join(f"{name} {count}" for name, count in sorted(self.parts.items())))
        lines.append(f"pairs of types: {len(self.pairs)}")
        lines += [f"  {name}: {count}" for name, count in sorted(self.met.items())]
        return "\n".join(lines)


THREADS = (1, 7)
"""The numbers of threads of the worker processes."""


@contextmanager
def engine_in(folder: Path) -> Iterator[Engine]:
    """An engine over new data, with its worker processes."""
    made = data.build(folder)
    library = worker.compiled(folder)
    workers = [worker.Worker(folder, library, cores) for cores in THREADS] if library else []
    try:
        yield Engine(made, workers)
    finally:
        for process in workers:
            process.close()


MEETING = ("cmp", "arith", "between", "in", "inq", "case", "switch", "coalesce", "nullif", "setop")


def cover(report: Report, node: Node) -> set[str]:
    """Count the parts of a statement and return them."""
    parts = set()
    for part in node.walk():
        name = part.op
        if part.op in ("join", "setop", "exists", "inq", "isnull", "is", "between", "in", "like", "group"):
            name = f"{part.op} {part.value}".strip()
        elif part.op == "cmp" and part.value.startswith("IS"):
            name = f"cmp {part.value}"
        elif part.op in ("agg", "window"):
            name = f"{part.op} {part.value[0]}"
            if part.op == "agg" and part.args[1].op != "none":
                parts.add("FILTER")
        elif part.op == "select":
            parts |= {name for name, place in [("WHERE", 2), ("HAVING", 4)] if part.args[place].op != "none"}
            parts |= {"DISTINCT"} if part.value else set()
        elif part.op == "key" and part.value[1]:
            parts.add(f"NULLS {part.value[1]}")
        parts.add(name)
        if part.op in MEETING and part.op != "setop":
            types = sorted({arg.type.name for arg in part.args if arg.op not in ("none", "query")})
            for place, one in enumerate(types):
                for other in types[place:]:
                    report.pairs[f"{part.op} {one} {other}"] += 1
    report.parts.update(parts)
    return parts


def check(engine: Engine, node: Node, name: str) -> Finding | None:
    return oracles.CHECKS[name](engine, node)


def smaller(engine: Engine, finding: Finding, budget: int = 400) -> Finding:
    """Return the same finding for a smaller statement."""
    last = finding

    def fails(node: Node) -> bool:
        nonlocal last
        met, engine.met = engine.met, Counter()
        try:
            found = check(engine, node, finding.check)
        finally:
            engine.met = met
        if found is None or found.signature != finding.signature:
            return False
        last = found
        return True

    minimized(finding.statement, fails, budget)
    return last


def run(
    engine: Engine,
    seed: int,
    indices: Iterator[int] | range,
    told: Callable[[int, Finding], None] = lambda _index, _finding: None,
    most: int | None = None,
    budget: int = 400,
    strict: bool = False,
) -> Report:
    """Check statements of a seed. Shrink each finding within ``budget`` tries, then pass it to ``told``.

    Findings that show a known defect are only counted, unless ``strict``.
    """
    report = Report()
    for index in indices:
        node, checks = statement(seed, index)
        report.statements += 1
        parts = cover(report, node)
        compared = engine.met["duck: compared"]
        for name in checks:
            finding = check(engine, node, name)
            defect = None if finding is None or strict else known(node, finding.kind, finding.found)
            if defect is not None:
                engine.met[f"known: {defect.what}"] += 1
            elif finding is not None:
                finding = smaller(engine, finding, budget)
                report.findings.append((index, finding))
                told(index, finding)
                break
        if engine.met["duck: compared"] > compared:
            report.answered.update(parts)
        if most is not None and len(report.findings) >= most:
            break
    report.met = engine.met
    return report


def told(seed: int, index: int, finding: Finding) -> str:
    """Return a finding as text, with the command that reproduces it."""
    lines = [
        f"{finding.kind} ({finding.check}): python -m sqlfuzz --seed {seed} --only {index}",
        f"  a2store: {engine_sql(finding.statement)}",
    ]
    if finding.check == "duck":
        lines.append(f"  DuckDB:  {duck_sql(finding.statement)}")
    return "\n".join([*lines, f"  found:    {finding.found[:600]}", f"  expected: {finding.expected[:600]}"])
