"""Files from strangers run no code, and whatever is wrong with them is said in one line."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pickle
import random
import struct
import threading
import time
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from typer.testing import CliRunner

from eqsat import archive
from eqsat.cli import app
from eqsat.cost.profile import find

Members = dict[str, bytes]
X = torch.linspace(-1, 1, 24).reshape(3, 8)
MODEL, WEIGHTS = "models/model.json", "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"


class Net(nn.Module):
    """A layer, and a size that depends on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.layer(x), self.layer(x * 2)])


@cache
def saved() -> Members:
    """The members of an honest archive, by their names inside it."""
    file = io.BytesIO()
    torch.export.save(
        torch.export.export(Net().eval(), (X,), dynamic_shapes=({0: Dim("n")},)), file
    )
    with zipfile.ZipFile(file) as read:
        return {name.split("/", 1)[1]: read.read(name) for name in read.namelist()}


def write(path: Path, members: Members, kind: int = zipfile.ZIP_STORED) -> Path:
    """An archive of these members."""
    with zipfile.ZipFile(path, "w", kind) as made:
        for name, data in members.items():
            made.writestr(f"{path.stem}/{name}", data)
    return path


def changed(member: str, change: Callable[[Any], None]) -> Members:
    """The honest members with one JSON text changed."""
    data = json.loads(saved()[member])
    change(data)
    return {**saved(), member: json.dumps(data).encode()}


def each(data: Any, key: str) -> list[dict[str, Any]]:
    """The objects inside that have this key."""
    found: list[dict[str, Any]] = []
    stack = [data]
    while stack:
        top = stack.pop()
        if isinstance(top, dict):
            found += [top] if key in top else []
            stack += list(top.values())
        elif isinstance(top, list):
            stack += top
    return found


