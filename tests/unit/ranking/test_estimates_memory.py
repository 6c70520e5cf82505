"""Rankings without machines whose GPU has too little memory."""

from __future__ import annotations

from typing import Any

import vmselect as vs
from tests.support.profiles import make_gpu_profile
from vmselect.prediction.memory import TIGHT_MEMORY, TOO_LITTLE_MEMORY, UNKNOWN_MEMORY

CATALOG = vs.Catalog.embedded("2026-08-22").where(retired=True)


def rank(*profiles: vs.Profile, **options: Any) -> vs.Ranking:
    return vs.rank(profiles, epochs=5, catalog=CATALOG, **options)


def excluded(ranking: vs.Ranking) -> dict[str, str]:
    return {one.candidate: one.reason_code for one in ranking.excluded}


def test_predicted_machines_with_too_little_memory_are_excluded() -> None:
    ranking = rank(make_gpu_profile(64, 13.0), machines=["g3s.xlarge", "g4dn.2xlarge", "g5.xlarge"])
    assert {row.instance_type for row in ranking} == {"g4dn.xlarge", "g4dn.2xlarge", "g5.xlarge"}
    assert excluded(ranking) == {"g3s.xlarge, batch 64": TOO_LITTLE_MEMORY}
    assert "batch size" in ranking.excluded[0].reason
    assert UNKNOWN_MEMORY not in ranking.findings


def test_a_tight_machine_is_flagged() -> None:
    # T4: 0.93 x 16 - 0.6 = 14.28 GiB for 13.8 GiB, up to 14.5 GiB
    a10g = {"gpus": ({"name": "NVIDIA A10G", "memory_bytes": int(22.5 * 2**30)},)}
    probe = make_gpu_profile(64, 13.8, instance_type="g5.xlarge", environment=a10g)
    ranking = rank(probe, machines=["g4dn.xlarge", "g6.xlarge"])
    codes = {row.instance_type: {finding.code for finding in row.findings} for row in ranking}
    assert TIGHT_MEMORY in codes["g4dn.xlarge"]
    assert TIGHT_MEMORY not in codes["g5.xlarge"] | codes["g6.xlarge"]


def test_batch_sizes_that_were_not_probed() -> None:
    probes = (make_gpu_profile(64, 6.0), make_gpu_profile(128, 11.0))  # 256: 21 GiB
    ranking = rank(*probes, batch_size=[96, 256], machines=["g5.xlarge", "g6e.xlarge"])
    found = {(row.instance_type, row.batch_size): row.basis for row in ranking}
    assert found["g4dn.xlarge", 96] == "interpolated"
    assert ("g4dn.xlarge", 256) not in found
    assert excluded(ranking)["g4dn.xlarge, batch 256"] == TOO_LITTLE_MEMORY
    assert found["g6e.xlarge", 256] == "predicted", "its time follows from a machine that is too small itself"


def test_machines_like_one_that_ran_out_of_memory() -> None:
    failed = make_gpu_profile(64, None, instance_type="g4dn.2xlarge", outcome="out_of_memory")
    other = make_gpu_profile(64, None, instance_type="g5.xlarge", environment={"gpus": ()})
    ranking = rank(other, failed, machines=["g4dn.xlarge", "g5.2xlarge"])
    assert {row.instance_type for row in ranking} == {"g5.xlarge", "g5.2xlarge"}
    assert excluded(ranking) == {"g4dn.2xlarge, batch 64": "out_of_memory", "g4dn.xlarge, batch 64": TOO_LITTLE_MEMORY}
    assert UNKNOWN_MEMORY in ranking.findings


def test_unknown_memory_excludes_nothing() -> None:
    ranking = rank(make_gpu_profile(64, None), machines=["g3s.xlarge", "g5.xlarge"])
    assert len({row.instance_type for row in ranking}) == 3
    assert UNKNOWN_MEMORY in ranking.findings
    assert UNKNOWN_MEMORY not in rank(make_gpu_profile(64, None)).findings


def test_each_gpu_of_several_gets_its_share() -> None:
    def probe(size: int, peak: float) -> vs.Profile:
        seen = {"replicas": 4, "framework_gpus": 4}
        return make_gpu_profile(size, peak, instance_type="g4dn.12xlarge", environment=seen)

    ranking = rank(probe(64, 2.0), probe(128, 3.0), batch_size=256)  # 64 examples per GPU: 5 GiB
    assert [row.basis for row in ranking] == ["extrapolated"]
    alone = rank(probe(64, 6.0), probe(128, 9.0), batch_size=256)
    assert excluded(alone)["g4dn.12xlarge, batch 256"] == TOO_LITTLE_MEMORY
