"""The callback :class:`Watch`, and the same for Lightning, Hugging Face and other loops."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vmselect._checks import (
    check_callable,
    check_choice,
    check_count,
    check_flag,
    check_name,
    check_number,
    check_seconds,
    maybe,
    show,
)
from vmselect._io import Place
from vmselect.catalog import MARKETS, Catalog, Offer
from vmselect.catalog.catalog import explain_flaw
from vmselect.catalog.interruptions import find_class
from vmselect.convergence import ConvergenceStudy
from vmselect.errors import ArgumentError, ProbeError, VmselectError
from vmselect.probe.keras import IterationProbe, KerasProbe
from vmselect.probe.loop import LoopProbe
from vmselect.probe.options import RecordPath, choose_path
from vmselect.probe.recording import Probe, Recording, describe_problem, warn_of
from vmselect.probe.trainers import HuggingFaceProbe, LightningProbe
from vmselect.ranking import Interruptions
from vmselect.records.identity import count_nodes
from vmselect.scoring.parts import find_parts
from vmselect.trackers import TRACKERS, open_scalars
from vmselect.units import hours
from vmselect.watching.account import Account, Earlier, OnLimit, Status
from vmselect.watching.display import Display

if TYPE_CHECKING:
    from vmselect.records import Profile
    from vmselect.watching.moves import Moves

AnyProbe = TypeVar("AnyProbe", bound=Probe)
RESUME: tuple[tuple[type, str], ...] = (
    (KerasProbe, "pass initial_epoch={epoch} to fit"),
    (LightningProbe, "pass it as ckpt_path= to Trainer.fit"),
    (HuggingFaceProbe, "pass resume_from_checkpoint=True to Trainer.train"),
)
"""How a training is resumed, by the class of its probe. The default of an account is that of :meth:`Watch.loop`."""


class Watch(IterationProbe):
    """A Keras callback that watches a whole training: remaining time, money so far, budget and deadline.

    It records the training like ``IterationProbe(stop=False)``, so that the profile also counts as the outcome of an
    earlier forecast. It never changes a result, and no problem of its own ends the training. For other libraries, use
    :meth:`lightning`, :meth:`hugging_face` and :meth:`loop`.

    Args:
        budget_usd: money that the whole training may cost, with all parts of a training that was resumed.
        deadline_hours: hours that the whole training may take.
        usd_per_hour: price of all machines of the training together; by default that of the detected machine in the
            catalog, times the number of machines.
        on_limit: "warn" prints a line when a limit will probably be exceeded; "stop" ends the training after the last
            epoch that fits; a function is called with the :class:`~vmselect.watching.account.Status` instead.
        path: file or folder of the record, as for :class:`~vmselect.IterationProbe`. A training that was resumed is
            recognized by the records in this folder.
        every_seconds: seconds between two updates.
        chance: probability with which ``on_limit="stop"`` keeps the limits.
        save: function that saves a checkpoint, called before the training is ended; by default your own callbacks save.
        save_seconds: seconds that saving takes, which are kept free before a limit; by default 1.5 times the longest
            time of the callbacks at the end of an epoch.
        market: market of the machine: "on_demand", "spot", "reserved_1y" or "reserved_3y".
        tracker: "tensorboard", "mlflow" or "wandb", which receives time, money and probabilities as scalars.
        study: a :class:`~vmselect.ConvergenceStudy` of the same work, for a training that stops early.
        phases: relative time of an epoch from each of these epochs on, for a training whose recipe changes:
            ``{0: 1, 18: 1.8}``.
        epochs: number of epochs of a training that does not state it, such as a loop in a script.
        suggest_moves: whether to print, at most once an hour, that moving to another machine pays.
        catalog: prices; by default those that ship with vmselect.
        options: further arguments of :class:`~vmselect.IterationProbe`, such as ``instance_type`` and ``verbose``.

    >>> import keras, numpy
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> watch = Watch(budget_usd=1, usd_per_hour=0.5, path=False, verbose=0)
    >>> _ = model.fit(numpy.ones((64, 4)), numpy.ones(64), batch_size=8, epochs=3, verbose=0, callbacks=[watch])
    >>> watch.status.epoch, watch.status.usd < 1
    (3, True)
    """

    def __init__(
        self,
        *,
        budget_usd: float | None = None,
        deadline_hours: float | None = None,
        usd_per_hour: float | None = None,
        on_limit: OnLimit = "warn",
        path: RecordPath = None,
        every_seconds: float = 30.0,
        chance: float = 0.9,
        save: Callable[[], object] | None = None,
        save_seconds: float | None = None,
        market: str = "on_demand",
        tracker: str | None = None,
        study: ConvergenceStudy | None = None,
        phases: Mapping[int, float] | None = None,
        epochs: int | None = None,
        suggest_moves: bool = True,
        catalog: Catalog | None = None,
        **options: Any,
    ) -> None:
        for name in ("stop", "exit_program"):
            if name in options:
                raise ArgumentError(f"Watch has no argument {name}: it watches the whole training. Remove it.")
        self.budget_usd = maybe(check_number, "budget_usd", budget_usd, above=0)
        self.deadline_hours = maybe(check_number, "deadline_hours", deadline_hours, above=0)
        self.usd_per_hour = maybe(check_number, "usd_per_hour", usd_per_hour, least=0)
        if not callable(on_limit) and on_limit not in ("warn", "stop"):
            raise ArgumentError(f'on_limit must be "warn", "stop" or a function, not {show(on_limit)}.')
        self.on_limit = on_limit
        self.every_seconds = check_seconds("every_seconds", every_seconds, above=0)
        self.chance = check_number("chance", chance, least=0.5, most=0.999)
        self.save = maybe(check_callable, "save", save)
        self.save_seconds = maybe(check_seconds, "save_seconds", save_seconds)
        self.market = check_name("market", market)
        if self.market not in MARKETS:
            raise ArgumentError(f"market must be one of {', '.join(MARKETS)}, not {show(market)}.")
        self.tracker = maybe(partial(check_choice, choices=TRACKERS), "tracker", tracker)
        if study is not None and not isinstance(study, ConvergenceStudy):
            raise ArgumentError(f"study must be a vmselect.ConvergenceStudy, not {show(study)}.")
        self.study = study
        if not isinstance(phases, Mapping | None):
            raise ArgumentError(f"phases must map epochs to relative times, not {show(phases)}.")
        self.phases = {
            check_count("an epoch of phases", epoch, least=0): check_number(f"phases[{epoch}]", weight, above=0)
            for epoch, weight in (phases or {}).items()
        }
        self.epochs = maybe(check_count, "epochs", epochs)
        self.suggest_moves = check_flag("suggest_moves", suggest_moves)
        self.catalog = catalog
        self._options = options
        self._account: Account | None = None
        self._attached: Any = None
        self._watched: weakref.ref[Recording] | None = None
        super().__init__(path, stop=False, **options)
        self.on_start = self.open_account

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._account = self._attached = self._watched = None
        self.on_start = self.open_account

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in super().__getstate__().items() if name != "on_start"}
        return {**state, "_options": self._options}

    @property
    def status(self) -> Status:
        """The account of the running or last training: time, money, remaining time and probabilities."""
        if self._account is None or self._account.status is None:
            raise ProbeError("Nothing has been watched yet. Train with model.fit(..., callbacks=[watch]) first.")
        return self._account.status

    @property
    def limit(self) -> str | None:
        """Why the watch ended the training; None if it did not."""
        return None if self._account is None else self._account.limit

    def lightning(self) -> LightningProbe:
        """The same as a callback for Lightning: ``Trainer(callbacks=[watch.lightning()])``."""
        return self._attach(LightningProbe(self.path, stop=False, **self._options))

    def hugging_face(self) -> HuggingFaceProbe:
        """The same as a callback for a Hugging Face trainer: ``Trainer(..., callbacks=[watch.hugging_face()])``."""
        return self._attach(HuggingFaceProbe(self.path, stop=False, **self._options))

    def loop(self, **options: Any) -> LoopProbe:
        """The same for a hand-written loop, with the arguments of :func:`vmselect.probe_loop`.

        After a limit, ``steps`` and ``epochs`` of the loop yield nothing more.

        >>> watch = Watch(path=False, usd_per_hour=1, verbose=0)
        >>> with watch.loop(batch_size=8) as p:
        ...     for epoch in p.epochs(3):
        ...         for batch in p.steps(range(10)):
        ...             pass
        >>> watch.status.steps
        30
        """
        return self._attach(LoopProbe(self.path, stop=False, **{**self._options, **options}))

    def options(self, **arguments: Any) -> Moves:
        """Whether it pays to continue on another machine; see :func:`vmselect.watching.moves.rank_moves`.

        Nothing is moved: the result names the machine, what moving saves, and how sure that is.
        """
        from vmselect.watching.moves import rank_moves

        account, status = self._account, self.status
        price = None if account is None else account.usd_per_hour
        epochs = None if status.epochs is None else max(1, status.epochs - status.epoch)
        defaults: dict[str, Any] = {"usd_per_hour": price, "epochs_left": epochs, "catalog": self.catalog}
        if self.market == "spot":
            defaults["own_interruptions"] = self._count_interruptions(status)
        return rank_moves(self.profile, **{**defaults, **arguments})

    def _count_interruptions(self, status: Status) -> Interruptions:
        """Rate of interruptions by those of this training so far and the published rate of its machine."""
        place = self.profile.placement
        keys = [fact.value if fact is not None else "" for fact in (place.provider, place.instance_type, place.region)]
        published = find_class(*keys)
        rate = None if published is None else published.per_hour
        return Interruptions.observed(status.interruptions, hours(status.seconds), published_per_hour=rate)

    def _advise(self) -> str | None:
        """The suggestion to move to another machine, if that pays."""
        moves = self.options()
        return None if moves.suggested is None else f"{moves} Nothing is moved; see watch.options()."

    @property
    def profile(self) -> Profile:
        """The profile of the watched training, as for :class:`~vmselect.IterationProbe`."""
        recording = self._watched() if self._watched is not None else None
        if recording is not None and recording.kept is None and recording.saw_anything:
            return recording.snapshot(sys.exc_info()[1])  # it still runs, perhaps in a script
        return super().profile if self._attached is None else self._attached.profile

    def _attach(self, probe: AnyProbe) -> AnyProbe:
        probe.on_start = self.open_account
        self._attached = probe
        return probe

    # -- the account of a training -----------------------------------------------------------------------------------

    def open_account(self, recording: Recording, *, can_stop: bool = True) -> None:
        """Follow ``recording``. A problem is reported and never ends the training.

        ``can_stop`` is False if the training is a loop that nothing can end.
        """
        if recording.is_chief:
            try:
                self._open(recording, can_stop=can_stop)
            except Exception as problem:  # noqa: BLE001 - the training must go on, whatever fails here
                warn_of(problem, "it is not watched")

    def _open(self, recording: Recording, *, can_stop: bool) -> None:
        display = Display(beside_bar=lambda: recording.shows_progress)
        resume = next((text for kind, text in RESUME if isinstance(recording.options, kind)), Account.resume)
        self._watched = weakref.ref(recording)
        self._account = account = Account(
            budget_usd=self.budget_usd, deadline_hours=self.deadline_hours, on_limit=self.on_limit, chance=self.chance,
            every_seconds=self.every_seconds, save=self.save, save_seconds=self.save_seconds,
            show=display if self.verbose else _show_nothing,
            say=display.say, spot=self.market == "spot", find_earlier=self._find_earlier,
            study=self.study, epochs=self.epochs, phases=self.phases, resume=resume,
            advise=self._advise if self.suggest_moves else None,
        )  # fmt: skip
        if self.tracker is not None:
            try:
                account.track = open_scalars(self.tracker)
            except Exception as problem:  # noqa: BLE001 - whatever a tracker raises; the training must go on
                display.say(f"no scalars are written to {self.tracker}: {problem}")
        try:
            account.usd_per_hour = self._find_price(profile := recording.build("interrupted"))
            self._warn_of_price(profile, display.say)
        except Exception as problem:  # noqa: BLE001 - a deadline is kept without a price, too
            if self.budget_usd is not None and account.usd_per_hour is None:
                fact = describe_problem(problem).removesuffix(".")
                display.say(f"the budget cannot be watched: {fact}. Or pass usd_per_hour= to the watch.")
            elif not isinstance(problem, VmselectError):
                warn_of(problem, "its price is not checked")
        # A worker that stops alone would leave the others waiting for it.
        if self.on_limit == "stop" and (recording.workers > 1 or not can_stop):
            account.on_limit = "warn"
            kind = "with several workers" if recording.workers > 1 else "in a plain loop"
            display.say(f"a training {kind} is not ended at a limit, but you are warned.")
        recording.observer = account.update

    def _find_price(self, profile: Profile) -> float:
        """USD per hour of all machines of a training together."""
        if self.usd_per_hour is not None:
            return self.usd_per_hour
        return self._find_offer(profile, self.catalog or Catalog.default()).usd_per_hour * count_nodes(profile)

    def _find_offer(self, profile: Profile, catalog: Catalog) -> Offer:
        """The offer of the machine of a training."""
        if profile.instance_type is None:
            raise ArgumentError("The instance type of this machine is unknown. Pass instance_type=.")
        return catalog.offer(
            profile.instance_type, region=profile.region, market=self.market, provider=profile.provider
        )

    def _warn_of_price(self, profile: Profile, say: Callable[[str], None]) -> None:
        """Say why the price at which the budget is watched may be wrong, if it may."""
        if self.usd_per_hour is not None or self.budget_usd is None:
            return
        catalog = self.catalog or Catalog.default()
        if flaw := explain_flaw(self._find_offer(profile, catalog), catalog, stale=not catalog.stale):
            say(f"the budget is watched at a price that may be wrong: {flaw}. Pass usd_per_hour= to the watch.")

    def _find_earlier(self, recording: Recording) -> Earlier:
        """Earlier parts of this training, by the records in the folder of the watch."""
        first, place = recording.facts.initial_epoch or 0, choose_path(self.path)
        if not first or place is None:
            return Earlier()
        if isinstance(place, Path) and not place.is_dir():  # a file of its own: other parts are beside it
            place = place.parent
        parts = find_parts(recording.build("interrupted"), _load_readable(place), first)

        def price(part: Profile) -> float | None:
            try:
                return self._find_price(part)
            except VmselectError:
                return None

        return Earlier.of(parts, price)


def _load_readable(folder: Place) -> list[Profile]:
    """The training records in ``folder`` that can be read: a damaged file must not end the account of the others."""
    from vmselect.records import Profile, load_profiles

    try:
        return list(load_profiles(folder))
    except (VmselectError, OSError):
        profiles = []
        for path in sorted(folder.glob("*.json")) if isinstance(folder, Path) else ():
            with suppress(VmselectError, OSError):
                profiles.append(Profile.load(path))
        return profiles


def _show_nothing(status: Status, final: bool) -> None:
    """Show no status (``verbose=0``)."""
