"""Whether every method still gives the same bits as at another commit.

``python tests/bits.py COMMIT`` trains all methods that both commits know, and some compositions, on
a small federation, with each commit's code in a process of its own, and lists those that differ.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMPOSED = [
    *("fedprox:mu=0.1+ida", "ida+fedavg", "fedprox:mu=0.1+fedavgm", "scaffold+ida", "ida+intrac"),
    *("ditto+ida+fedavg", "fedbn+fedprox", "ifca+ida", "fedntd+fedadam", "median+fedavgm"),
    *("fednova+fedprox:mu=0.1", "fedper+ida"),
]  # fmt: skip
LAYOUTS = [("loop", "mlp:hidden=8,norm=batch"), ("loop", "mlp:hidden=8"),
           ("vectorised", "mlp:hidden=8")]  # fmt: skip


def digests(specs: list[str]) -> dict[str, str]:
    """Return a hash of the model and the metrics per layout and method, or why there is none."""
    import unskew as us
    from unskew.errors import UnskewError, UnskewWarning

    warnings.simplefilter("ignore", UnskewWarning)
    federation = us.load("digits", skew="dirichlet:alpha=0.5", clients=8, seed=1)
    options = {"rounds": 3, "batch_size": 32, "lr": 0.1, "seed": 3}
    found = {}
    for runner, model in LAYOUTS:
        for spec in specs:
            try:
                run = us.train(federation, spec, model=model, runner=runner, **options)
            except UnskewError as error:
                found[f"{spec}, {model}, {runner}"] = str(error)
                continue
            bits = hashlib.sha256()
            for tensor in run.model.state_dict().values():
                bits.update(tensor.numpy().tobytes())
            for level in ("global", "local", "personal"):
                bits.update(repr(run.curve(level, "loss")[1]).encode())
            found[f"{spec}, {model}, {runner}"] = bits.hexdigest()
    return found


def specs_of_this_commit() -> list[str]:
    from every_method import SPECS

    return [*SPECS, *COMPOSED]


def digests_of(code: Path, specs: list[str]) -> dict[str, str]:
    """Return the digests that the code in a folder gives, computed in another process."""
    environment = os.environ | {"PYTHONPATH": str(code / "src")}
    command = [sys.executable, __file__, "--digests", json.dumps(specs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    """Compare this code with that of a commit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", nargs="?", default="HEAD")
    parser.add_argument("--specs", nargs="*", help="only these methods")
    parser.add_argument("--digests", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.digests is not None:
        json.dump(digests(json.loads(arguments.digests)), sys.stdout)
        return
    specs = arguments.specs or specs_of_this_commit()
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "code"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", code, arguments.commit], check=True)
        try:
            before = digests_of(code, specs)
        finally:
            subprocess.run([*git, "remove", "--force", code], check=True)
    now = digests_of(ROOT, specs)
    unknown = [name for name, value in before.items() if "is not known" in value]
    compared = [name for name in now if name not in unknown]
    changed = [name for name in compared if now[name] != before[name]]
    same = f"{len(compared) - len(changed)} of {len(compared)} are the same, {len(unknown)} are new"
    sys.stdout.write("\n".join([*(f"changed: {name}" for name in changed), same, ""]))
    sys.exit(bool(changed))


if __name__ == "__main__":
    main()
