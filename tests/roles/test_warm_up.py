"""Threads of a role decode only types that were built before: msgspec crashes a process where two build one at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

import lucius

PACKAGE = Path(lucius.__file__).parent
PROCESSES = 3
ELSEWHERE = ("type_hint", "hints[name]", "first_items")
"""What workflows are told, tested below; settings, read before threads; items of batches, in the event loop alone."""

IS_BUILT = """
import gc
def is_built(struct):  # The garbage collector sees what msgspec has hung on the type.
    return any(type(one).__name__ == "StructInfo" for one in gc.get_referents(struct))
"""

EVERY_STRUCT = f"""{IS_BUILT}
import importlib, pkgutil, time, lucius
for module in pkgutil.walk_packages(lucius.__path__, "lucius."):
    importlib.import_module(module.name)
from lucius.warm_up import struct_types, warm_up
own = [struct for struct in struct_types() if struct.__module__.startswith("lucius.")]
assert len(own) > 150 and not all(map(is_built, own))
began = time.process_time()
warm_up()
assert time.process_time() - began < 0.1, time.process_time() - began
print(*(struct.__name__ for struct in own if not is_built(struct)))
"""

TEMPORAL_ROLE = f"""{IS_BUILT}
import sys
import lucius.roles
from lucius.bootstrap import open_app
from lucius.domain.errors import InfrastructureError
from lucius.roles.running import run
from lucius.settings import Settings
assert "lucius.engines.temporal.messages" not in sys.modules
nowhere = Settings(engine="temporal", temporal_address="127.0.0.1:1", ledger="memory", bus="memory", data=sys.argv[1])
async def open_it():
    async with open_app(nowhere):
        raise AssertionError("there is no Temporal at port 1")
try:
    run(open_it(), nowhere)
except InfrastructureError:
    from lucius.engines.temporal.messages import JobStart
    print(is_built(JobStart))
"""


def python(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.strip()


def test_sixteen_threads_that_decode_for_the_first_time_at_once_do_not_crash_a_role() -> None:
    for _ in range(PROCESSES):
        python(str(Path(__file__).with_name("decode_start.py")))


def test_warm_up_builds_every_struct_that_can_be_decoded() -> None:
    # The one exception is a union of untagged Structs, which msgspec refuses to decode.
    assert python("-c", EVERY_STRUCT) == "Decision"


def test_a_role_has_loaded_every_module_that_decodes_when_it_warms_up() -> None:
    loaded = python("-c", "import sys, lucius.roles; print(*sys.modules)").split()
    # These are loaded by the composition root, which warms up again.
    assert {module for module, _ in decodings()} - set(loaded) == {
        "lucius.buses.nats.jetstream",
        "lucius.buses.nats.locks",
        "lucius.buses.nats.subscriptions",
        "lucius.engines.temporal.messages",
        "lucius.registries.appconfig.cache",
        "lucius.registries.appconfig.reading",
        "lucius.registries.appconfig.sentinel",
    }


def test_a_role_on_temporal_warms_up_again_once_its_messages_are_loaded(tmp_path: Path) -> None:
    assert python("-c", TEMPORAL_ROLE, str(tmp_path)) == "True"


def test_nothing_but_structs_and_plain_types_is_decoded() -> None:
    """Other classes (named tuples, dataclasses, typed dicts) are built lazily too, and no warm-up finds them."""
    for module, type_ in decodings():
        text = ast.unparse(type_)
        if text in ("type_", "shape"):
            assert vars(import_module(module))["T"].__bound__ is msgspec.Struct, module  # mypy holds callers to it.
        elif text not in ELSEWHERE:
            assert_plain(eval(text, vars(import_module(module))))


def test_workflows_are_told_nothing_but_structs_and_plain_types() -> None:
    from lucius.engines.temporal.activities import JobActivities
    from lucius.engines.temporal.workflow import JobWorkflow

    methods = [method for owner in (JobWorkflow, JobActivities) for method in vars(owner).values() if callable(method)]
    told = [method for method in methods if any(name.startswith("__temporal") for name in vars(method))]
    assert len(told) > 12, told
    for method in told:
        for hint in get_type_hints(method).values():
            assert_plain(hint)


def decodings() -> Iterator[tuple[str, ast.expr]]:
    """Module and type of every msgspec call in the package that is given a type."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or module == "lucius.warm_up":
                continue
            name = ast.unparse(call.func).split(".")[-1]
            named = [keyword.value for keyword in call.keywords if keyword.arg == "type"]
            if name == "decode" and named:
                yield module, named[0]
            elif name == "Decoder" and call.args:
                yield module, call.args[0]
            elif ast.unparse(call.func) in ("msgspec.convert", "convert") and len(call.args) > 1:
                yield module, call.args[1]


def assert_plain(type_: Any) -> None:
    if get_origin(type_) is Literal or type_ in (Any, msgspec.Raw, ...):
        return
    for argument in get_args(type_):
        assert_plain(argument)
    plain = get_args(type_) or type_.__module__ == "builtins" or issubclass(type_, msgspec.Struct)
    assert plain, f"{type_} is none that a warm-up builds"
