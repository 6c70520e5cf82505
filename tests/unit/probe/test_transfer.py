"""Addresses, prices, contents and records of transfers, without a remote store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from vmselect.cli.serve import read_options
from vmselect.errors import ArgumentError
from vmselect.probe.transfer import Content, Storage, plan_transfer, read_address
from vmselect.records import TransferRecord

pytest.importorskip("fsspec", reason="transfers need the extra 'transfer', which is not installed")


@pytest.mark.parametrize(
    ("url", "shown", "protocol", "cloud"),
    [
        ("/data/x", "/data/x", "file", None),
        ("s3://bucket/folder", "s3://bucket/folder", "s3", "aws"),
        ("gs://bucket", "gs://bucket", "gs", "gcp"),
        ("az://container/x", "az://container/x", "az", "azure"),
        ("sftp://me:pass%20word@host:22/x", "sftp://me@host:22/x", "sftp", None),
        ("sftp://me%3apass%20word@host/x", "sftp://me@host/x", "sftp", None),
        ("sftp://me%253Apass%20word@host/x", "sftp://me@host/x", "sftp", None),
        ("sftp://host/x?key=abcd", "sftp://host/x", "sftp", None),
    ],
)
def test_an_address_is_shown_without_its_secrets(
    url: str, shown: str, protocol: str, cloud: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    address = read_address(url)
    assert (address.shown, address.protocol, address.cloud) == (shown, protocol, cloud)
    for secret in ("pass%20word", "pass word", "abcd"):
        assert secret not in repr(address)
        if secret in url:
            assert secret not in address.hide(f"could not open {url} with {secret}")


def test_secrets_of_options_and_environment_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-the-environment")
    address = read_address("s3://b", {"secret": "given", "client_kwargs": {"aws_session_token": "nested"}})
    assert address.hide("from-the-environment given nested") == "*** *** ***"
    names = ("GITHUB_PAT", "DB_PASS", "WANDB_API_KEY", "AUTHORIZATION", "AUTH_HEADER", "REGISTRY_AUTH", "PYTEST_PATH")
    for name in names:
        monkeypatch.setenv(name, f"value-of-{name}")
    hidden = read_address("s3://b").hide(" ".join(f"value-of-{name}" for name in names))
    assert hidden == "*** *** *** *** *** *** value-of-PYTEST_PATH"
    number = read_address("sftp://h/x", {"password": 12345678, "port": 2222})
    assert number.hide("12345678 at 2222") == "*** at 2222"
    assert read_address("sftp://h/x", {"password": " \n \n "}).hide("no such host") == "no such host"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("sftp://me:hush@host/" + "a" * 2000, None),
        ("sftp://me:hush@host/\ud800", None),
        ("s3://b", "password=hush"),
        ("s3://b", [("password", "hush")]),
        ("s3://b", {"password=hush" + "a" * 200: 1}),
    ],
    ids=["long", "surrogate", "text", "pairs", "long name"],
)
def test_errors_about_arguments_show_no_secret(url: str, options: Any) -> None:
    with pytest.raises(ArgumentError) as refused:
        vs.serving.probe_transfer(url, options=options)
    assert "hush" not in str(refused.value)
    assert refused.value.__suppress_context__


@pytest.mark.parametrize("secret", ["hunter2\n", " hunter2", "-----BEGIN KEY-----\nMIIE\nabcd\n-----END KEY-----\n"])
def test_a_secret_of_several_lines_is_hidden(secret: str) -> None:
    address = read_address("sftp://h/x", {"password": secret})
    assert address.hide(f"cannot log in with {secret}.") in ("cannot log in with ***.", "cannot log in with *** .")
    shown = address.hide({"password": secret})
    assert "hunter2" not in shown
    assert "MIIE" not in shown


def test_a_server_outside_the_cloud_has_no_known_price() -> None:
    options = {"client_kwargs": {"endpoint_url": "http://localhost:9000"}}
    assert read_address("s3://bucket", options).cloud is None
    assert plan_transfer("s3://bucket", options=options).cost_usd is None
    assert plan_transfer("s3://bucket", options=options, usd_per_gb=0.5, megabytes=2000).cost_usd == 1.0


def test_another_s3_server_in_the_environment_does_not_affect_other_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:9000")
    clouds = [read_address(f"{protocol}://bucket").cloud for protocol in ("s3", "s3a", "gs", "abfs")]
    assert clouds == [None, None, "gcp", "azure"]


def test_a_plan_has_size_and_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    plan = plan_transfer("s3://bucket/x", megabytes=10_000, files=10)
    assert (plan.total_bytes, plan.bytes_per_file) == (10_000_000_000, 1_000_000_000)
    assert plan.cost_usd == pytest.approx(0.9)
    assert "10,000 MB" in str(plan)
    assert plan_transfer("/tmp/x").cost_usd == 0
    with pytest.raises(ArgumentError, match="budget"):
        vs.serving.probe_transfer("s3://bucket/x", megabytes=100_000)
    with pytest.raises(ArgumentError, match="usd_per_gb"):  # no price, so no budget can hold
        vs.serving.probe_transfer("sftp://own-server/x", megabytes=1_001, verbose=0)


@settings(deadline=None)
@given(st.integers(1, 3_000_000), st.integers(1_000, 500_000), st.integers(0, 3))
def test_content_is_recognized_in_pieces_of_any_length(size: int, piece: int, number: int) -> None:
    data = b"".join(map(bytes, Content("run", number, size).chunks()))
    assert len(data) == size
    pieces = [data[start : start + piece] for start in range(0, size, piece)]
    content = Content("run", number, size)
    assert content.matches(pieces)
    assert not content.matches([*pieces, b"more"])
    assert not content.matches(pieces[:-1])
    assert size <= 40 or not Content("run", number + 1, size).matches(pieces)


def test_content_cannot_be_compressed() -> None:
    import zlib

    data = b"".join(map(bytes, Content("run", 0, 500_000).chunks()))
    assert len(zlib.compress(data)) > 0.99 * len(data)


@given(
    st.lists(st.floats(0.001, 1e3), min_size=1, max_size=20),
    st.lists(st.floats(0.001, 1e3), min_size=1, max_size=20),
    st.floats(0.001, 1e4),
)
def test_a_transfer_record_survives_its_file(tmp_path_factory: Any, up: Any, down: Any, megabytes: float) -> None:
    record = TransferRecord.from_times(
        instance_type="a", url="s3://b", megabytes=megabytes, upload_seconds=up, download_seconds=down
    )
    folder = tmp_path_factory.mktemp("records")
    record.save(folder)
    assert vs.load_records(folder) == [record]
    moved = record.setup.bytes_per_file / 1e6
    assert record.upload_seconds_per_mb == pytest.approx(sum(up) / len(up) / moved)
    assert record.download_mb_per_second == pytest.approx(len(down) * moved / sum(down))


def test_streams_run_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=30)

    class Meeting(Storage):
        def upload(self, content: Any, *parts: str, stopped: Callable[[], bool] = lambda: False) -> None:
            together.wait()  # only three at once get past
            super().upload(content, *parts, stopped=stopped)

    record = vs.serving.probe_transfer("memory://m", megabytes=1, files=6, streams=3, open_storage=Meeting, verbose=0)
    assert record.setup.streams == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: vs.serving.probe_transfer(3),  # type: ignore[arg-type]
        lambda: vs.serving.probe_transfer("memory://x", megabytes=0),
        lambda: vs.serving.probe_transfer("memory://x", files=0),
        lambda: vs.serving.probe_transfer("memory://x", megabytes=0.000001, files=8),
        lambda: vs.serving.probe_transfer("memory://x", streams=1.5),
        lambda: vs.serving.probe_transfer("memory://x", options=[1]),
        lambda: vs.serving.probe_transfer("memory://x", usd_per_gb=-1),
        lambda: vs.serving.probe_transfer("simplecache::s3://x"),
        lambda: vs.serving.probe_transfer("sftp://host:port/x"),
        lambda: TransferRecord.from_times(instance_type="a", url="x", megabytes=1),
        lambda: read_options(["nothing"]),
        lambda: read_options(["a=1", "a.b=2"]),
        lambda: vs.serving.clean_transfers("memory://x", everything="yes"),
    ],
)
def test_bad_arguments_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(ArgumentError):
        call()


def test_unknown_protocols_are_refused() -> None:
    with pytest.raises(vs.errors.VmselectError, match="nowhere"):
        vs.serving.probe_transfer("nowhere://x", megabytes=0.1, verbose=0)


@pytest.mark.slow  # as it needs a package that plain pytest does not
def test_unknown_options_are_refused() -> None:
    pytest.importorskip("paramiko", reason="sftp needs paramiko, which is not installed")
    with pytest.raises(vs.errors.TransferError, match="options"):
        vs.serving.probe_transfer("sftp://127.0.0.1/x", options={"color": "blue-green"}, megabytes=0.1, verbose=0)


def test_properties_of_a_transfer_record() -> None:
    record = TransferRecord.from_times(
        instance_type="x", url="s3://bucket", megabytes=2.5, upload_seconds=[1.0, 4.0], download_seconds=0.5
    )
    assert (record.setup.files, record.setup.bytes_per_file, record.setup.protocol) == (2, 2_500_000, "s3")
    assert record.upload is not None
    assert (record.upload.start, record.upload.seconds, record.upload.total_bytes) == ((0.0, 1.0), 5.0, 5_000_000)
    assert record.upload_seconds_per_mb == pytest.approx(1.0)
    assert record.upload.file_seconds_per_mb == pytest.approx((0.4, 1.6))
    assert record.download_seconds_per_mb == pytest.approx(0.2)
    assert (record.upload_mb_per_second, record.download_mb_per_second) == (pytest.approx(1.0), pytest.approx(5.0))
    one_way = TransferRecord.from_times(instance_type="x", url="/data", megabytes=1e-9, upload_seconds=1.0)
    assert (one_way.download_seconds_per_mb, one_way.download_mb_per_second) == (None, None)
    assert (one_way.setup.bytes_per_file, one_way.title) == (1, "x, /data, 1 files")


@pytest.mark.parametrize(
    ("outcome", "seconds", "brief"),
    [("whole", 0.99, True), ("whole", 1.0, False), ("whole", 0.0, False), ("given", 0.99, False)],
)
def test_a_transfer_of_less_than_a_second_is_called_brief(outcome: str, seconds: float, brief: bool) -> None:
    record = TransferRecord.from_times(instance_type="x", url="s3://b", megabytes=1, download_seconds=seconds)
    findings = record.model_copy(update={"outcome": outcome}).findings
    assert [finding.code for finding in findings] == (["brief-transfer"] if brief else [])


def test_sftp_host_may_be_an_ipv6_address(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    opened: list[dict[str, Any]] = []
    monkeypatch.setattr(fsspec, "filesystem", lambda name, **options: opened.append({"protocol": name, **options}))
    address = read_address("sftp://me:s3cr%40t@[fe80::1]:2222/data/in")
    assert address.shown == "sftp://me@[fe80::1]:2222/data/in"
    assert Storage(address).root == "/data/in"
    assert opened == [
        {"protocol": "sftp", "host": "fe80::1", "port": 2222, "username": "me", "password": "s3cr@t",
         "skip_instance_cache": True}
    ]  # fmt: skip
    with pytest.raises(ArgumentError):
        read_address("sftp://[::1]/a::s3://b")
