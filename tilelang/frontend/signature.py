"""Signatures of kernels, read from the tree, and specialisations: the choices under which a kernel is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilelang.diagnostics import Diagnostics, Span, nearest
from tilelang.dtypes import DTYPES
from tilelang.frontend import ast
from tilelang.frontend.env import Env, Unsupported, evaluate
from tilelang.frontend.values import POISON, Const, DType, DtypeParam, Index, Tuple, TypeForm, Val, dtype_text
from tilelang.ir import index as ix
from tilelang.ir.types import Scalar

STATIC_KINDS = ("int", "float", "bool", "str", "dtype")
TENSOR_ROLES = {"Tensor": "in", "InOut": "inout", "Symmetric": "symmetric"}
TENSOR_HELP = "write a tensor as f32[M, N] or Tensor[Float, M, N], a run-time scalar as f32, a compile-time value as int, float, bool, str or dtype"


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter. role: in or inout (tensors), scalar (run-time number), static (compile-time value). space: symmetric for memory of all ranks.

    dtype: of tensors and scalars, a Scalar or the name of a dtype parameter. dims: of tensors; index expressions of symbolic dims and of
    compile-time parameters. kind: of compile-time values, one of STATIC_KINDS. default: None when there is none. domain: of a tunable."""

    name: str
    span: Span
    role: str
    dtype: Scalar | str | None = None
    dims: tuple[ix.Expr, ...] = ()
    kind: str = ""
    default: Any = None
    domain: tuple[Any, ...] = ()
    keyword: bool = False
    has_default: bool = False
    space: str = "global"

    @property
    def is_tensor(self) -> bool:
        return self.role in ("in", "inout")


@dataclass(frozen=True, slots=True)
class Result:
    """A result tensor."""

    dtype: Scalar | str
    dims: tuple[ix.Expr, ...]
    span: Span


