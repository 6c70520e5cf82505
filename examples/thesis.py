"""The dissertation's ranking tables, made again from its own numbers, and how good its rankings were.

    python examples/thesis.py

Source: Eva Maia Malta, "Selecting Efficient Virtual Machines for Training Deep Learning Models on the Cloud", MSc
dissertation, UNICAMP, 2021. The numbers it prints are in tests/data/malta.

Its ranking tables print ratios, not seconds: each column is divided by its smallest value. Simulated runtimes are
lines, an intercept plus a slope times the number of epochs, so the ratios of three epoch counts give every VM's line
back, up to one common scale. Those lines go through vmselect as profiles, and come out as the tables.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import lsq_linear

import vmselect as vs
from vmselect.scoring.score import kendall_tau

DATA = Path(__file__).parents[1] / "tests" / "data" / "malta"
PRICES = vs.Catalog.embedded(date="2021-02-28")
VMS = ("p2.xlarge", "p2.8xlarge", "p2.16xlarge", "p3.2xlarge", "p3.8xlarge", "p3.16xlarge")
OBJECTIVES = ("time", "cost")
# Seismic runtimes were simulated without validation, MNIST ones with it and without.
CASES = [
    (application, batch_size, validation)
    for application, validation in (("seismic/FCN", "no"), ("MNIST/Simple-CNN", "yes"), ("MNIST/Simple-CNN", "no"))
    for batch_size in (256, 512, 1024, 2048)
]
# The real training validates: only the halves with validation are scored against it, as in the dissertation.
SCORED = {("seismic/FCN", "no"), ("MNIST/Simple-CNN", "yes")}
SCALE_SECONDS = 100.0
TIE_RULE = "VMs whose ratios print alike (two decimals) share first place: its point and its regret are split equally."


def read(name: str, **where: str) -> list[dict[str, str]]:
    """Rows of one of the dissertation's tables."""
    with (DATA / f"malta-{name}.csv").open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if all(row[key] == value for key, value in where.items())]


# -- recovering the lines ----------------------------------------------------------------------------------------------


def recover_lines(printed: list[dict[str, str]]) -> dict[str, tuple[float, float]]:
    """Intercept and slope of each VM, from printed ratios of time and cost.

    A printed ratio r of VM i at n epochs means r * m = price_i * (a_i + b_i * n), where m is that column's unknown
    smallest value (and the price is 1 in tables of time). All such equations together are linear in a, b and m, up to
    a common scale: the last column of time gets m = 1. Each equation weighs as much as its last printed digit is worth.
    """
    cells = [
        (row["objective"], int(row["column_per_text"]), VMS.index(row["instance_type"]), row["value"])
        for row in printed
        if row["column"] != "real" and "erratum" not in row["note"]
    ]
    columns = sorted({(objective != "time", epochs) for objective, epochs, _, _ in cells})
    columns = [column for column in columns if column != (False, max(n for _, n in columns))]
    price = [PRICES.price(vm) / PRICES.price("p3.2xlarge") for vm in VMS]
    smallest = np.ones(len(columns))
    for _ in range(5):  # the weight of an equation depends on m, so solve again with the m found
        left, right = [], []
        for objective, epochs, vm, text in cells:
            row, target = np.zeros(2 * len(VMS) + len(columns)), 0.0
            factor = price[vm] if objective == "cost" else 1.0
            row[vm], row[len(VMS) + vm] = -factor, -factor * epochs
            weight = 1 / 10.0 ** -len(text.partition(".")[2])
            if (objective != "time", epochs) in columns:
                column = columns.index((objective != "time", epochs))
                row[2 * len(VMS) + column] = float(text)
                weight /= smallest[column]
            else:
                target = -float(text)
            left.append(row * weight)
            right.append(target * weight)
        solution = lsq_linear(np.array(left), np.array(right), bounds=(0, np.inf), tol=1e-14).x
        smallest = solution[2 * len(VMS) :]
    return {vm: (solution[i] * SCALE_SECONDS, solution[len(VMS) + i] * SCALE_SECONDS) for i, vm in enumerate(VMS)}


