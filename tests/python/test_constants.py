"""C, C++ and Python have the same constants: the header of the C interface is the table."""

import pathlib
import re

import pytest
import tensorkv as mx
from tensorkv import _core, errors

ROOT = pathlib.Path(__file__).parents[2]


def enums():
    """Return {enum: {enumerator without TKV_: number}} of tkv.h."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "tkv" / "tkv.h").read_text(), flags=re.DOTALL)
    found = {}
    for name, body in re.findall(r"typedef enum (\w+)[^{]*\{(.*?)\}", text, re.DOTALL):
        found[name] = {}
        for enumerator in filter(None, map(str.strip, body.split(","))):
            key, number = re.fullmatch(r"TKV_(\w+) = (\d+)", enumerator).groups()
            found[name][key] = int(number)
    return found


C = enums()
# enum of tkv.h: (header, enum there)
CPP = {
    "tkv_code": ("error.h", "Code"),
    "tkv_dtype": ("dtype.h", "DType"),
    "tkv_device": ("context.h", "DeviceKind"),
    "tkv_op": ("ops.h", "BinaryOp"),
    "tkv_row_kind": ("rows.h", "Kind"),
    "tkv_row_score": ("rows.h", "Score"),
}
SHORT = {"f": "float", "i": "int", "u": "uint", "c": "complex", "bf": "bfloat"}
OPERATORS = {
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "equal": "eq",
    "not_equal": "ne",
}


def cpp(header, enum):
    """Return {enumerator in small letters without k: number} of a header in C++."""
    text = re.sub(r"//.*", "", (ROOT / "include" / "tkv" / header).read_text())
    body = re.search(rf"enum class {enum}\b[^{{]*{{(.*?)}}", text, re.DOTALL)[1]
    found = {}
    for enumerator in filter(None, map(str.strip, body.split(","))):
        name, _, number = enumerator.partition(" = ")
        found[name[1:].lower()] = int(number) if number else len(found)
    return found


def numpy_name(name):
    """Return NumPy's name of a dtype, of its name in C."""
    kind, bits, rest = re.fullmatch(r"([A-Z]+)(\d*)(\w*)", name).groups()
    return SHORT.get(kind.lower(), kind.lower()) + bits + ("_" + rest.lower() if rest else "")


def small(name):
    """Return a name of C as C++ has it, in small letters."""
    return re.sub("^(ROW|SCORE)_|_", "", name).lower()


def test_every_enum_of_c_is_compared():
    assert set(C) == set(CPP) and all(C.values())


@pytest.mark.parametrize("enum", CPP)
def test_cpp_has_the_numbers_of_c(enum):
    numbers = {small(name): number for name, number in C[enum].items() if name != "OK"}
    assert cpp(*CPP[enum]) == numbers


def test_python_has_the_codes_of_c():
    codes = {name.title().replace("_", ""): number for name, number in C["tkv_code"].items() if name != "OK"}
    assert _core._error_codes() == codes
    classes = [getattr(errors, name) for name in errors.__all__ if name not in ("KVError", "MXNetError")]
    assert {cls.code for cls in classes} == set(codes.values())


def test_python_has_the_dtypes_of_c():
    names = {numpy_name(name) for name in C["tkv_dtype"]}
    assert {"float32", "bfloat16", "float8_e4m3fn", "bool", "complex64"} <= names
    assert {mx.nd.empty((1,), dtype=name).dtype_name for name in names} == names


def test_python_has_the_devices_of_c():
    assert {mx.Context(name.lower()).device_typeid for name in C["tkv_device"]} == set(C["tkv_device"].values())


def test_python_has_the_operators_of_c():
    assert _core._BINARY_OPS == {OPERATORS.get(n.lower(), n.lower()): number for n, number in C["tkv_op"].items()}
