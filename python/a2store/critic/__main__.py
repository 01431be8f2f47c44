"""``a2store critic`` or ``python -m a2store.critic``: embed the steps of a session, and train a critic.

Results go to standard output, progress and diagnostics to standard error. The exit status is 0 for success, 1 for a
problem in the data, 2 for wrong usage, 130 after Ctrl-C and 143 after SIGTERM. After a signal the work done so far is
kept.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import Error
from .config import ConfigError, load_config
from .encoder import DTYPES, POOLINGS, is_torch_module, load_encoder


def main(arguments: Sequence[str] | None = None, program: str = "python -m a2store.critic") -> int:
    """Run a command and return its exit status. ``program`` is its name in help texts."""
    parser = _parser(program)
    # As with `python -m`, an encoder's module may be in the working folder.
    if "" not in sys.path:
        sys.path.insert(0, "")
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    except (ConfigError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("error: this command needs PyTorch: pip install 'a2store[torch]'", file=sys.stderr)
        return 1
    except (Error, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return status


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description="Embed the steps of a session, and train a critic.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    embed = commands.add_parser("embed", help="embed every step of a session", description=_first_line(_embed.__doc__))
    embed.add_argument("sessions", nargs="+", type=Path, metavar="session", help="the folder of a self-play session")
    embed.add_argument("--encoder", required=True, metavar="MODULE:NAME", help="the encoder, an instance in a module")
    embed.add_argument("--weights", type=Path, help="a state dict of the encoder, if it is a torch module")
    embed.add_argument("--pooling", choices=POOLINGS, help="how to pool the vectors of tokens; default: mean")
    embed.add_argument("--dtype", choices=DTYPES, default="bf16")
    embed.add_argument("--batch-size", type=_positive, default=4096, metavar="N", help="boards per call of the encoder")
    embed.add_argument("--device", help="the device of a torch module; default: CUDA if it is available")
    embed.add_argument("--model-sha", metavar="TEXT", help="the encoder's name in embeddings.json; default: its hash")
    embed.add_argument("--force", action="store_true", help="replace embeddings of another kind")
    embed.set_defaults(run=_embed)

    train = commands.add_parser("train", help="train a critic", description=_first_line(_train.__doc__))
    train.add_argument("--config", type=Path, required=True, metavar="FILE", help="see config/critic.example.toml")
    train.add_argument("--resume", action="store_true", help="continue from the checkpoint, if there is one")
    train.add_argument("--stop-after", type=_positive, metavar="N", help="stop after N steps, with a checkpoint")
    train.set_defaults(run=_train)

    for command in (embed, train):
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        command.add_argument("-q", "--quiet", action="store_true", help="print no progress and no remarks")
    return parser


def _embed(options: argparse.Namespace) -> int:
    """Embed every step of sessions into their folders; continue an interrupted run."""
    from .embedding import embed

    # SIGTERM keeps the work done so far, like SIGINT.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    encoder = load_encoder(options.encoder)
    if options.weights is not None:
        if not is_torch_module(encoder):
            raise ValueError("weights: expected none for an encoder that is not a torch module")
        from .model import load_weights

        load_weights(encoder, options.weights)  # type: ignore[arg-type]
    for session in options.sessions:
        report = embed(
            session,
            encoder,
            pooling=options.pooling,
            dtype=options.dtype,
            batch_size=options.batch_size,
            device=options.device,
            model_sha=options.model_sha,
            overwrite=options.force,
            progress=False if options.quiet else None,
        )
        if report.remark and not options.quiet:
            print(report.remark, file=sys.stderr)
        if options.json:
            print(_json({**asdict(report), "path": str(report.path)}))
        else:
            print(f"{report.path}: {report.num_rows:,} × {report.dim} {report.dtype}, model {report.model_sha}")
    return 0


def _train(options: argparse.Namespace) -> int:
    """Train a critic as a file configures; --resume continues an interrupted run with the same result."""
    config = load_config(options.config)
    from .train import fit

    report = fit(config, resume=options.resume, stop_after=options.stop_after, quiet=options.quiet)
    if options.json:
        print(_json({**asdict(report), "out": str(report.out)}))
    elif report.finished:
        print(f"{report.out}: {report.step:,} steps, the best at {report.best_step:,}; on runs held out:\n")
        print(_table(report.scores))
    if report.signal is not None:
        return 128 + report.signal
    return 0


def _table(scores: Sequence[Any]) -> str:
    names = ("base_rate", "auc", "brier", "brier_base", "skill", "log_loss", "ece", "open_auc", "open_skill")
    rows: list[tuple[str, ...]] = [("threshold", *names)]
    for score in scores:
        numbers = ("undefined" if score[name] is None else f"{score[name]:.4f}" for name in names)
        rows.append((str(score["threshold"]), *numbers))
    return "\n".join(" ".join(f"{cell:>10}" for cell in row) for row in rows)


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, allow_nan=False)


def _first_line(text: str | None) -> str:
    return (text or "").splitlines()[0]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main())