def as_profiles(lines: dict[str, tuple[float, float]], *, batch_size: int, model: str) -> list[vs.Profile]:
    """Lines as profiles: the intercept is initialization, the slope is an epoch."""
    return [
        vs.Profile.from_times(
            instance_type=vm, batch_size=batch_size, model=model, init_seconds=intercept,
            first_epoch_seconds=slope, later_epoch_seconds=[slope],
        )
        for vm, (intercept, slope) in lines.items()
    ]  # fmt: skip


# -- scoring a ranking -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """How good a simulated ranking was, against the real one."""

    winners: tuple[str, ...]
    real: str
    top_1: float
    regret: float
    tau: float


def score(simulated: pd.Series, real: pd.Series) -> Score:
    """Compare ratios of one simulated epoch count with the real ones, both as printed."""
    shown = simulated.round(2)
    winners = [vm for vm in VMS if shown[vm] == shown.min()]
    right = [vm for vm in winners if real[vm] == real.min()]
    return Score(
        winners=tuple(winners),
        real=" = ".join(vm for vm in VMS if real[vm] == real.min()),
        top_1=len(right) / len(winners),
        regret=float(np.mean([real[vm] / real.min() - 1 for vm in winners])),
        tau=kendall_tau([(shown[vm], real[vm]) for vm in VMS]) or 0.0,
    )


# -- sections of the output --------------------------------------------------------------------------------------------


def ranking_tables() -> dict[tuple[str, int], list[Score]]:
    """Tables 5.7, 5.8, 5.10-5.13, A.1-A.3 and B.1-B.4, with winner, top-1, regret and tau of each column."""
    print("RANKING TABLES (methodology 2)\n")
    print(
        "Each VM's line, intercept + slope x epochs, was recovered from the printed ratios by least squares, up to\n"
        f"one scale per table: the fastest VM at the largest epoch count is set to {SCALE_SECONDS:g} s. The columns\n"
        "that Tables 5.12 and 5.13 head 5/10/20 are those of 10/20/25 epochs. Misprinted cells are excluded."
    )
    scores: dict[tuple[str, int], list[Score]] = {}
    for application, batch_size, validation in CASES:
        printed = read("rankings", application=application, batch_size=str(batch_size), with_validation=validation)
        printed = [row for row in printed if row["table"] != "5.6"]
        lines = recover_lines(printed)
        epochs = sorted({int(row["column_per_text"]) for row in printed if row["column"] != "real"})
        ranking = vs.rank(
            as_profiles(lines, batch_size=batch_size, model=application),
            epochs=epochs, catalog=PRICES, method="malta-epoch",
        )  # fmt: skip
        for objective in OBJECTIVES:
            cells = [row for row in printed if row["objective"] == objective]
            real = pd.Series({r["instance_type"]: float(r["value"]) for r in cells if r["column"] == "real"})
            table = ranking.relative(objective).loc[list(VMS)]
            apart = max(
                abs(table.loc[r["instance_type"], int(r["column_per_text"])] / float(r["value"]) - 1)
                for r in cells
                if r["column"] != "real" and "erratum" not in r["note"]
            )
            shown = table.assign(real=real)
            half = ", without validation" if application == "MNIST/Simple-CNN" and validation == "no" else ""
            print(f"\nTable {cells[0]['table']}: {application}, batch {batch_size}, relative {objective}{half}")
            print(shown.to_string(float_format="{:.2f}".format))
            settled = ranking.tables.settled_from(objective)
            print(f"printed ratios met within {apart:.1%}; order settled from {settled} epochs on")
            for change in ranking.crossovers(objective):
                print(f"winner changes {_short(change.previous)} -> {_short(change.winner)} at {change.epochs} epochs")
            for count in epochs:
                found = score(table[count], real)
                if (application, validation) in SCORED:
                    scores.setdefault((objective, count), []).append(found)
                print(
                    f"{count:>3} epochs: winner {' = '.join(found.winners):<23} real {found.real:<11} "
                    f"top-1 {found.top_1:<4g} regret {found.regret:>5.1%}  tau {found.tau:.2f}"
                )
    return scores