@dataclass(frozen=True)
class Signature:
    """Parameters and results of a function. dims: symbolic dims in order of appearance. dtype_params: name -> allowed dtypes.
    is_helper: a parameter has no annotation, so the function can only be inlined into others."""

    name: str
    params: tuple[Param, ...]
    results: tuple[Result, ...]
    dims: tuple[str, ...]
    dtype_params: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)
    is_helper: bool = False
    several: bool = False  # results were declared as a tuple

    @classmethod
    def of(cls, fn: ast.Function, env: Env, diagnostics: Diagnostics | None = None) -> Signature:
        """Reads the signature. Errors go to `diagnostics`; without one they are raised as TileError."""
        own = diagnostics or Diagnostics()
        made = _Reader(fn, env, own).read()
        if diagnostics is None:
            own.raise_if_errors()
        return made

    def param(self, name: str) -> Param | None:
        return next((p for p in self.params if p.name == name), None)

    @property
    def tensors(self) -> tuple[Param, ...]:
        return tuple(p for p in self.params if p.is_tensor)

    @property
    def statics(self) -> tuple[Param, ...]:
        return tuple(p for p in self.params if p.role == "static")

    @property
    def tunables(self) -> dict[str, tuple[Any, ...]]:
        return {p.name: p.domain for p in self.params if p.domain}

    def result_shape(self, i: int, spec: Specialization, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The lengths of a result for these dims (a negative one counts as 0). KeyError names a dim that is not given."""
        values = {**spec.integers, **spec.dims, **dims}
        return tuple(max(0, d.evaluate(values)) for d in self.results[i].dims)

    def result_dtype(self, i: int, spec: Specialization) -> Scalar:
        return spec.dtype(self.results[i].dtype)


@dataclass(frozen=True)
class Specialization:
    """The choices under which a kernel is built.

    dtypes: dtype parameter -> dtype. constants: compile-time parameter -> value. strides: tensor -> 'unit' (last stride 1) or 'any'
    (default unit). dims: symbolic dims made constant. facts: texts such as 'M % 16 == 0' that hold for all calls."""

    dtypes: Mapping[str, Scalar] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    strides: Mapping[str, str] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    facts: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, signature: Signature, dtypes: Mapping[str, Scalar] | None = None, constants: Mapping[str, Any] | None = None,
        strides: Mapping[str, str] | None = None, dims: Mapping[str, int] | None = None, facts: Iterable[str] = (),
    ) -> Specialization:  # fmt: skip
        """Fills in what is not given: the first dtype of each parameter, the defaults of compile-time values."""
        chosen = {name: (dtypes or {}).get(name, options[0]) for name, options in signature.dtype_params.items() if options}
        values = {p.name: p.default for p in signature.statics if p.has_default}
        return cls(chosen, {**values, **(constants or {})}, dict(strides or {}), dict(dims or {}), tuple(facts))

    @property
    def key(self) -> tuple[Any, ...]:
        """A hashable value that is equal for equal choices."""
        parts = (self.dtypes, self.constants, self.strides, self.dims)
        return (*(tuple(sorted((k, type(v).__name__, v if not isinstance(v, Scalar) else v.name) for k, v in p.items())) for p in parts), self.facts)

    @property
    def integers(self) -> dict[str, int]:
        """Compile-time values that may stand in dims."""
        return {k: v for k, v in self.constants.items() if isinstance(v, int) and not isinstance(v, bool)}

    def dtype(self, of: Scalar | str) -> Scalar:
        return of if isinstance(of, Scalar) else self.dtypes[of]

    def dims_of(self, dims: tuple[ix.Expr, ...]) -> tuple[ix.Expr, ...]:
        """Dims with constants put in."""
        values = {**self.integers, **self.dims}
        return tuple(d.substitute(values) for d in dims)


class _Reader:
    def __init__(self, fn: ast.Function, env: Env, diagnostics: Diagnostics) -> None:
        self.fn, self.env, self.diagnostics = fn, env, diagnostics
        self.names: dict[str, Val] = {}  # compile-time parameters, as symbols
        self.dtype_params: dict[str, tuple[Scalar, ...]] = {}
        self.dims: dict[str, None] = {}
        self.is_helper = False

    def read(self) -> Signature:
        statics = {p.name for p in self.fn.params if self.static_kind(p) is not None}
        self.names.update((name, Index(ix.sym(name))) for name in statics)
        seen: dict[str, Span] = {}
        params: list[Param] = []
        for p in self.fn.params:
            if p.name in seen:
                self.diagnostics.error("redefinition", p.span, name=p.name, previous="a parameter")
            seen[p.name] = p.span
            made = self.param(p)
            if made is not None:
                params.append(made)
        for p in params:
            if p.name in self.dims and p.name not in statics:
                self.diagnostics.error("redefinition", p.span, name=p.name, previous="a dim")
        broken = bool(self.diagnostics.errors)
        known = {str(d) for p in params for d in p.dims if isinstance(d, ix.Sym)} | statics
        results, several = self.results()
        if not self.is_helper:
            self.check_params(params, statics)
        if not (self.is_helper or broken or self.diagnostics.errors):
            self.check_bound(results, known)
        dims = tuple(d for d in self.dims if d not in statics)
        return Signature(self.fn.name, tuple(params), tuple(results), dims, self.dtype_params, self.is_helper, several)

    def check_params(self, params: list[Param], statics: set[str]) -> None:
        for p in params:
            for d in p.dims:
                if not isinstance(d, ix.Sym) and not d.symbols() <= statics:
                    what = f"the dim {d} of {p.name!r} is computed; a dim of a parameter is a symbolic dim or a constant"
                    self.diagnostics.error("annotation", p.span, what=what)

    def check_bound(self, results: list[Result], known: set[str]) -> None:
        for r in results:
            for d in r.dims:
                for name in sorted(d.symbols() - known):
                    self.diagnostics.error("result-dims-unbound", r.span, dim=name)

    # -- parameters

    def static_kind(self, p: ast.Param) -> str | None:
        """int, float, bool, str or dtype when the annotation says so."""
        value = self.name_value(p.annotation)
        return value.name if isinstance(value, TypeForm) and value.name in STATIC_KINDS else None

    def name_value(self, node: ast.Expr | None) -> Val | None:
        """What a name (or tl.name) in an annotation stands for."""
        if isinstance(node, ast.Name):
            try:
                return self.env.lookup(node.id)
            except Unsupported:
                return None
        if isinstance(node, ast.Attribute):
            value = evaluate(node, self.env, Diagnostics())
            return value if value is not POISON else None
        return None

    def param(self, p: ast.Param) -> Param | None:
        keyword = p.kind == "keyword"
        if p.annotation is None:
            if p.default is not None:
                value = evaluate(p.default, self.env, self.diagnostics)
                if isinstance(value, (Const, DType)):
                    kind = "dtype" if isinstance(value, DType) else type(value.value).__name__
                    default = value.scalar if isinstance(value, DType) else value.value
                    self.is_helper = True
                    return Param(p.name, p.span, "static", kind=kind, default=default, keyword=keyword, has_default=True)
            self.is_helper = True
            return Param(p.name, p.span, "helper", keyword=keyword)
        kind = self.static_kind(p)
        if kind is not None:
            return self.static(p, kind, keyword)
        found = self.annotation(p.annotation, f"the parameter {p.name!r}", p.annotation.span)
        if found is None:
            return None
        role, dtype, dims = found
        space = "global"
        if role == "symmetric":
            role, space = "inout", role
        if p.default is not None:
            self.error(p.default.span, f"the parameter {p.name!r} is a {'tensor' if role != 'scalar' else 'run-time scalar'} and has no default", "remove it")
        return Param(p.name, p.span, role, dtype, dims, keyword=keyword, space=space)

    def static(self, p: ast.Param, kind: str, keyword: bool) -> Param:
        domain: tuple[Any, ...] = ()
        if p.default is None:
            return Param(p.name, p.span, "static", kind=kind, keyword=keyword)
        if isinstance(p.default, ast.Call) and isinstance(self.name_value(p.default.func), TypeForm):
            call = p.default
            if call.kwargs or not call.args:
                self.diagnostics.error("wrong-arguments", call.span, function="tune", what="takes the values worth trying, as in tune(64, 128)")
            domain = tuple(self.constant(node, kind, p.name) for node in call.args)
            return Param(p.name, p.span, "static", kind=kind, default=domain[0] if domain else None, domain=domain, keyword=keyword, has_default=bool(domain))
        default = self.constant(p.default, kind, p.name)
        return Param(p.name, p.span, "static", kind=kind, default=default, keyword=keyword, has_default=True)

    def constant(self, node: ast.Expr, kind: str, name: str) -> Any:
        """A default or a value of a domain, of the annotated kind."""
        value = evaluate(node, self.env, self.diagnostics)
        found: Any = value.scalar if isinstance(value, DType) else value.value if isinstance(value, Const) else None
        if value is POISON:
            return {"int": 1, "float": 1.0, "bool": False, "str": "", "dtype": Scalar("f32")}[kind]
        if not fits_kind(found, kind):
            self.diagnostics.error("wrong-type", node.span, what=f"the value of {name!r}", found=value.describe(), expected=KINDS[kind])
        return float(found) if kind == "float" and isinstance(found, int) else found

    # -- types

    def error(self, span: Span, what: str, help: str | None = None) -> None:
        self.diagnostics.error("annotation", span, help=help, what=what)

    def annotation(self, node: ast.Expr, who: str, span: Span) -> tuple[str, Scalar | str, tuple[ix.Expr, ...]] | None:
        """(role, dtype, dims) of a tensor or scalar annotation."""
        value = self.name_value(node)
        if isinstance(value, (DType, DtypeParam)):
            return "scalar", self.dtype_of(value), ()
        if isinstance(node, ast.Subscript):
            base = self.name_value(node.base)
            if isinstance(base, (DType, DtypeParam)):
                return "in", self.dtype_of(base), self.dim_list(node.items)
            if isinstance(base, TypeForm) and base.name in TENSOR_ROLES:
                return self.tensor(node, base.name)
        text = node.span.text
        near = nearest(text.partition("[")[0], [*DTYPES, *TENSOR_ROLES]) if isinstance(node, (ast.Name, ast.Subscript)) else None
        hint = f"did you mean {near!r}?" if near and value is None else TENSOR_HELP
        self.error(span, f"{who} has the annotation '{text}', which is not a type of the language", hint)
        return None

    def tensor(self, node: ast.Subscript, form: str) -> tuple[str, Scalar | str, tuple[ix.Expr, ...]] | None:
        role = TENSOR_ROLES[form]
        first = self.name_value(node.items[0]) if node.items else None
        if isinstance(first, TypeForm) and first.name == "bool":
            first = DType(Scalar("bool"))
        if not isinstance(first, (DType, DtypeParam)):
            at = node.items[0].span if node.items else node.span
            self.error(at, f"{form} starts with a dtype, found '{at.text}'", f"write {form}[f32, M, N]")
            return None
        return role, self.dtype_of(first), self.dim_list(node.items[1:])

    def dtype_of(self, value: DType | DtypeParam) -> Scalar | str:
        if isinstance(value, DType):
            return value.scalar
        self.dtype_params[value.name] = value.options
        return value.name

    def dim_list(self, nodes: list[ast.Expr]) -> tuple[ix.Expr, ...]:
        out: list[ix.Expr] = []
        for node in nodes:
            if isinstance(node, ast.TupleExpr) and not node.items:
                continue
            value = evaluate(node, self.env, self.diagnostics, self.names)
            if value is POISON:
                out.append(ix.sym("_"))
            elif isinstance(value, Const) and type(value.value) is int and value.value >= 0:
                out.append(ix.const(value.value))
            elif isinstance(value, Index):
                out.append(value.expr)
                self.dims.update(dict.fromkeys(sorted(value.expr.symbols())))
            else:
                found = value.describe() if not isinstance(value, Tuple) else "a tuple"
                self.error(node.span, f"a dim of the tensor is {found}, expected a symbolic dim or an integer of at least 0")
        return tuple(out)

    def results(self) -> tuple[list[Result], bool]:
        node = self.fn.result
        if node is None or isinstance(node, ast.NoneLiteral):
            return [], False
        items, several = [node], False
        if isinstance(node, ast.Subscript):
            base = self.name_value(node.base)
            if isinstance(base, TypeForm) and base.name == "tuple":
                items, several = list(node.items), True
        out: list[Result] = []
        for item in items:
            found = self.annotation(item, "the result", item.span)
            if found is None:
                continue
            role, dtype, dims = found
            if role in ("inout", "symmetric"):
                form = "InOut" if role == "inout" else "Symmetric"
                self.error(item.span, f"a result is a new tensor, {form} is for parameters", "write Tensor[...]")
            out.append(Result(dtype, dims, item.span))
        return out, several


KINDS = {"int": "an integer", "float": "a number", "bool": "True or False", "str": "a string", "dtype": "a dtype"}


def fits_kind(value: Any, kind: str) -> bool:
    """Whether a Python value may be given for a compile-time parameter of this kind."""
    match kind:
        case "int":
            return type(value) is int
        case "float":
            return type(value) in (int, float)
        case "bool":
            return type(value) is bool
        case "str":
            return isinstance(value, str)
        case _:
            return isinstance(value, Scalar)


def check_constants(signature: Signature, constants: Mapping[str, Any], diagnostics: Diagnostics) -> None:
    """Reports constants that no parameter has, of the wrong kind, or outside a tunable's domain; and parameters without a value."""
    names = [p.name for p in signature.statics]
    for name, value in constants.items():
        param = signature.param(name)
        if param is None or param.role != "static":
            near = nearest(name, names)
            diagnostics.error("unknown-name", None, help=f"did you mean {near!r}?" if near else None, name=name)
        elif not fits_kind(value, param.kind):
            diagnostics.error("wrong-type", param.span, what=f"the value of {name!r}", found=repr(value), expected=KINDS[param.kind])
        elif param.domain and not any(type(value) is type(d) and value == d for d in param.domain):
            shown = [dtype_text(d) if isinstance(d, Scalar) else repr(d) for d in param.domain]
            diagnostics.error("tunable-domain", param.span, name=name, value=value, domain=", ".join(shown))
    for p in signature.statics:
        if p.name not in constants:
            diagnostics.error("wrong-arguments", p.span, function=signature.name, what=f"needs a value for the compile-time parameter {p.name!r}")
