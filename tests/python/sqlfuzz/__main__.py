"""``python -m sqlfuzz --seed S --count N [--only I]``: check statements; exit status 1 if any answer is wrong."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from . import campaign
from .oracles import Finding
from .tree import duck_sql, engine_sql


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sqlfuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the first statement")
    parser.add_argument("--count", type=int, default=1000, help="how many statements")
    parser.add_argument("--only", type=int, help="this statement alone, shown whole")
    parser.add_argument("--strict", action="store_true", help="report known defects, too")
    args = parser.parse_args()

    def told(index: int, finding: Finding) -> None:
        print(campaign.told(args.seed, index, finding), end="\n\n", flush=True)

    with tempfile.TemporaryDirectory() as folder, campaign.engine_in(Path(folder)) as engine:
        indices = range(args.start, args.start + args.count)
        if args.only is not None:
            node, checks = campaign.statement(args.seed, args.only)
            print(f"{', '.join(checks)}\n{engine_sql(node)}\nDuckDB: {duck_sql(node)}\n")
            indices = range(args.only, args.only + 1)
        report = campaign.run(engine, args.seed, indices, told, strict=args.strict)
    print(report.summary())
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