def ranking_scores() -> None:
    """How good the dissertation's own rankings were, over all cases."""
    scores = ranking_tables()
    print("\nSCORES OVER THE 16 CASES (8 by time, 8 by cost)\n")
    print(f"Rule for ties: {TIE_RULE}\n")
    for count in (10, 20):
        both = []
        for objective in OBJECTIVES:
            cases = scores[objective, count]
            both += cases
            print(
                f"{count} epochs, {objective}: top-1 {sum(s.top_1 for s in cases):g}/{len(cases)}, "
                f"mean Kendall tau {np.mean([s.tau for s in cases]):.2f}"
            )
        regrets = [s.regret for s in both]
        print(f"{count} epochs, both: mean regret {np.mean(regrets):.2%}, worst {max(regrets):.0%}")


def single_iterations() -> None:
    """Table 5.6: ranking by single iterations, which misleads."""
    print("\nSINGLE ITERATIONS (Table 5.6, seismic/FCN, batch 256): strategies that mislead\n")
    cells = {(r["instance_type"], r["column"]): float(r["value"]) for r in read("rankings", table="5.6")}
    profiles = []
    for vm in VMS:
        first, second, mean = (cells[vm, column] for column in ("first_it", "second_it", "average"))
        # Only ratios are printed: any second iteration and eight others with that mean will do.
        others = [(9 * mean - second) / 8] * 8
        profiles.append(
            vs.Profile.from_times(
                instance_type=vm, batch_size=256, steps_per_epoch=159,
                first_iteration_seconds=first, iteration_seconds=[second, *others],
            )
        )  # fmt: skip
    ranking = vs.rank(profiles, epochs=13, catalog=PRICES, objective="time")
    table = ranking.tables.strategies("time").drop(columns="estimate").loc[list(VMS)]
    print(table.assign(real=[cells[vm, "real"] for vm in VMS]).to_string(float_format="{:.2f}".format))


def measured_runtimes() -> None:
    """Tables 4.1 and 4.2: whole trainings that were measured on every VM at every batch size."""
    for number, application in (("4.1", "seismic/FCN"), ("4.2", "CIFAR-10/ResNet-50")):
        rows = read("runtimes", table=number)
        profiles = [
            vs.Profile.from_times(
                instance_type=row["instance_type"], batch_size=int(row["batch_size"]), model=application,
                init_seconds=0.0, first_epoch_seconds=float(row["mean_s"]), later_epoch_seconds=[float(row["mean_s"])],
            )
            for row in rows
        ]  # fmt: skip
        # Every profile holds a whole training, to its own last epoch: one unit of work.
        ranking = vs.rank(profiles, epochs=1, catalog=PRICES, method="malta-epoch", batch_size="all")
        frame = ranking.to_frame().pivot(index="instance_type", columns="batch_size", values="cost_usd").loc[list(VMS)]
        differing = []
        for row in rows:
            hours = float(row["mean_s"]) / 3600
            # Table 4.2 comes out only if hours are rounded to two decimals before they are priced.
            usd = (round(hours, 2) if number == "4.2" else hours) * PRICES.price(row["instance_type"])
            if abs(usd - float(row["cost_usd"])) > 0.00501:
                differing.append(f"{row['instance_type']}/{row['batch_size']} prints {row['cost_usd']}, is {usd:.2f}")
        fastest = ranking.rerank(objective="time").best
        print(f"\nMEASURED RUNTIMES (Table {number}, {application}): cost in USD, measured seconds x price\n")
        print(frame.to_string(float_format="{:.2f}".format))
        print(f"cheapest: {ranking.best.instance_type} at batch {ranking.best.batch_size}; ", end="")
        print(f"fastest: {fastest.instance_type} at batch {fastest.batch_size}")
        ratios = ranking.tables.relative_to("p2.xlarge").loc[(fastest.instance_type, fastest.batch_size)]
        print(f"that is {ratios.price_ratio:.1f} times the price of p2.xlarge, {ratios.speed_up:.1f} times its speed")
        rule = ", hours rounded to 0.01 h first" if number == "4.2" else ""
        print(f"{len(rows) - len(differing)} of {len(rows)} costs as printed{rule}; not so: {'; '.join(differing)}")


