"""One measured run of the accuracy benchmark, in a process of its own: a backend, a case, a file to write.

python tests/benchmarks/accuracy_case.py train jax lstm --out run.json            # the whole training, watched
python tests/benchmarks/accuracy_case.py train jax lstm --out run.json --probe    # a short probe, then stop
python tests/benchmarks/accuracy_case.py metronome torch hiccup --out run.json    # known times, watched
python tests/benchmarks/accuracy_case.py metronome torch outliers --out run.json --seed 30     # 30 trainings
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

DISTURBED = 75
"""Exit code of a metronome that could not keep time: the machine was busy with something else. Try again."""

TRIES = 3
"""How often the beats of one seed are played, if they were disturbed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("train", "metronome"))
    parser.add_argument("backend", choices=("tensorflow", "jax", "torch"))
    parser.add_argument("case")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--probe", action="store_true", help="stop after a short probe")
    parser.add_argument("--accept-disturbed", action="store_true", help="keep a metronome's run even so")
    parser.add_argument("--seed", type=int, default=0, help="of the data; for outliers, how many seeds")
    options = parser.parse_args()
    os.environ["KERAS_BACKEND"] = options.backend
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, str(Path(__file__).parent))

    import keras  # noqa: F401  (imported before the clock starts, so that the runs differ by their training only)
    from accuracy_patterns import PROBE_STEPS

    import vmselect as vs

    def make_probe() -> vs.IterationProbe:
        vs.mark_start()
        return vs.IterationProbe(steps=PROBE_STEPS, validations=2, stop=options.probe, verbose=0, instance_type="local")

    profiles = []
    if options.kind == "train":
        from accuracy_trainings import run_training

        profiles.append(run_training(options.case, make_probe(), seed=options.seed))
    elif options.case == "outliers":
        from accuracy_patterns import OUTLIERS, run_pattern

        for seed in range(options.seed):
            for _ in range(TRIES):
                profile, disturbed = run_pattern(OUTLIERS, make_probe(), seed=seed)
                if not disturbed:
                    break
            else:
                print(f"seed {seed} disturbed, and kept;")
            profiles.append(profile)
    else:
        from accuracy_patterns import PATTERNS, run_pattern

        profile, disturbed = run_pattern(PATTERNS[options.case], make_probe())
        if disturbed and not options.accept_disturbed:
            return DISTURBED
        if disturbed:
            print("disturbed, and kept;")
        profiles.append(profile)
    unfinished = options.out.with_suffix(".part")
    unfinished.write_text(json.dumps([profile.model_dump(mode="json") for profile in profiles]), encoding="utf-8")
    unfinished.rename(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
