import inspect
import subprocess
import sys

import pytest

from core.handlers_catalog import CATALOG, RunMode
from handlers.registry import IMPLEMENTATIONS, resolve


def test_every_handler_of_the_catalogue_is_bound_exactly_once() -> None:
    assert set(IMPLEMENTATIONS) == set(CATALOG)
    assert len(set(IMPLEMENTATIONS.values())) == len(IMPLEMENTATIONS)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_inline_handlers_are_coroutines_and_subprocess_handlers_are_not(name: str) -> None:
    handler = resolve(IMPLEMENTATIONS[name])
    assert inspect.iscoroutinefunction(handler) is (CATALOG[name].mode is RunMode.INLINE)
    assert len(inspect.signature(handler).parameters) == 2


@pytest.mark.parametrize("name", sorted(n for n, spec in CATALOG.items() if spec.staged))
def test_staged_params_exist_in_the_model(name: str) -> None:
    outer = {staged.partition(".")[0] for staged in CATALOG[name].staged}
    assert outer <= set(CATALOG[name].params.model_fields)


def test_the_worker_and_its_inline_handlers_never_import_gdal() -> None:
    inline = [IMPLEMENTATIONS[name] for name, spec in CATALOG.items() if spec.mode is RunMode.INLINE]
    code = (
        "import sys, worker.main\n"
        "from handlers.registry import resolve\n"
        f"[resolve(target) for target in {inline!r}]\n"
        "print([name for name in ('rasterio', 'numpy', 'pyproj') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
