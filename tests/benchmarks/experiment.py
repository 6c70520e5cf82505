"""A designed experiment on this machine: two backends, two batch sizes, one core or two; twice, to see what repeats.

    python tests/benchmarks/experiment.py FOLDER [--repetitions 5] [--backends jax,torch] [--cores 1,2] [--only-compare]

Two sweeps of the same plan run one after the other, each with its own random order, about 10 s a trial. Effects of the
first say which factor matters and by how much; the second confirms them or not. Both are kept in FOLDER, where a sweep
that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import vmselect as vs
from vmselect.comparison.effects import Effects

FACTORS = ("machine", "batch_size", "backend")


def train() -> None:
    """What each trial runs: a small network on random images, with nothing of ours but the probe."""
    os.environ["KERAS_BACKEND"] = os.environ["VMSELECT_FACTOR_BACKEND"]
    batch_size = int(os.environ["VMSELECT_FACTOR_BATCH_SIZE"])
    import keras
    import numpy as np

    rng = np.random.default_rng(0)
    images = rng.random((2_048, 28, 28, 1), dtype=np.float32)
    labels = rng.integers(0, 10, 2_048)
    model = keras.Sequential(
        [
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ],
        name="small-cnn",
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    probe = vs.IterationProbe(steps=20, validations=0, verbose=0)
    model.fit(images, labels, batch_size=batch_size, epochs=10, verbose=0, callbacks=[probe])


def run(folder: Path, *, repetitions: int, backends: list[str], cores: list[int], seed: int) -> list[vs.Profile]:
    """One sweep, or what is left of it."""
    machines = {f"{count}-core": {"cores": count} for count in cores}
    plan = vs.Plan(
        [sys.executable, str(Path(__file__).resolve()), "--train"],
        factors={"machine": list(machines), "batch_size": [32, 256], "backend": backends},
        machines=machines,
        repetitions=repetitions, minutes=3, seed=seed,
    )  # fmt: skip
    result = vs.sweep(plan, folder, yes=True)
    print(result)
    return result.records


def show(records: list[vs.Profile]) -> Effects:
    """Effects of one sweep."""
    effects = vs.stats.effects(records, factors=FACTORS, metric="step_seconds", scale="log")
    print(effects.verdict)
    columns = ["factor", "share", "p_adjusted", "from_level", "to_level", "percent", "percent_low", "percent_high"]
    print(effects.factors[columns].round(4).to_string(index=False))
    cells = effects.cells.assign(**{name: 1e3 * effects.cells[name] for name in ("mean", "sd", "low", "high")})
    print("Milliseconds a step:")
    print(cells.round(1).to_string(index=False))
    for finding in effects.findings:
        print(f"{finding.severity}: {finding}")
    return effects


def confirm(first: Effects, second: Effects) -> None:
    """Which effects the second sweep repeats: the same direction, inside or near the interval of the first."""
    for name in first.factors["factor"]:
        if name not in first.names:
            shown = [float(e.factors.set_index("factor").loc[name, "p_adjusted"]) < 0.05 for e in (first, second)]
            print(f"{name}: {' and '.join('shown' if one else 'not shown' for one in shown)}")
    for name in first.names:
        one, other = (e.factors.set_index("factor").loc[name] for e in (first, second))
        shown = [row["p_adjusted"] < 0.05 for row in (one, other)]
        same = all(shown) and one["to_level"] == other["to_level"]
        verdict = "confirmed" if same else "not confirmed" if any(shown) else "not shown in either"
        overlap = one["percent_low"] <= other["percent_high"] and other["percent_low"] <= one["percent_high"]
        print(
            f"{name}: {one['percent']:+.1f} % ({one['percent_low']:+.1f} to {one['percent_high']:+.1f}), again "
            f"{other['percent']:+.1f} % ({other['percent_low']:+.1f} to {other['percent_high']:+.1f}): "
            f"{verdict}{', intervals overlap' if overlap else ''}"
        )


def main() -> None:
    """Run both sweeps and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("experiment"))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--backends", default="jax,torch")
    parser.add_argument("--cores", default="1,2")
    parser.add_argument("--only-compare", action="store_true", help="of records that are there")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train()
        return
    studies = []
    for number in (1, 2):
        folder = given.folder / f"sweep-{number}"
        print(f"\n== sweep {number} ==")
        if given.only_compare:
            records = vs.load_profiles(folder)
        else:
            records = run(
                folder,
                repetitions=given.repetitions,
                backends=given.backends.split(","),
                cores=[int(count) for count in given.cores.split(",")],
                seed=number,
            )
        studies.append(show(records))
    print("\n== again ==")
    confirm(*studies)


if __name__ == "__main__":
    main()
