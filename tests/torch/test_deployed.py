"""Sites with PyTorch beside sites with JAX in one federation."""

import holdfast as hf
import holdfast.torch
from tests.problems import largest_difference
from tests.torch.networks import CLIENTS, NETWORK, network_in_torch

FULL = hf.Local(0.1, steps=3)


def federation(algorithm, folder, torch_at):
    """The experiment, and its sites: those of these numbers train by PyTorch."""
    given = hf.Experiment(algorithm, NETWORK, CLIENTS, FULL, seed=1)
    in_torch = network_in_torch()
    sites = []
    for i, own in enumerate(CLIENTS):
        examples = holdfast.torch.site(in_torch, loader=own) if i in torch_at else own
        sites.append(hf.deploy.Site(given, examples, folder / str(i), str(i), tests=own))
    return given, sites


def test_sites_of_both_frameworks_take_the_trajectory_of_one(tmp_path):
    algorithm = hf.algorithms.scaffold()
    given, sites = federation(algorithm, tmp_path, torch_at=(0, 2))
    simulated = hf.simulate(given, rounds=3)
    deployed = hf.deploy.run(given, hf.deploy.InProcess(sites), rounds=3, wait=10)
    assert largest_difference(deployed.params, simulated.params) < 1e-5
    assert largest_difference(deployed.state.server, simulated.state.server) < 1e-5
    assert deployed.ledger.entries == simulated.ledger.entries
    for number, site in enumerate(sites):
        saved = hf.load(site.model_file(deployed.experiment.engine.run))
        assert largest_difference(saved.params, simulated.personal(number)) < 1e-5
