"""How calls become jobs of Slurm; Slurm itself is not needed."""

import pytest

pytestmark = pytest.mark.extras("submitit")


@pytest.mark.parametrize(
    ("time", "seconds"), [("90", 5400), ("2h", 7200), ("1:30:00", 5400), ("5:30", 330)]
)
def test_the_time_of_slurm_jobs(time, seconds):
    from unskew.experiments.cluster.slurm_cluster import _seconds

    assert _seconds(time) == seconds


def test_a_requeued_slurm_job_makes_only_the_calls_that_are_not_done(tmp_path):
    from submitit.core.utils import DelayedSubmission

    from unskew.experiments.cluster.slurm_cluster import _Pack

    calls, outcomes, saved = tmp_path / "calls", tmp_path / "outcomes", tmp_path / "job.pickle"
    outcomes.mkdir()

    def call(name):
        with calls.open("a") as file:
            file.write(f"{name}\n")
        if calls.read_text().split() == ["first", "second"]:
            raise SystemExit  # as submitit does when a job has been requeued
        return {"end": [0, 1]}

    names = ["first", "second", "third"]
    pack = _Pack([(outcomes / f"{name}.json", (call, (name,))) for name in names])
    with pytest.raises(SystemExit):
        pack()
    assert [path.stem for path in outcomes.iterdir()] == ["first"]
    pack.checkpoint().dump(saved)
    DelayedSubmission.load(saved).result()
    assert calls.read_text().split() == ["first", "second", "second", "third"]
    assert sorted(path.stem for path in outcomes.iterdir()) == names
