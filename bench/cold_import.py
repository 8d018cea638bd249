"""How long a new instance of the Functions app takes to import it: `python -m bench.cold_import [RUNS]`.

Each run is a new interpreter of `.venv-functions` (`./scripts/functions_venv.sh` makes it) in the deployable folder.
The first run has no bytecode, as on a new machine; the others have. Azure's own start of the host comes on top.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.functions_package import ROOT, write_package

AIM_SECONDS: Final = 2.0
_ENVIRONMENT: Final = {
    "POSTGRES_HOST": "127.0.0.1",
    "POSTGRES_DB": "none",
    "POSTGRES_USER": "none",
    "ORCHESTRATOR_URL": "http://127.0.0.1:9",
    "GATEWAY_SERVICE_KEY": "none",
    "PUBLIC_GATEWAY_URL": "http://127.0.0.1:9",
    "PUBLIC_SERVING_URL": "http://127.0.0.1:9",
}
_PROGRAM: Final = """
import resource, function_app
function_app.app.get_functions()
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One import in one new process."""

    seconds: float
    cpu_seconds: float
    """What a machine without other work would need."""
    peak_mib: float


def measure(folder: Path) -> Measured:
    """Import the app in a new process."""
    keys = folder / "keys.json"
    keys.write_text('{"keys": []}', encoding="utf-8")
    environment = {**_ENVIRONMENT, "PATH": os.environ["PATH"], "API_KEYS_FILE": str(keys)}
    python = ROOT / ".venv-functions" / "bin" / "python"
    began = time.perf_counter()
    done = subprocess.run([python, "-c", _PROGRAM], cwd=folder, env=environment, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    cpu, kibibytes = done.stdout.split()
    return Measured(seconds, float(cpu), int(kibibytes) / 1024)


def main(runs: int) -> int:
    """Print the figures; return 1 when the median of the CPU's time misses the aim."""
    with tempfile.TemporaryDirectory() as folder:
        write_package(Path(folder) / "app")
        found = [measure(Path(folder) / "app") for _ in range(runs + 1)]
    first, warm = found[0], found[1:]
    cpu = statistics.median(one.cpu_seconds for one in warm)
    wall = statistics.median(one.seconds for one in warm)
    print(f"without bytecode: {first.seconds:.2f} s, CPU {first.cpu_seconds:.2f} s, peak {first.peak_mib:.0f} MiB")
    print(f"with bytecode: median {wall:.2f} s, CPU {cpu:.2f} s, load {os.getloadavg()[0]:.1f}")
    print(f"aim: CPU below {AIM_SECONDS} s: {'met' if cpu < AIM_SECONDS else 'missed'}")
    return 0 if cpu < AIM_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
