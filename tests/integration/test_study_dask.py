"""``hyroads study --dask`` on real schedulers and workers on loopback: the same files, also if a worker is killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import small_study
from dask_cluster import Cluster, cluster
from waypoint_certificates import make_certificate

from hyroads.controller.cli.main import main
from hyroads.controller.study import framework
from hyroads.controller.study.carry_out import carry_out
from hyroads.controller.study.dask_engine import dask_workers
from hyroads.controller.study.framework import Settings
from hyroads.controller.study.task_store import TaskStore

NAME = small_study.NAME
SETTINGS = Settings()


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    monkeypatch.setitem(framework.STUDIES, NAME, small_study.MODULE)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with cluster(2, tmp_path_factory.mktemp("dask")) as found:
        yield found


def quiet(done: int, total: int) -> None:
    pass


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".csv", ".md")}


def arguments(address: str, folder: Path, *more: str) -> list[str]:
    return ["study", NAME, "--no-plots", "--out", str(folder), "--dask", address, *more]


def test_a_cluster_gives_the_same_files_also_with_a_worker_killed(two: Cluster, tmp_path: Path, capsys) -> None:
    carry_out(NAME, SETTINGS, tmp_path / "here", quiet, plots=False).forget()
    assert main(arguments(two.address, tmp_path / "there")) == 0
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    killed: list[int] = []

    def kill_one(done: int, total: int) -> None:
        if done >= 3 and not killed:
            two.workers[0].kill()
            killed.append(done)

    with dask_workers(two.address) as engine:
        settings = replace(SETTINGS, engine=engine)
        carry_out(NAME, settings, tmp_path / "killed", kill_one, plots=False).forget()
    assert killed and two.workers[0].wait(10) != 0
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "here")


def test_a_lost_scheduler_is_one_error_and_the_study_goes_on_without_it(
    tmp_path: Path, monkeypatch, capsys, caplog
) -> None:
    out, kept = tmp_path / "out", []
    with cluster(1, tmp_path) as found:
        add = TaskStore.add

        def kill(store: TaskStore, number: int, outcome: object) -> None:
            add(store, number, outcome)
            kept.append(number)
            if len(kept) == 3:
                found.scheduler.kill()
                found.scheduler.wait(10)

        monkeypatch.setattr(TaskStore, "add", kill)
        assert main(arguments(found.address, out)) == 2
        monkeypatch.setattr(TaskStore, "add", add)
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "the scheduler is lost" in error and found.address in error
    assert not [each for each in caplog.records if each.name.startswith("distributed")]
    assert 3 <= len(kept) < small_study.TASKS
    assert not files_of(out), "a study that failed has written files"
    again = carry_out(NAME, SETTINGS, out, quiet, plots=False)
    assert again.remarks == [f"{len(kept)} finished tasks of an earlier run were taken up"]
    again.forget()
    carry_out(NAME, SETTINGS, tmp_path / "here", quiet, plots=False).forget()
    assert files_of(out) == files_of(tmp_path / "here")


@pytest.mark.nightly
def test_tls_with_certificates_at_both_ends(tmp_path: Path, capsys) -> None:
    make_certificate(tmp_path, "cluster", "127.0.0.1")
    make_certificate(tmp_path, "stranger", "127.0.0.1")
    pem, key = str(tmp_path / "cluster.pem"), str(tmp_path / "cluster.key")
    options = ["--tls-ca-file", pem, "--tls-cert", pem, "--tls-key", key]
    with cluster(1, tmp_path, "tls", options) as found:
        ours = ["--dask-ca", pem, "--dask-cert", pem, "--dask-key", key]
        assert main(arguments(found.address, tmp_path / "out", *ours)) == 0
        pem, key = str(tmp_path / "stranger.pem"), str(tmp_path / "stranger.key")
        capsys.readouterr()
        assert (
            main(arguments(found.address, tmp_path / "no", "--dask-ca", pem, "--dask-cert", pem, "--dask-key", key))
            == 2
        )
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "no scheduler answers" in error
    carry_out(NAME, SETTINGS, tmp_path / "here", quiet, plots=False).forget()
    assert files_of(tmp_path / "out") == files_of(tmp_path / "here")
