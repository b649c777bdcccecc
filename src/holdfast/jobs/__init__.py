"""Many runs at once: a queue of jobs over a `concurrent.futures.Executor`, and one of processes here.

    from holdfast.jobs.local import LocalExecutor
    from holdfast.jobs.queue import Job, outcomes

    with LocalExecutor(2) as executor:          # this process works too, so one more is started
        jobs = [Job(function, (argument,), work=10.0), ...]
        for outcome in outcomes(jobs, executor):    # as they end; longest first
            outcome.number, outcome.value, outcome.error

Any other executor will do: `concurrent.futures`, or those of submitit, dask.distributed and ray. A job whose
worker died is submitted again. Functions and arguments travel by cloudpickle to workers of this machine.
"""
