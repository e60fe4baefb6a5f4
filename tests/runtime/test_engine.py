from __future__ import annotations

import ctypes
import gc
import math
import threading
import weakref

import pytest

from tilelang.backends.cpu.engine import EngineError, assembly, compile_object, load_object
from tilelang.target import get_target, host_target

I64 = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
F64 = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)


def plus(n: int) -> str:
    return f"@bias = internal global i64 {n}\n" + (
        "define i64 @f(i64 %x) {\n  %b = load i64, ptr @bias\n  %r = add i64 %x, %b\n  ret i64 %r\n}\n"
    )


@pytest.mark.parametrize("opt", [0, 1, 2, 3])
@pytest.mark.parametrize("passes", ["none", "O1", "O2", "O3"])
def test_compile_and_run(opt: int, passes: str) -> None:
    module = load_object(compile_object(plus(7), host_target(), opt=opt, passes=passes))  # pyright: ignore[reportArgumentType]
    assert I64(module.address("f"))(35) == 42


def test_object_runs_on_the_host_when_built_for_a_smaller_cpu() -> None:
    host = host_target()
    cpu = "x86-64" if host.triple.startswith("x86") else "generic"
    module = load_object(compile_object(plus(1), get_target("cpu", cpu=cpu)))
    assert I64(module.address("f"))(1) == 2


def test_libm_and_global_data() -> None:
    ir = """
    declare double @erf(double)
    declare double @llvm.exp.f64(double)
    @environ = external global ptr
    @value = global i64 11
    define double @f(double %x) {
      %a = call double @erf(double %x)
      %b = call double @llvm.exp.f64(double %a)
      ret double %b
    }
    define i64 @has_environ(i64 %x) {
      %p = load ptr, ptr @environ
      %i = ptrtoint ptr %p to i64
      ret i64 %i
    }
    """

    module = load_object(compile_object(ir, host_target()))
    assert F64(module.address("f"))(0.5) == pytest.approx(math.exp(math.erf(0.5)), rel=1e-15)
    assert I64(module.address("has_environ"))(0) != 0
    assert ctypes.c_int64.from_address(module.address("value")).value == 11


def test_parse_error_shows_numbered_lines() -> None:
    with pytest.raises(EngineError) as caught:
        compile_object("define i32 @f() {\n  %x = add i32 1, %y\n  ret i32 %x\n}\n", host_target())
    assert "undefined value '%y'" in caught.value.message
    assert ">     2 |   %x = add i32 1, %y" in caught.value.lines and caught.value.lines in str(caught.value)


def test_verifier_error_shows_numbered_lines() -> None:
    ir = "define i32 @f(i1 %c) {\nentry:\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n  br label %b\nb:\n  ret i32 %x\n}"
    with pytest.raises(EngineError, match="does not dominate") as caught:
        assembly(ir, host_target())
    assert ">     5 |" in caught.value.lines and ">     8 |" in caught.value.lines and ">     6" not in caught.value.lines


def test_undefined_symbols_are_named() -> None:
    ir = "declare void @no_such_thing()\ndefine void @f() {\n  call void @no_such_thing()\n  ret void\n}\n"
    data = compile_object(ir, host_target())
    with pytest.raises(EngineError, match="undefined symbols no_such_thing"):
        load_object(data)
    one = load_object(compile_object(plus(1), host_target()))
    assert load_object(data, {"no_such_thing": one.address("f")}).address("f")
    with pytest.raises(EngineError, match="no symbol 'g'"):
        one.address("g")


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="not a CPU"):
        compile_object(plus(1), get_target("ascend910b"))
    with pytest.raises(ValueError, match="opt=9"):
        compile_object(plus(1), host_target(), opt=9)
    with pytest.raises(ValueError, match="passes="):
        compile_object(plus(1), host_target(), passes="O9")  # pyright: ignore[reportArgumentType]
    with pytest.raises(EngineError, match="cannot load"):
        load_object(b"not an object")


def test_assembly_uses_the_cpu() -> None:
    ir = "define <16 x float> @f(<16 x float> %x, <16 x float> %y) {\n  %r = fadd <16 x float> %x, %y\n  ret <16 x float> %r\n}\n"
    assert "zmm" in assembly(ir, get_target("cpu", cpu="x86-64-v4"))
    haswell = assembly(ir, get_target("cpu", cpu="haswell"))
    assert "ymm" in haswell and "zmm" not in haswell
    assert "fadd\tv0.4s" in assembly(ir, get_target("cpu", cpu="neoverse-v1"))


def test_many_modules_with_the_same_names_and_collection() -> None:
    target = host_target()
    modules = [load_object(compile_object(plus(i), target)) for i in range(60)]
    dead = [weakref.ref(module._tracker) for module in modules[::2]]  # pyright: ignore[reportPrivateUsage]
    modules = modules[1::2]
    gc.collect()
    assert all(ref() is None for ref in dead)
    assert [I64(module.address("f"))(0) for module in modules] == list(range(1, 60, 2))


def test_many_python_threads() -> None:
    target = host_target()
    results: dict[int, int] = {}

    def work(n: int) -> None:
        for i in range(n, n + 10):
            module = load_object(compile_object(plus(i), target))
            results[i] = I64(module.address("f"))(1)

    threads = [threading.Thread(target=work, args=(10 * n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: i + 1 for i in range(60)}