def refused(path: Path) -> str:
    """Why an archive is not loaded, in one line."""
    with pytest.raises(ValueError) as error:
        archive.load(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    return str(error.value)


class Bomb:
    """What writes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self.mark,))


def pickled(mark: Path) -> bytes:
    """Such an object as `torch.save` writes it."""
    file = io.BytesIO()
    torch.save(Bomb(mark), file)
    return file.getvalue()


def code(mark: Path) -> str:
    """An expression that writes a file."""
    return f"__import__('pathlib').Path({str(mark)!r}).touch()"


def as_inputs(mark: Path) -> Members:
    return {**saved(), "data/sample_inputs/model.pt": pickled(mark)}


def as_weight(mark: Path) -> Members:
    def change(data: Any) -> None:
        weight = next(iter(data["config"].values()))
        weight["use_pickle"] = True

    members = changed(WEIGHTS, change)
    return {**members, "data/weights/weight_0": pickled(mark)}


def as_object(mark: Path) -> Members:
    def change(data: Any) -> None:
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True}
        data["config"]["thing"] = {**entry, "tensor_meta": None}

    members = changed(CONSTANTS, change)
    return {**members, "data/constants/opaque_obj_0": pickle.dumps(Bomb(mark))}


def as_size(mark: Path) -> Members:
    return with_sizes(code(mark))


def as_guard(mark: Path) -> Members:
    return changed(MODEL, lambda data: data["guards_code"].append(code(mark)))


def as_kernels(mark: Path) -> Members:
    return {**saved(), "data/aotinductor/model/kernels.so": str(mark).encode()}


def as_call(_: Path) -> Members:
    def change(data: Any) -> None:
        for node in data["graph_module"]["graph"]["nodes"]:
            node["target"] = "torch.os.system"

    return changed(MODEL, change)


def as_file(_: Path) -> Members:
    def change(data: Any) -> None:
        data["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.aten.from_file.default"

    return changed(MODEL, change)


def as_name(mark: Path) -> Members:
    def change(data: Any) -> None:
        each(data, "name")[0]["name"] = f"x; {code(mark)}"

    return changed(MODEL, change)


def as_path(mark: Path) -> Members:
    def change(data: Any) -> None:
        each(data, "parameter_name")[0]["parameter_name"] = f'a"), {code(mark)}, ("'

    return changed(MODEL, change)


def as_enum(_: Path) -> Members:
    def change(data: Any) -> None:
        spec = [1, {"type": None, "context": '{"__enum__": 1, "fqn": "antigravity:x"}'}]
        each(data, "in_spec")[0]["in_spec"] = json.dumps(spec)

    return changed(MODEL, change)


def as_keyword(mark: Path) -> Members:
    def change(data: Any) -> None:
        found = each(data, "in_spec")[0]
        spec = json.loads(found["in_spec"])
        spec[1]["children_spec"][1]["context"] = json.dumps([f"a={code(mark)}"])
        found["in_spec"] = json.dumps(spec)

    return changed(MODEL, change)


def as_other_ending(mark: Path) -> Members:
    return renamed(as_size(mark), MODEL, MODEL.replace(".json", "_json"))


def as_other_case(mark: Path) -> Members:
    name = "data/constants/opaque_obj_0"
    return renamed(as_object(mark), name, name.replace("obj", "OBJ"))


def as_tail(mark: Path) -> Members:
    tail = f"Symbol('s0', integer=True){' ' * 10_000}and open({str(mark)!r}, 'w')"
    return with_sizes(tail)


def as_lines(mark: Path) -> Members:
    return with_sizes(f"Symbol('a\\\n' #' , open({str(mark)!r}, 'w')\n)")


def as_quoted_guard(mark: Path) -> Members:
    guard = f"1 == 1 or L[\" + str(open({str(mark)!r}, 'w')) + \"]"
    return changed(MODEL, lambda data: data["guards_code"].append(guard))


def as_escaped_enum(_: Path) -> Members:
    context = '{"\\u005f_enum__": 1, "fqn": "antigravity:x", "name": "y"}'
    return with_input({"type": "builtins.tuple", "context": context, "children_spec": []})


def as_input_key(mark: Path) -> Members:
    key = f'" + str(open(bytes({list(bytes(mark))}), chr(119))) + "'
    leaf = {"type": None, "context": None, "children_spec": []}
    spec = {"type": "builtins.dict", "context": json.dumps([key]), "children_spec": [leaf]}
    return with_input(spec)


def as_prefix(_: Path) -> Members:
    def change(data: Any) -> None:
        data["graph_module"]["graph"]["nodes"][0]["target"] = "torches.os.system"

    return changed(MODEL, change)


def renamed(members: Members, old: str, new: str) -> Members:
    """The members, one of them under another name."""
    return {new if name == old else name: data for name, data in members.items()}


def with_sizes(text: str) -> Members:
    """The honest members with this text for every size."""

    def change(data: Any) -> None:
        for size in each(data, "expr_str"):
            size["expr_str"] = text

    return changed(MODEL, change)


def with_input(spec: dict[str, Any]) -> Members:
    """The honest members with this description of the input."""

    def change(data: Any) -> None:
        found = each(data, "in_spec")[0]
        whole = json.loads(found["in_spec"])
        whole[1]["children_spec"][0]["children_spec"][0] = spec
        found["in_spec"] = json.dumps(whole)

    return changed(MODEL, change)


ATTACKS = {
    f.__name__: f
    for f in (
        as_inputs,
        as_weight,
        as_object,
        as_size,
        as_guard,
        as_kernels,
        as_call,
        as_file,
        as_name,
        as_path,
        as_enum,
        as_keyword,
        as_other_ending,
        as_other_case,
        as_tail,
        as_lines,
        as_quoted_guard,
        as_escaped_enum,
        as_input_key,
        as_prefix,
    )
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_archive_runs_nothing(attack: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    reason = refused(write(tmp_path / "model.pt2", ATTACKS[attack](mark)))
    assert "damaged" not in reason, reason
    assert not mark.exists()


@pytest.mark.parametrize(
    "attack",
    ["as_inputs", "as_weight", "as_object", "as_size", "as_other_ending", "as_tail", "as_lines"],
)
def test_torch_alone_would_have_run_it(attack: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    path = write(tmp_path / "model.pt2", ATTACKS[attack](mark))
    with contextlib.suppress(Exception):  # what it is afterwards is no program
        torch.export.load(path)
    assert mark.exists()


def packed(members: Members) -> tuple[bytes, bytes]:
    """The files of an archive as they lie in it, and the directory that follows them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, data in members.items():
            made.writestr(f"model/{name}", data)
    whole = file.getvalue()
    size, start = struct.unpack_from("<LL", whole, whole.rfind(b"PK\5\6") + 12)
    return whole[:start], whole[start : start + size]


def test_an_archive_that_has_two_directories_runs_nothing(tmp_path: Path) -> None:
    mark, path = tmp_path / "ran", tmp_path / "model.pt2"
    (evil, shown), (good, hidden) = packed(as_size(mark)), packed(saved())
    evil += bytes(max(0, len(good) - len(evil)))
    lag = len(evil) - len(good)  # by which Python, counting from the end, moves every file
    moved, at = bytearray(hidden), 0
    while at < len(moved):
        (place,) = struct.unpack_from("<L", moved, at + 42)
        struct.pack_into("<L", moved, at + 42, place + lag)
        at += 46 + sum(struct.unpack_from("<3H", moved, at + 28))
    count = len(saved())
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(shown), len(evil), 0)
    path.write_bytes(evil + shown + good + moved + end)
    with zipfile.ZipFile(path) as read:
        assert read.read(f"model/{MODEL}") == saved()[MODEL]
    assert "two" in refused(path)
    assert not mark.exists()
    with contextlib.suppress(Exception):
        torch.export.load(path)
    assert mark.exists()


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "model.pt2", {**saved(), MODEL.upper(): saved()[MODEL]})
    assert "one name" in refused(path)


