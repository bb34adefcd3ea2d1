"""The time that a job will take, by the times of earlier jobs like it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from quicksand_tui.model.jobs import SAVE_VERBS, JobVerb
from quicksand_tui.model.shown_sandboxes import split_host

if TYPE_CHECKING:
    from quicksand_tui.model.jobs import EndedJob, Job

LAST: Final = 3
"""The number of the last such jobs that count."""

SPREAD_MAX: Final = 2.0
"""The greatest ratio of the longest of them to the shortest: a start from a template tells nothing
about a start without one."""

LEAST_S: Final = 3.0
"""Seconds below which a job is over before anybody has read how long it will take."""


def usual_seconds(job: Job, ended: Sequence[EndedJob]) -> float:
    """Returns the seconds that jobs like this one took in this run of the app; 0 if none has
    succeeded, or if the last ones differ too much. ``ended`` has the newest last."""
    took = [
        other.seconds
        for other in reversed(ended)
        if other.outcome == "done" and job.kind and _is_like(job, other.job)
    ][:LAST]
    if not took or max(took) > SPREAD_MAX * min(took) or (usual := median(took)) < LEAST_S:
        return 0.0
    return usual


def _is_like(one: Job, other: Job) -> bool:
    """Whether both do the same to like things. Sandboxes of an image on a machine start alike."""
    if (one.kind, one.verb, one.image) != (other.kind, other.verb, other.image):
        return False
    if one.verb in SAVE_VERBS:
        return one.about == other.about
    if one.verb is JobVerb.START:
        return split_host(one.sandbox_id)[1] == split_host(other.sandbox_id)[1]
    return one.sandbox_id == other.sandbox_id
