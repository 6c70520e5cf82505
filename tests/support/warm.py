"""A model that is compiled already, and its training, for tests about what a fit does rather than what it takes."""

from __future__ import annotations

from fits import BATCH, make_data, make_model

MODEL = make_model()
MODEL.fit(*make_data(3, partial=5), batch_size=BATCH, validation_data=make_data(2), verbose=0)


def fit(probe, *, steps=60, partial=0, validation=3, epochs=9, model=MODEL, callbacks=None, **options):
    if validation and "validation_data" not in options:
        options["validation_data"] = make_data(validation, seed=5)
    callbacks = [probe] if callbacks is None else callbacks
    x, y = make_data(steps, partial=partial)
    model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=callbacks, **options)
    return probe.profile