def scalability() -> None:
    """Sections 4.2 and 4.6: speed-up and efficiency of several GPUs over one of the same model, at each batch size."""
    sold = {row["instance_type"]: int(row["gpu_count"]) for row in read("prices", table="3.1")}
    for number, application in (("4.1", "seismic/FCN"), ("4.2", "CIFAR-10/ResNet-50")):
        print(
            f"\nSCALABILITY (Table {number}, {application}): speed-up over one GPU of the same model, and efficiency\n"
        )
        for size in ("256", "512", "1024", "2048"):
            profiles = [
                vs.Profile.from_times(
                    instance_type=row["instance_type"], batch_size=int(size), model=application, epochs=1,
                    total_seconds=float(row["mean_s"]), gpus=sold[row["instance_type"]],
                )
                for row in read("runtimes", table=number, batch_size=size)
            ]  # fmt: skip
            table = vs.rank(profiles, catalog=PRICES).scaling
            several = table[table["gpus"] > 1]
            parts = [
                f"{row.gpus} {row.gpu_model} {row.speed_up:.2f} ({row.efficiency:.0%})" for row in several.itertuples()
            ]
            print(f"batch {size:>4}: {', '.join(parts)}")


def batch_size_knees() -> None:
    """Section 4.2: the batch size from which a step stops scaling, by the times and iterations of Tables 4.1 to 4.3."""
    print(
        "\nBATCH SIZES (Tables 4.1 to 4.3): from which on no larger batch gains 10 % examples per second a doubling\n"
    )
    for number, application in (("4.1", "seismic/FCN"), ("4.2", "CIFAR-10/ResNet-50")):
        steps = {
            row["batch_size"]: float(row["iterations"]) for row in read("epochs", table="4.3", application=application)
        }
        profiles = [
            vs.Profile.from_times(
                instance_type=row["instance_type"], batch_size=int(row["batch_size"]), model=application,
                iteration_seconds=[float(row["mean_s"]) / steps[row["batch_size"]]] * 3, steps_per_epoch=100,
            )
            for row in read("runtimes", table=number)
        ]  # fmt: skip
        table = vs.rank(profiles, epochs=1, catalog=PRICES, batch_size="all").tables.knees()
        knees = dict(table[table["knee"]][["machine", "batch_size"]].to_numpy().tolist())
        print(f"{application}: " + ", ".join(f"{vm} {knees.get(vm, 'not reached')}" for vm in VMS))


def startup_epochs() -> None:
    """Section 6: from how many epochs on initialization and first iteration are below 1 % of the total."""
    print(
        "\nSTARTING (Tables 5.1 and 5.9, MNIST/Simple-CNN, p2.16xlarge): epochs of which it is less than 1 %, by the "
        "real times\n"
    )
    counts = {row["batch_size"]: row for row in read("epochs", table="5.1", application="MNIST/Simple-CNN")}
    for row in read("estimates", table="5.9", with_validation="no"):
        size, init, first = row["batch_size"], float(row["init_s"]), float(row["first_iteration_s"])
        steps, epochs = (int(counts[size][name]) for name in ("iterations", "epochs"))
        real = CORRECTED_REAL.get(("5.9", size), float(row["real_s"]))
        # The second iterations are printed with one digit, so a step is its share of the real time, with validations.
        step = (real - init - first) / (steps * epochs - 1)
        profile = vs.Profile.from_times(
            instance_type=row["instance_type"], batch_size=int(size), init_seconds=init, first_iteration_seconds=first,
            iteration_seconds=[step] * 3, steps_per_epoch=steps,
        )  # fmt: skip
        table = vs.rank(profile, epochs=1, catalog=PRICES, method="malta-iteration").tables.startup(0.01)
        seconds, least = table.loc["p2.16xlarge"]
        print(
            f"batch {size:>4}: {seconds:.1f} s, {seconds / real:.0%} of {epochs} epochs, less than 1 % from "
            f"{least:.0f} epochs on"
        )


