"""Four methods on scikit-learn's digits, split over 50 clients that disagree about the labels.

Ends with a table: rounds and megabytes to a target accuracy, and the accuracy at the end.
"""

from rich.console import Console
from rich.table import Table

import holdfast as hf

ROUNDS, TARGET = 100, 0.95


def is_last_layer(path: str) -> bool:
    """FedPVR corrects the classifier and leaves the rest to plain SGD."""
    return path.startswith("classifier")


METHODS = {
    "FedAvg": hf.algorithms.fedavg(),
    "SCAFFOLD": hf.algorithms.scaffold(),
    "FedDyn": hf.algorithms.feddyn(alpha=0.1),
    "FedPVR": hf.algorithms.fedpvr(mask=is_last_layer),
}


def main() -> None:
    """Run every method under the same conditions and print the table."""
    train, test = hf.data.digits()
    clients = hf.data.partition.dirichlet(train, clients=50, concentration=0.3, seed=0)
    table = Table(title=f"Digits over 50 clients, Dirichlet(0.3), 10 a round, {ROUNDS} rounds")
    table.add_column("method")
    for title in (f"rounds to {TARGET:.0%}", f"MB to {TARGET:.0%}", "MB a round", "final accuracy"):
        table.add_column(title, justify="right")
    for name, algorithm in METHODS.items():
        run = hf.simulate(
            algorithm,
            hf.models.mlp([64], classes=10),
            clients,
            hf.Local(learning_rate=0.1, epochs=5, batch_size=20),
            rounds=ROUNDS,
            cohort=hf.cohorts.fixed(10),
            evaluate=hf.evaluate.on(test),
            seed=0,
            progress=True,
        )
        rounds, spent = run.history.rounds_to(TARGET), run.history.bytes_to(TARGET)
        table.add_row(
            name,
            str(rounds) if rounds else f"> {ROUNDS}",
            f"{spent / 1e6:.1f}" if spent else f"> {run.ledger.total / 1e6:.1f}",
            f"{run.ledger.total / 1e6 / ROUNDS:.3f}",
            f"{run.history['accuracy'][-1]:.1%}",
        )
    table.caption = "A target is reached at the first evaluation there."
    Console().print(table)


if __name__ == "__main__":
    main()