def test_threads_load_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, inside, most = write(tmp_path / "model.pt2", saved()), [0], [0]

    def loading(_: Path) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.1)
        inside[0] -= 1

    monkeypatch.setattr(torch.export, "load", loading)
    threads = [threading.Thread(target=archive.load, args=(path,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_no_variable_of_the_environment_lets_objects_be_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", raising=False)
    before = dict(os.environ)
    archive.load(write(tmp_path / "good.pt2", saved()))
    assert "pickled" in refused(write(tmp_path / "bad.pt2", as_inputs(tmp_path / "ran")))
    assert not (tmp_path / "ran").exists()
    assert dict(os.environ) == before


def test_what_the_caller_logs_stays_as_it_was(tmp_path: Path) -> None:
    logging.disable(logging.ERROR)
    try:
        archive.load(write(tmp_path / "model.pt2", saved()))
        assert logging.root.manager.disable == logging.ERROR
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("words", [["explain"], ["bisect", "--bad", "false"]])
def test_every_command_trusts_only_when_told(words: list[str], tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    path = write(tmp_path / "model.pt2", as_inputs(mark))
    assert "pickled" in command(words[0], path, *words[1:])
    assert not mark.exists()
    CliRunner().invoke(app, [words[0], str(path), *words[1:], "--trust"])
    assert mark.exists()


class Scaled(nn.Module):
    """Sizes with fractions in them, and names that only a text can hold."""

    def forward(self, given: dict[str, Tensor]) -> Tensor:
        x = given["an input"]
        return x * (x.shape[0] * 0.25) + given["b-2"] ** 0.5


def test_fractions_keys_and_files_of_the_user_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    args = ({"an input": X, "b-2": X},)
    sizes = ({"an input": {0: Dim.DYNAMIC}, "b-2": {0: Dim.DYNAMIC}},)
    program = torch.export.export(Scaled(), args, dynamic_shapes=sizes)
    extra = {"meta.json": '{"name": "my model v1"}', "notes.json": "plain", "ü.txt": "text"}
    torch.export.save(program, path, extra_files=extra)
    loaded = archive.load(path)
    torch.testing.assert_close(loaded.module()(*args), Scaled()(*args), equal_nan=True)


GUARDS = (
    "math.trunc(0.5*torch.sym_float(L['x'].size()[2])) == 4",
    "(64*L['x'].size()[1]) != (64*max(1, L['x'].size()[1] // 2))",
    "L['args'][0]['an input'].size()[0] >= 2 and L['mode'] == 'fast'",
)


@pytest.mark.parametrize("guard", GUARDS)
def test_guards_that_torch_writes_are_loaded(guard: str, tmp_path: Path) -> None:
    members = changed(MODEL, lambda data: data["guards_code"].append(guard))
    assert guard in archive.load(write(tmp_path / "model.pt2", members))._guards_code


CODE = ("torch.load('a')", "max.size.real", "L('x')()", "[x for x in L]", "f'{L}'", "math('a').b()")


@pytest.mark.parametrize("guard", CODE)
def test_other_guards_are_refused(guard: str, tmp_path: Path) -> None:
    members = changed(MODEL, lambda data: data["guards_code"].append(guard))
    assert "guard" in refused(write(tmp_path / "model.pt2", members))


def test_honest_archives_are_loaded(tmp_path: Path) -> None:
    program = archive.load(write(tmp_path / "model.pt2", saved()))
    torch.testing.assert_close(program.module()(X[:2]), program.module()(X[:2]))


def test_trusted_archives_are_loaded_whatever_they_hold(tmp_path: Path) -> None:
    path = write(tmp_path / "model.pt2", as_inputs(tmp_path / "ran"))
    with contextlib.suppress(ValueError):
        archive.load(path, trusted=True)
    assert (tmp_path / "ran").exists()


HUGE: dict[str, tuple[Members, int]] = {
    "zeros": ({"data/weights/weight_0": b"\0" * (80 << 20)}, zipfile.ZIP_DEFLATED),
    "spaces": ({MODEL: b" " * (80 << 20)}, zipfile.ZIP_DEFLATED),
    "quotes": ({MODEL: b'"' + b'\\"' * 300_000}, zipfile.ZIP_STORED),
    "brackets": ({MODEL: b"[" * 200_000}, zipfile.ZIP_STORED),
    "number": ({MODEL: b'{"a": ' + b"9" * 100_000 + b"}"}, zipfile.ZIP_STORED),
    "outside": ({"../../escaped": b"x"}, zipfile.ZIP_STORED),
}


@pytest.mark.parametrize("name", HUGE)
def test_bombs_are_refused(name: str, tmp_path: Path) -> None:
    members, kind = HUGE[name]
    refused(write(tmp_path / "model.pt2", {**saved(), **members}, kind))


@pytest.mark.parametrize(
    "power", ["Pow(Integer(10), Integer(1000000000))", "10**1000000000", "10^1000000000"]
)
def test_numbers_that_never_end_are_refused(power: str, tmp_path: Path) -> None:
    def change(data: Any) -> None:
        each(data, "expr_str")[0]["expr_str"] = power

    assert "arithmetic" in refused(write(tmp_path / "model.pt2", changed(MODEL, change)))


def damages(seed: int, whole: bytes) -> bytes:
    """The archive with one thing wrong with it."""
    rng, data = random.Random(seed), bytearray(whole)
    kind = rng.randrange(5)
    if kind == 0:
        return bytes(data[: rng.randrange(len(data))])
    if kind == 1:
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data)
    if kind == 2:
        at, count = rng.randrange(len(data)), rng.randint(1, 4096)
        return bytes(data[:at] + rng.randbytes(count) + data[at + count :])
    members = dict(saved())
    names = sorted(members)
    if kind == 3:
        del members[rng.choice(names)]
    else:
        a, b = rng.sample(names, 2)
        members[a], members[b] = members[b], members[a]
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(f"model/{name}", content)
    return file.getvalue()


def test_damaged_archives_are_told_in_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "model.pt2", saved())
    whole, refusals = path.read_bytes(), 0
    for seed in range(120):
        path.write_bytes(damages(seed, whole))
        try:
            archive.load(path)
        except ValueError as error:
            refusals += 1
            assert "\n" not in str(error), seed
            assert str(error).startswith(str(path)), seed
    assert refusals > 60


def command(*words: str | Path) -> str:
    """What a command that fails says: one line on stderr."""
    run = CliRunner().invoke(app, [str(word) for word in words])
    assert run.exit_code == 1, run.output
    lines = run.stderr.strip().splitlines()
    assert lines[-1].startswith("eqsat: ")
    assert not [line for line in lines if "Traceback" in line]
    return lines[-1]


WRONG = {
    "nothing": b"",
    "text": b"not an archive",
    "zip": b"PK\x05\x06" + b"\0" * 18,
    "half": b"PK\x03\x04" + b"x" * 1000,
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_leave_nothing_behind(name: str, tmp_path: Path) -> None:
    model = tmp_path / "model.pt2"
    model.write_bytes(WRONG[name])
    out = tmp_path / "out"
    out.mkdir()
    command("optimize", model, "-o", out / "fast.pt2", "--json", out / "report.json")
    assert list(out.iterdir()) == []


RULES = {
    "syntax": b"RULES = (",
    "binary": bytes(range(256)),
    "raises": b"raise RuntimeError('no')",
    "leaves": b"raise SystemExit(0)",
    "nothing": b"",
    "other": b"RULES = [1]",
    "endless": b"def f(): f()\nf()",
}


@pytest.mark.parametrize("name", RULES)
def test_wrong_rules_are_told_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(RULES[name])
    assert str(path) in command("rules", "--rules", path)


def test_the_help_says_that_rules_are_code() -> None:
    for name in ("optimize", "rules"):
        run = CliRunner(env={"COLUMNS": "200"}).invoke(app, [name, "--help"])
        assert "code, and it is run" in " ".join(run.output.split())


PROFILES = {
    "syntax": b"name = ",
    "binary": bytes(range(256)),
    "nothing": b"",
    "wrong": b"name = 'x'\nbandwidth = 'fast'\n",
    "nested": b"a = " + b"[" * 5_000 + b"]" * 5_000,
}


@pytest.mark.parametrize("name", PROFILES)
def test_wrong_profiles_are_told_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(PROFILES[name])
    assert str(path) in command("tune", "--show", path)


def test_damaged_profiles_never_raise_anything_else(tmp_path: Path) -> None:
    source = Path(archive.__file__).parent / "cost" / "devices" / "h200.toml"
    whole, path = source.read_bytes(), tmp_path / "mine.toml"
    for seed in range(150):
        rng, data = random.Random(seed), bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(bytes(data[: rng.randrange(len(data))] if seed % 3 == 0 else data))
        try:
            find(str(path))
        except ValueError as error:
            assert "\n" not in str(error), seed
