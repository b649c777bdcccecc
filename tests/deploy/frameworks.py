"""`make deploy-test`: a site with PyTorch beside two with JAX, over Flower; skipped if it is not installed.

On full batches the run must be the simulation's to 1e-5, and its ledger the simulation's.
"""

import dataclasses
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import holdfast as hf
from holdfast.deploy.local import LocalFederation
from tests.deploy.federations import MODEL, state_at_site
from tests.deploy.federations import experiment as given
from tests.deploy.methods import federation_of
from tests.deploy.test_loopback import SITE_PROCESS
from tests.problems import largest_difference

ROUNDS = 3
TORCH = "1"


def experiment():
    """The app's: SCAFFOLD on full batches."""
    return given("scaffold", local=hf.Local(0.1, steps=3))


def site(config):
    """The app's: one of the sites trains by PyTorch."""
    made = hf.deploy.site_from_file(config["site"], experiment())
    if made.name != TORCH:
        return made
    import torch

    import holdfast.torch

    torch.set_num_threads(1)
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    same = holdfast.torch.like(MODEL, made.examples, module, classes=3)
    return dataclasses.replace(made, examples=holdfast.torch.site(same, loader=made.examples))


def by_torch(process: int) -> bool:
    """Whether PyTorch is loaded there."""
    return "libtorch" in Path(f"/proc/{process}/maps").read_text()


def main() -> None:
    """One run, and the same simulated by JAX alone."""
    if importlib.util.find_spec("torch") is None:
        print("no PyTorch here: pip install torch")
        return
    os.environ["PYTHONPATH"] = os.pathsep.join(p or os.getcwd() for p in sys.path)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "federation"
        files = federation_of(folder)
        app = folder / "app" / "study" / "experiment.py"
        app.write_text("from tests.deploy.frameworks import experiment, site\n")
        with LocalFederation(folder / "local", files) as federation:
            run = folder / "run"
            for line in federation.connection.run(folder / "app", rounds=ROUNDS, folder=str(run)):
                print(f"  {line[:150]}", flush=True)
            trained = [by_torch(process) for process in federation.started(SITE_PROCESS)]
        assert sorted(trained) == [False, False, True], f"PyTorch at {sum(trained)} sites"
        own = experiment()
        expected = hf.simulate(own, rounds=ROUNDS)
        found = hf.deploy.run(own, hf.deploy.InProcess([]), ROUNDS, run)
        apart = [largest_difference(found.params, expected.params)]
        apart.append(largest_difference(found.state.server, expected.state.server))
        for number, file in enumerate(files.values()):
            state = state_at_site(found, hf.deploy.site_from_file(file, own))
            apart.append(largest_difference(state, expected.client_states[number]))
        assert max(apart) < 1e-5, f"{max(apart):.1e} from the simulation"
        assert found.ledger.entries == expected.ledger.entries, "another ledger"
        print(f"JAX and PyTorch in one federation: at most {max(apart):.1e} from JAX alone")


if __name__ == "__main__":
    main()