def count_epochs(application: str) -> dict[int, int]:
    """Epochs by batch size that the iterations of Table 4.3 mean; some of its printed epochs contradict them."""
    return {
        int(row["batch_size"]): round(
            float(row["iterations"]) * int(row["batch_size"]) / int(row["train_size_printed"])
        )
        for row in read("epochs", table="4.3", application=application)
    }


def methodology_1() -> None:
    """Tables 4.1 to 4.3 as a convergence study and profiles: VM type and batch size chosen together."""
    for number, application in (("4.1", "seismic/FCN"), ("4.2", "CIFAR-10/ResNet-50")):
        epochs = count_epochs(application)
        rows = read("runtimes", table=number)
        repetitions = int(rows[0]["repetitions"])
        seconds = {(row["instance_type"], int(row["batch_size"])): float(row["mean_s"]) for row in rows}
        counts = {size: [count] * repetitions for size, count in epochs.items()}
        study = vs.ConvergenceStudy.from_epochs(counts, model=application)
        # The epochs were counted on the cheapest VM, in whole trainings that took the time in the table.
        study = vs.ConvergenceStudy.of(
            run.model_copy(update={"instance_type": VMS[0], "fit_seconds": seconds[VMS[0], run.batch_size]})
            for run in study.runs
        )
        # Two epochs on every VM: the tables print whole runtimes, of which each epoch is an equal share.
        profiles = [
            vs.Profile.from_times(
                instance_type=vm, batch_size=size, model=application,
                first_epoch_seconds=total / epochs[size], later_epoch_seconds=[total / epochs[size]],
            )
            for (vm, size), total in seconds.items()
        ]  # fmt: skip
        print(f"\nMETHODOLOGY 1 (Tables {number} and 4.3, {application}): VM type and batch size together\n")
        for objective in OBJECTIVES:
            selection = vs.rank(profiles, epochs=study, catalog=PRICES, objective=objective, method="malta-epoch")
            best, column = selection.best, "mean_s" if objective == "time" else "cost_usd"
            printed = min(rows, key=lambda row: float(row[column]))
            print(
                f"best by {objective}: {best.instance_type} at batch {best.batch_size}, {best.epochs:g} epochs, "
                f"{best.seconds:.0f} s, {best.cost_usd:.2f} USD; "
                f"the table's smallest: {printed['instance_type']} at batch {printed['batch_size']}"
            )
        cost = selection.selection_cost()
        print(
            f"{repetitions} trainings of every pair would cost {cost.exhaustive_usd:.2f} USD; the study on {VMS[0]} "
            f"cost {cost.study_usd:.2f} and two epochs of every pair {cost.probe_usd:.2f}: {cost.fraction:.1%}"
        )
    for application in ("seismic/FCN", "MNIST/Simple-CNN"):
        total = read("method-costs", application=application, instance_type="TOTAL")[-1]
        second = f", methodology 2 {total['cost_method2_usd']}" if total["cost_method2_usd"] else ""
        print(
            f"As printed, {application}: exhaustive {total['cost_no_method_usd']} USD, methodology 1 "
            f"{total['cost_method1_usd']}{second}"
        )


