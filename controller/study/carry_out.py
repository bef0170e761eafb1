"""Carries out a study as the command does: into a folder, with what an interrupted run has left, once or repeatedly."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path

from hyroads.controller.core.errors import HyroadsError

from .framework import Progress, Result, Settings, StudyError, study
from .repeat import combine
from .report import Origin, writable, write
from .task_store import TaskStore, forget


@dataclass(frozen=True, slots=True)
class Carried:
    """A result, the files that were written (the report first), and the folders in which tasks are still kept.

    ``remarks`` is what the user should know of how it went.
    """

    result: Result
    files: Sequence[Path]
    folders: Sequence[Path]
    remarks: Sequence[str] = ()

    def forget(self) -> None:
        """Remove the kept tasks: nobody will go on with them."""
        for folder in self.folders:
            forget(folder)


def carry_out(
    name: str,
    settings: Settings,
    folder: Path,
    progress: Progress,
    *,
    plots: bool = True,
    repeat: int = 1,
    fresh: bool = False,
) -> Carried:
    """Carry out the study ``name`` and write it into ``folder``; with ``fresh`` nothing is taken from earlier runs.

    With ``repeat`` it is carried out with as many seeds, from that of the settings on, each into a folder of its own
    within ``folder``, whose report is about all of them. ``progress`` is called for each anew. ``StudyError`` if the
    folder can't be written, or what is kept there is not ours.
    """
    if repeat == 1:
        return _once(name, settings, folder, progress, plots=plots, fresh=fresh)
    writable(folder)
    seeds = range(settings.seed, settings.seed + repeat)
    parts = [
        _once(name, replace(settings, seed=seed), folder / f"seed-{seed}", progress, plots=plots, fresh=fresh)
        for seed in seeds
    ]
    result = combine([part.result for part in parts], seeds)
    files = write(result, folder, plots, origin_of(name, settings, repeat))
    return Carried(
        result,
        [*files, *(path for part in parts for path in part.files)],
        [each for part in parts for each in part.folders],
        list(dict.fromkeys(remark for part in parts for remark in part.remarks)),
    )


def _once(name: str, settings: Settings, folder: Path, progress: Progress, *, plots: bool, fresh: bool) -> Carried:
    writable(folder)
    with TaskStore(folder, name, settings, fresh) as store:
        try:
            result = study(name).run(replace(settings, store=store), progress)
        except HyroadsError:
            raise
        except BrokenProcessPool as error:
            raise StudyError(f"{name}: a process ended, for want of memory perhaps; try fewer --workers") from error
        except Exception as error:
            if not store.found:
                raise
            # What has the right checksums and is nevertheless no outcome was not written by this code.
            raise StudyError(
                f"{store.path}: what is kept there is no outcome of {name} ({error!r}); --fresh begins anew"
            ) from error
        files = write(result, folder, plots, origin_of(name, settings))
        remarks = [f"{store.found} finished tasks of an earlier run were taken up"] if store.found else []
        return Carried(result, files, [folder], remarks + ([store.refused] if store.refused else []))


def origin_of(name: str, settings: Settings, repeat: int = 1) -> Origin:
    """The command that gives the same result, without what changes nothing of it, and the published figures."""
    words = ["hyroads study", name]
    words += ["--quick"] if settings.quick else []
    words += [f"--runs {settings.runs}"] if settings.runs is not None else []
    words += [f"--seed {settings.seed}"]
    words += [f"--repeat {repeat}"] if repeat != 1 else []
    words += ["--traces DIR"] if settings.traces is not None else []
    return Origin(" ".join(words), study(name).FIGURES)
