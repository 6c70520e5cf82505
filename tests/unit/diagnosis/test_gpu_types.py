"""Names of machine types that tell of a GPU."""

from __future__ import annotations

import vmselect as vs
from vmselect.diagnosis.gpu_types import names_gpu


def test_names_of_the_catalog_tell_of_a_gpu_and_never_wrongly() -> None:
    machines = vs.Catalog.embedded().offers(market=None)[["instance_type", "gpu_count"]].drop_duplicates()
    has_gpu, told = machines["gpu_count"] > 0, machines["instance_type"].astype(str).map(names_gpu)
    assert (~has_gpu).sum() > 200
    assert not machines["instance_type"][told & ~has_gpu].tolist()
    assert told[has_gpu].mean() > 0.9


def test_names_of_own_machines() -> None:
    assert all(map(names_gpu, ["lab-rtx4090", "node7_h100", "8xH100", "workstation-gpu"]))
    assert not any(map(names_gpu, ["laptop", "t4g.small", "build-server-4", "Standard_D4s_v5", "e2-medium"]))