def methodology_2() -> None:
    """Table 5.14 as far as Table 5.9 has times: five trainings on p2.16xlarge against one probe of it."""
    trainings = int(read("applications", application="MNIST/Simple-CNN")[0]["repetitions_ch5"])
    counts = {
        row["batch_size"]: int(row["epochs"]) for row in read("epochs", table="5.1", application="MNIST/Simple-CNN")
    }
    spent = []
    for row in read("estimates", table="5.9", with_validation="yes"):
        epochs, real = counts[row["batch_size"]], CORRECTED_REAL.get(("5.9", row["batch_size"]), float(row["real_s"]))
        who = {"instance_type": row["instance_type"], "batch_size": int(row["batch_size"]), "epochs": epochs}
        # The estimate of the dissertation is one unit of work; the probe is initialization and two iterations.
        whole = vs.rank([vs.Profile.from_times(**who, total_seconds=real)], catalog=PRICES)
        probe = float(row["init_s"]) + float(row["first_iteration_s"]) + float(row["iteration_s"])
        usd = probe / 3600 * PRICES.price(row["instance_type"])
        spent.append((whole.selection_cost(trainings=trainings).exhaustive_usd, usd))
    full, probes = (sum(column) for column in zip(*spent, strict=True))
    printed = read("method-costs", table="5.14", instance_type="p2.16xlarge")[0]
    print(
        f"\nMETHODOLOGY 2 (Tables 5.9 and 5.14, MNIST/Simple-CNN, p2.16xlarge)\n\n{trainings} trainings at every batch "
        f"size would cost {full:.2f} USD, one probe of each {probes:.2f}: {probes / full:.1%}; printed are "
        f"{printed['cost_no_method_usd']} and {printed['cost_method2_usd']} USD, of runs whose times are not printed"
    )


# Two real times are misprinted: Tables 5.3 and 5.5 have another time of the same run; estimate and error give 167.40.
CORRECTED_REAL = {("5.4", "2048"): 248.5, ("5.9", "256"): 167.40}


def real_against_estimated() -> None:
    """Tables 5.2 to 5.5 and 5.9: the dissertation's validation, errors relative to the real time."""
    print("\nREAL AGAINST ESTIMATED (Tables 5.2 to 5.5 and 5.9): errors relative to the real time\n")
    rows = read("estimates")
    for number, validation in dict.fromkeys((row["table"], row["with_validation"]) for row in rows):
        cells = [row for row in rows if (row["table"], row["with_validation"]) == (number, validation)]
        probes, watched = [], []
        for row in cells:
            who = {"instance_type": row["instance_type"], "batch_size": int(row["batch_size"])}
            real = CORRECTED_REAL.get((number, row["batch_size"]), float(row["real_s"]))
            if number == "5.2":  # equation 5.1 with the printed times
                epochs = int(row["epochs"])
                times = {"init_seconds": float(row["init_s"]), "first_epoch_seconds": float(row["first_epoch_s"]),
                         "later_epoch_seconds": float(row["epoch_s"])}  # fmt: skip
            else:  # the printed iterations have too few digits to compute the estimate again: it is one unit of work
                epochs, printed = 1, float(row["estimated_s"])
                times = {"init_seconds": 0.0, "first_epoch_seconds": printed, "later_epoch_seconds": printed}
            probes.append(vs.Profile.from_times(**who, **times))
            watched.append(vs.Profile.from_times(**who, total_seconds=real, epochs=epochs))
        ranking = vs.rank(probes, epochs=1, catalog=PRICES, method="malta-epoch", batch_size="all")
        accuracy = ranking.against(watched)
        for one in accuracy:
            times = f"real {one.real_seconds:6.2f} s, estimate {one.seconds:6.2f} s"
            print(f"{one.instance_type:<11} batch {one.batch_size:>4}: {times}, error {one.error_percent:+6.2f} %")
        # Of equations 5.3 and 5.4, only the first counts the validation.
        print(f"Table {number}, validation {validation}: mean error {accuracy.mean_error_percent:.2f} %\n")


