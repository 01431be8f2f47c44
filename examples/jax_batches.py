"""Batches as JAX arrays, through DLPack: train a small policy on an archive's games.

    python examples/jax_batches.py [ARCHIVE]

Without an archive, the script plays some games first. a2store does not depend on JAX: ``pip install jax``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import a2store

try:
    import jax  # type: ignore[import-not-found, unused-ignore]
    import jax.numpy as jnp  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    sys.exit("this example needs JAX, which is not installed: pip install jax")


def jax_arrays(batch: a2store.Batch) -> dict[str, jax.Array]:
    """Return a batch's columns as JAX arrays: ``tokens`` (B, 16), ``ev_legal`` (B, 4) and so on, with their own types.

    On a CPU the arrays share the batch's memory, and a2store does not reuse it while they exist. Another device gets
    copies. Without ``jax_enable_x64``, JAX truncates 64-bit integers to 32 bits and cuts ``board`` in half: use
    ``tokens`` instead.
    """
    device = jax.local_devices()[0]
    return {name: jax.device_put(jax.dlpack.from_dlpack(array), device) for name, array in batch.to_dict().items()}


def shared_columns(batch: a2store.Batch, arrays: dict[str, jax.Array]) -> list[str]:
    """Return the names of the columns that share the batch's memory."""
    own = {name: array.__array_interface__["data"][0] for name, array in batch.to_dict().items()}
    return [name for name, array in arrays.items() if array.unsafe_buffer_pointer() == own[name]]


def new_policy(key: jax.Array, width: int = 256) -> dict[str, jax.Array]:
    """Return the parameters of a network with one hidden layer, from one-hot tokens to a logit for each move."""
    first, second = jax.random.split(key)
    return {
        "hidden": jax.random.normal(first, (17 * 16, width)) / 4,
        "bias": jnp.zeros(width),
        "logits": jax.random.normal(second, (width, 4)) / 16,
    }


def cross_entropy(policy: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """Return the mean cross entropy of the engine's moves, over legal moves."""
    boards = jax.nn.one_hot(batch["tokens"], 17).reshape(-1, 16 * 17)
    hidden = jax.nn.relu(boards @ policy["hidden"] + policy["bias"])
    logits = jnp.where(batch["ev_legal"], hidden @ policy["logits"], -jnp.inf)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["move"].astype(int)[:, None], axis=1)
    return -chosen.mean()


@jax.jit  # type: ignore[untyped-decorator, unused-ignore]
def train_step(policy: Any, momentum: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any, jax.Array]:
    """Return parameters and momentum after a gradient step, and the loss before it."""
    loss, gradient = jax.value_and_grad(cross_entropy)(policy, batch)
    momentum = jax.tree.map(lambda old, new: 0.9 * old + new, momentum, gradient)
    return jax.tree.map(lambda value, step: value - 0.05 * step, policy, momentum), momentum, loss


def load_table(path: Path | None) -> a2store.StepTable:
    """Return the steps of an archive, or of newly played games."""
    query = "SELECT * FROM steps WHERE move IS NOT NULL"
    if path is not None:
        return a2store.Archive.open(path).sql(query).materialize()
    # Once the steps are in memory, the files may be deleted.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        a2store.simulate(folder / "runs", runs=100, seed=1)
        archive = a2store.Archive.create(folder / "games.a2")
        archive.ingest(folder / "runs")
        return archive.sql(query).materialize()


def main() -> None:
    """Train for a few epochs, and print the loss of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, nargs="?", help="default: newly played games")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=1024)
    options = parser.parse_args()

    table = load_table(options.archive)
    policy = new_policy(jax.random.key(0))
    momentum = jax.tree.map(jnp.zeros_like, policy)
    # JAX compiles again for each batch size, so the last rows of an epoch, which do not fill a batch, are left out.
    columns = ["tokens", "move", "ev_legal"]
    loader = table.loader(options.batch_size, seed=0, symmetries=True, columns=columns, drop_last=True)
    for epoch in range(options.epochs):
        loader.set_epoch(epoch)
        losses: list[jax.Array] = []
        for batch in loader:
            arrays = jax_arrays(batch)
            if epoch == 0 and not losses:
                shapes = ", ".join(f"{name} {array.dtype}{array.shape}" for name, array in arrays.items())
                print(f"{shapes} on {jax.default_backend()}")
                print(f"shared with the batch: {', '.join(shared_columns(batch, arrays)) or 'none'}")
            policy, momentum, loss = train_step(policy, momentum, arrays)
            losses.append(loss)
        if losses:
            print(f"epoch {epoch}: cross entropy {float(jnp.stack(losses).mean()):.3f} over {len(losses)} batches")


if __name__ == "__main__":
    main()
