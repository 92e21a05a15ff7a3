"""Run a plan on the processes that the tests share."""

from safetensors.torch import load_file

from planner.runtime.job import prepare_job


def run_job(processes, plan, options, work_dir):
    """Train; returns the job, whose `sequences` are the data."""
    work_dir.mkdir()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    job = prepare_job(plan, options, work_dir)
    processes.train(job.save(), plan.num_processes)
    return job


def saved_state(run_dir):
    """All tensors of the model that a run wrote."""
    files = (run_dir / "model").glob("*.safetensors")
    return {k: v for file in files for k, v in load_file(file).items()}