def errata() -> None:
    """Printed numbers that contradict others, each computed from those others."""
    print("\nERRATA\n")
    for row in read("epochs", table="4.3"):
        count = float(row["iterations"]) / (int(row["train_size_printed"]) / int(row["batch_size"]))
        if abs(count - float(row["epochs"])) > 1:
            what = f"{row['application']}, batch {row['batch_size']}"
            print(f"{what}: {row['iterations']} iterations are {count:.0f} epochs; {row['epochs']} are printed")
    contradictory_texts()
    same = ("application", "batch_size", "with_validation", "column_per_text")
    for row in read("rankings"):
        if "erratum" in row["note"]:  # relative cost from the relative times of the same column
            times = read("rankings", objective="time", **{key: row[key] for key in same})
            cost = {r["instance_type"]: float(r["value"]) * PRICES.price(r["instance_type"]) for r in times}
            ratio = cost[row["instance_type"]] / min(cost.values())
            where = f"Table {row['table']}, {row['instance_type']}, {row['column_per_text']} epochs"
            print(f"{where}: time x price gives {ratio:.1f}; {row['value']} is printed")
    rows = read("estimates")
    cells = {(row["table"], row["with_validation"], row["batch_size"]): row for row in rows}
    for number in dict.fromkeys(row["table"] for row in rows):
        apart = {"estimate": 0.0, "real": 0.0}
        for row in rows:
            if row["table"] == number:
                real, estimate = (
                    CORRECTED_REAL.get((number, row["batch_size"]), float(row["real_s"])),
                    row["estimated_s"],
                )
                for name, divisor in (("estimate", float(estimate)), ("real", real)):
                    apart[name] += abs(100 * abs(real - float(estimate)) / divisor - float(row["error_pct"]))
        print(f"Table {number}: errors are shares of the {min(apart, key=lambda name: apart[name])} time")
    epochs = {row["batch_size"]: float(row["epochs"]) for row in read("epochs", table="4.3")
              if row["application"] == "seismic/FCN"}  # fmt: skip
    for size, count in epochs.items():
        with_, without = (cells[table, validation, size] for table, validation in (("5.3", "yes"), ("5.4", "no")))
        difference = float(with_["estimated_s"]) - float(without["estimated_s"]) - float(with_["val1_s"])
        print(f"Table 5.3, batch {size}: the estimate fits a second validation of {difference / (count - 1):.3f} s; "
              f"{with_['val2_s']} is printed")  # fmt: skip
    first = cells["5.9", "yes", "256"]
    real = float(first["estimated_s"]) * (1 + float(first["error_pct"]) / 100)
    print(f"Table 5.9, batch 256: estimate and error give a real time of {real:.2f} s; {first['real_s']} is printed")
    print(f"Table 5.4, batch 2048: real {cells['5.4', 'no', '2048']['real_s']} s is printed, "
          f"{cells['5.3', 'yes', '2048']['real_s']} s in Tables 5.3 and 5.5")  # fmt: skip
    mnist = [row for row in read("epochs", table="5.1") if row["application"] == "MNIST/Simple-CNN"]
    for images in (50_000, 60_000):
        fits = 0
        for row in mnist:
            cell = cells["5.9", "no", row["batch_size"]]
            rest = float(cell["estimated_s"]) - float(cell["init_s"]) - float(cell["first_iteration_s"])
            each = rest / (images / int(row["batch_size"]) * float(row["epochs"]) - 1)
            fits += f"{each:.2f}" == cell["iteration_s"]
        print(f"Table 5.9: with {images:,} images, {fits} of {len(mnist)} iterations come out as printed")
    for table, application in (("4.4", "seismic/FCN"), ("4.5", "MNIST/Simple-CNN"), ("5.14", "MNIST/Simple-CNN")):
        total = read("method-costs", table=table, instance_type="TOTAL")[0]
        full, *methods = (float(total[f"cost_{name}_usd"] or "nan") for name in ("no_method", "method1", "method2"))
        for number, usd in enumerate(methods, start=1):
            if usd == usd:
                print(f"Table {table}, {application}: methodology {number} costs {usd / full:.1%} of {full} USD, "
                      f"a saving of {1 - usd / full:.1%}")  # fmt: skip
    first, second = (float(total[f"cost_method{number}_usd"]) for number in (1, 2))
    print(f"Table 5.14, {application}: methodology 2 saves {1 - second / first:.1%} of the cost of methodology 1")
    parts = [
        float(row["cost_method2_usd"]) for row in read("method-costs", table="5.14") if row["instance_type"] in VMS
    ]
    printed = read("method-costs", table="5.14", instance_type="TOTAL")[0]["cost_method2_usd"]
    print(f"Table 5.14: the costs of methodology 2 sum to {sum(parts):.2f} USD; {printed} is printed")


