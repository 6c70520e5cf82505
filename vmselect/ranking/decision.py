"""From profiles and prices to a decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from vmselect.catalog import Catalog
from vmselect.errors import ArgumentError
from vmselect.ranking.join import join_offers
from vmselect.ranking.machines import check_batch_sizes, check_comparable, measure_machines
from vmselect.ranking.objectives import Objective
from vmselect.ranking.result import Ranking
from vmselect.ranking.settings import Settings, read_batch_sizes
from vmselect.ranking.spot import Interruptions
from vmselect.records import Profile


def rank(
    profiles: Profile | Iterable[Profile],
    *,
    epochs: int | Iterable[int] = (5, 10, 20),
    catalog: Catalog | None = None,
    objective: Objective = "cost",
    region: str | Iterable[str] | None = None,
    market: str | Iterable[str] | None = "on_demand",
    deadline_hours: float | None = None,
    budget_usd: float | None = None,
    batch_size: int | Iterable[int] | Literal["all"] | None = None,
    method: str = "robust",
    interruptions: Interruptions | Mapping[str, float] | None = None,
    decide_at: int | None = None,
    confidence: float = 0.9,
    billing: Literal["exact", "provider"] = "exact",
    include_retired: bool = False,
    model: str | None = None,
    examples: int | None = None,
    validation_examples: int | None = None,
    boot_seconds: float = 0.0,
) -> Ranking:
    """Rank every machine that was measured, at every price it can be rented at.

    >>> import vmselect as vs
    >>> profiles = [
    ...     vs.Profile.from_times(instance_type=name, batch_size=256, steps_per_epoch=159, init_seconds=5,
    ...                           first_iteration_seconds=3.4, iteration_seconds=[seconds] * 10)
    ...     for name, seconds in (("g4dn.xlarge", 0.20), ("g5.xlarge", 0.08))
    ... ]
    >>> ranking = vs.rank(profiles, epochs=50)
    >>> ranking.best.instance_type
    'g5.xlarge'

    ``market``, ``region`` and ``batch_size`` take one value or several; ``market=None`` means every market and
    ``batch_size="all"`` every batch size. Without ``region`` a machine is priced where it was measured, if that is
    known. ``catalog=None`` uses :meth:`Catalog.default`. With several epoch counts the last one decides, unless
    ``decide_at`` names another. ``billing="provider"`` applies the provider's billing increment and minimum.
    ``interruptions`` applies to spot prices only.
    """
    settings = Settings.read(
        epochs=epochs, decide_at=decide_at, objective=objective, markets=market, regions=region,
        batch_sizes=read_batch_sizes(batch_size), deadline_hours=deadline_hours, budget_usd=budget_usd, method=method,
        confidence=confidence, billing=billing, interruptions=interruptions, include_retired=include_retired,
    )  # fmt: skip
    if not settings.epochs:
        raise ArgumentError("epochs is empty; give at least one number of epochs.")
    chosen = read_profiles(profiles, model=model)
    findings = check_comparable(chosen, examples_given=examples is not None)
    if batch_size is None:
        check_batch_sizes([profile for profile in chosen if profile.instance_type])
    catalog = read_catalog(catalog)
    workload = {"examples": examples, "validation_examples": validation_examples, "boot_seconds": boot_seconds}
    machines, unusable = measure_machines(chosen, settings, **workload)
    candidates, unpriced = join_offers(machines, catalog, settings)
    findings = (*findings, *catalog.findings)
    return Ranking(candidates, settings, left_out=[*unusable, *unpriced], findings=findings)


def read_profiles(profiles: Profile | Iterable[Profile], *, model: str | None = None) -> list[Profile]:
    """A list of profiles, of the given model only where one is named."""
    several = isinstance(profiles, Iterable) and not isinstance(profiles, (Profile, str))
    given: list[Any] = list(profiles) if several else [profiles]
    for item in given:
        if not isinstance(item, Profile):
            raise ArgumentError(
                f"profiles holds a {type(item).__name__} ({str(item)[:60]!r}). "
                "Load files first, with vmselect.load_profiles(...)."
            )
    if model is None:
        return given
    named = [profile for profile in given if profile.model == model]
    if not named:
        known = ", ".join(sorted({profile.model or "unnamed" for profile in given}))
        raise ArgumentError(f"no profile is of the model {model!r}; the models are: {known}.")
    return named


def read_catalog(catalog: Catalog | None) -> Catalog:
    """The catalog given, or the default one."""
    if catalog is None:
        return Catalog.default()
    if not isinstance(catalog, Catalog):
        raise ArgumentError(
            f"catalog is a {type(catalog).__name__} ({str(catalog)[:60]!r}). "
            "Load a price file first, with vmselect.Catalog.load(...)."
        )
    return catalog