def reproduced_estimates() -> None:
    """Tables 5.2 and 5.5: how many of the printed estimates their equations give."""
    print("\nESTIMATES (Tables 5.2 and 5.5): how many come out of the other printed numbers\n")
    rows = read("estimates", table="5.2")
    values = [
        vs.equations.epoch_runtime_with_init(
            float(row["init_s"]), float(row["first_epoch_s"]), float(row["epoch_s"]), int(row["epochs"])
        )
        for row in rows
    ]
    same = sum(abs(value - float(row["estimated_s"])) < 0.005 for value, row in zip(values, rows, strict=True))
    epochs = " / ".join(row["epochs"] for row in rows)
    print(f"Table 5.2, equation 5.1, epochs {epochs}: {same} of {len(rows)}, to the printed digit")
    rows = read("estimates", table="5.5")
    counts = {row["batch_size"]: int(row["epochs"]) for row in read("epochs", table="5.1", application="seismic/FCN")}
    images = int(read("applications", application="seismic/FCN")[0]["train_size"])
    for kind, round_ in (("images / batch size", float), ("whole iterations", math.ceil)):
        fits = 0
        for row in rows:
            steps = round_(images / int(row["batch_size"]))
            times = (float(row[f"{name}_s"]) for name in ("init", "first_iteration", "iteration"))
            value = vs.equations.iteration_runtime_without_validation(*times, steps, counts[row["batch_size"]])
            # The mean iteration is printed with three decimals, and the estimate with one.
            rounding = 0.0005 * (steps * counts[row["batch_size"]] - 1) + 0.05
            fits += abs(value - float(row["estimated_s"])) <= rounding
        epochs = " / ".join(str(counts[row["batch_size"]]) for row in rows)
        print(f"Table 5.5, equation 5.4, epochs {epochs}, with {kind}: {fits} of {len(rows)} within the rounding")


def contradictory_texts() -> None:
    """Columns, captions and texts that state different things about the same runs."""
    real = {
        table: {row["instance_type"]: row["value"] for row in read("rankings", table=table, column="real")}
        for table in ("5.6", "5.7")
    }
    for vm in VMS:
        if real["5.6"][vm] != real["5.7"][vm]:
            print(f"Tables 5.6 and 5.7, {vm}: the real time of the same run is {real['5.6'][vm]} and {real['5.7'][vm]}")
    for application in ("seismic/FCN", "MNIST/Simple-CNN"):
        row = read("epochs", table="5.1", application=application)[0]
        each = int(row["train_size_printed"]) / int(row["batch_size"])
        print(
            f"Table 5.1, {application}, batch {row['batch_size']}: {row['iterations']} iterations are those of "
            f"{float(row['iterations']) / each:.0f} epochs; {row['epochs']} epochs are printed beside them"
        )
    rows = read("estimates")
    for row in {row["table"]: row for row in rows if "caption says" in row["equation"]}.values():
        equation, _, caption = row["equation"].partition(" (caption says ")
        print(f"Table {row['table']}: the caption names equation {caption.rstrip(')')}; it shows equation {equation}")
    print("Equation 5.4: T(it1) + N_it N_ep T(it2) is printed; the first is one of N_it N_ep, so one T(it2) less")
    mnist, cifar = (read("applications", application=name)[0] for name in ("MNIST/Simple-CNN", "CIFAR-10/ResNet-50"))
    print(f"Table 5.9: the caption states 3 runs, the text {mnist['repetitions_ch5']}")
    print(f"CIFAR-10: images of {cifar['image_px']} are printed; they have 32x32 pixels")


def _short(candidate: str) -> str:
    return candidate.partition(" ")[0]


SECTIONS: tuple[Callable[[], None], ...] = (
    ranking_scores, single_iterations, reproduced_estimates, real_against_estimated, measured_runtimes, scalability,
    batch_size_knees, startup_epochs, methodology_1, methodology_2, errata,
)  # fmt: skip


def main() -> None:
    """Print every section."""
    print(f"Prices: {PRICES!r}\n")
    for section in SECTIONS:
        section()


if __name__ == "__main__":
    main()
