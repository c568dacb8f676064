"""Linear layers through oneDNN: where, the same numbers as torch's own, and never in what the gates compare with."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from longdoc.errors import NotShardableError
from longdoc.model import onednn_linear
from longdoc.model.gates import check_shardable
from longdoc.model.load import load_model
from longdoc.model.local import LocalModel
from longdoc.model.onednn_linear import use_onednn
from longdoc.model.passes import LOCAL_ATTENTION, whole_pass
from longdoc.model.tiling import tiles_of
from longdoc.ring.kernels import onednn

AMD = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2 avx512f avx512bw\n"

needs_onednn = pytest.mark.skipif(not onednn.has_onednn(), reason="this torch has no oneDNN")


@pytest.fixture(autouse=True)
def processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Let the machine be another one, at first one on which oneDNN is the better choice."""

    def be(cpuinfo: str) -> None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
        onednn._is_held_back.cache_clear()

    monkeypatch.setattr(onednn, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    be(AMD)
    return be


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the weights that went through oneDNN so far."""
    shapes: list[tuple[int, ...]] = []

    def product(a_MK: Tensor, b_NK: Tensor, bias_N: Tensor | None) -> Tensor:
        shapes.append(tuple(b_NK.shape))
        return onednn.product(a_MK, b_NK, bias_N)

    monkeypatch.setattr(onednn_linear, "product", product)
    return shapes


def linear(num_inputs: int = 48, num_outputs: int = 40, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(num_inputs, num_outputs, bias=bias).requires_grad_(False)


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        (AMD, True),
        (AMD.replace("AuthenticAMD", "HygonGenuine"), True),
        (AMD.replace("AuthenticAMD", "GenuineIntel"), False),
        (AMD.replace("avx512f ", ""), False),
        ("processor\t: 0\nCPU implementer\t: 0x41\nFeatures\t: fp asimd sve\n", False),
        (AMD + "\n" + AMD.replace("AuthenticAMD", "GenuineIntel"), True),
        ("", False),
    ],
    ids=["amd", "hygon", "intel", "amd-without-avx512", "arm", "the-first-processor-counts", "silent"],
)
def test_the_processor_decides(processor: Callable[[str], None], cpuinfo: str, expected: bool) -> None:
    processor(cpuinfo)
    assert onednn.outruns_mkl() is (expected and onednn.has_onednn())


@pytest.mark.parametrize("lacks", ["mkl", "mkldnn", "cpuinfo"])
def test_without_one_of_the_libraries_nothing_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lacks: str
) -> None:
    if lacks == "cpuinfo":
        monkeypatch.setattr(onednn, "_CPUINFO", tmp_path / "none")
    else:
        monkeypatch.setattr(getattr(torch.backends, lacks), "is_available", lambda: False)
    layer = linear()
    assert use_onednn(layer) == 0
    assert "forward" not in vars(layer)


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shape", "num_products"),
    [((1, 300, 576), 2), ((2, 5, 16, 576), 2), ((16, 576), 1), ((1, 15, 576), 0), ((576,), 0), ((1, 2100, 576), 4)],
)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_products_are_as_close_to_float64_as_torchs_own(
    products: list[tuple[int, ...]],
    bias: bool,
    shape: tuple[int, ...],
    num_products: int,
    mode: Callable[[], torch.no_grad],
) -> None:
    layer = linear(576, 200, bias=bias)
    with mode():
        x = torch.randn(shape)
        exact = nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double() if bias else None)
        plain = layer(x)
        assert use_onednn(layer) == 1
        found = layer(input=x)
    assert products == num_products * [(200, 576)]
    assert found.shape == plain.shape
    # K · 2^-24 · Σ|x w| bounds a sum of K products in float32; in blocks of them it is far less.
    bound = 16 * 2**-24 * (x.double().abs() @ layer.weight.double().abs().T + 1)
    assert ((found - exact).abs() <= bound).all()
    assert (found - exact).abs().max() <= 2 * (plain - exact).abs().max() + 1e-6


@needs_onednn
def test_inputs_that_lie_apart_are_read_as_they_are_meant(products: list[tuple[int, ...]]) -> None:
    layer, x = linear(), torch.randn(48, 20).T
    wanted = layer(x)
    use_onednn(layer)
    torch.testing.assert_close(layer(x), wanted, rtol=1e-5, atol=1e-6)
    wide = torch.randn(1, 64, 60)
    torch.testing.assert_close(
        layer(wide[..., :48][:, ::2]), nn.functional.linear(wide[0, ::2, :48], layer.weight, layer.bias)[None]
    )
    assert len(products) == 2


@needs_onednn
def test_onednn_sees_few_numbers_of_rows_whatever_the_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    # It compiles code for each and keeps it: 1 GB after 240 documents.
    seen: set[int] = set()

    def product(a_MK: Tensor, b_NK: Tensor, bias_N: Tensor | None) -> Tensor:
        seen.add(len(a_MK))
        return onednn.product(a_MK, b_NK, bias_N)

    monkeypatch.setattr(onednn_linear, "product", product)
    layer, x = linear(8, 8), torch.randn(5000, 8)
    use_onednn(layer)
    for num_rows in range(0, 5000, 7):
        layer(x[:num_rows])
    assert seen == {16, 32, 64, 128, 256, 512, 1024}


@needs_onednn
def test_what_onednn_cannot_do_torch_does(products: list[tuple[int, ...]]) -> None:
    layer = linear()
    use_onednn(layer)
    assert layer(torch.empty(1, 0, 48)).shape == (1, 0, 40)
    wanting = torch.randn(16, 48, requires_grad=True)
    layer(wanting).sum().backward()
    torch.testing.assert_close(wanting.grad, layer.weight.sum(dim=0).expand(16, 48), rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="dtype"):
        layer(torch.randn(16, 48, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        layer(torch.randn(16, 96))
    assert products == []


@needs_onednn
def test_nan_and_infinity_come_through() -> None:
    layer, x = linear(), torch.ones(16, 48)
    x[0, 5], x[1, 5] = torch.nan, torch.inf
    use_onednn(layer)
    assert layer(x).isfinite().all(dim=1).tolist() == [False, False, *[True] * 14]


@needs_onednn
def test_only_plain_float32_layers_that_nobody_changed_are_replaced() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    hooked, before, wrapped, apart = linear(), linear(), linear(), linear()
    hooked.register_forward_hook(lambda *_: None)
    before.register_forward_pre_hook(lambda *_: None)
    wrapped.forward = wrapped.forward
    apart.weight = nn.Parameter(torch.randn(48, 40).T, requires_grad=False)
    halved = [linear().to(dtype) for dtype in (torch.float64, torch.bfloat16)]
    others = [Scaled(48, 40), nn.Bilinear(48, 48, 40), hooked, before, wrapped, apart, *halved]
    kept = [vars(other).get("forward") for other in others]
    assert use_onednn(nn.ModuleList([*others, linear()])) == 1
    assert [vars(other).get("forward") for other in others] == kept


@needs_onednn
def test_a_copy_of_a_layer_has_its_own_weights() -> None:
    layer, x = linear(), torch.randn(16, 48)
    use_onednn(layer)
    other = copy.deepcopy(layer)
    other.weight.zero_()
    assert torch.equal(other(x), layer.bias.expand(16, 40))
    assert not torch.equal(layer(x), other(x))


@needs_onednn
def test_a_model_for_the_ring_goes_through_onednn_with_its_head_and_keeps_its_weights(
    tiny_model: LocalModel, products: list[tuple[int, ...]]
) -> None:
    model = load_model(tiny_model, dtype=torch.float32)
    plain = load_model(tiny_model, dtype=torch.float32, attention="sdpa")
    assert list(model.module.state_dict()) == list(plain.module.state_dict())
    hidden_TC = torch.randn(16, model.embedding_size)
    torch.testing.assert_close(model.logits(hidden_TC), plain.logits(hidden_TC), rtol=1e-4, atol=1e-5)
    assert products == [(model.vocab_size, model.embedding_size)], "the head, and with transformers' attention not"
    for dtype in (torch.float64, torch.bfloat16):
        load_model(tiny_model, dtype=dtype).logits(hidden_TC.to(dtype))
    assert len(products) == 1


@needs_onednn
def test_passes_in_one_piece_never_go_through_onednn(tiny_model: LocalModel, products: list[tuple[int, ...]]) -> None:
    model = load_model(tiny_model, dtype=torch.float32)
    for attention in ("eager", LOCAL_ATTENTION):
        hidden_TC = whole_pass(model, torch.arange(16), torch.arange(16), attention)
    with tiles_of(model.module, None):
        model.logits(hidden_TC)
    assert products == []
    model.logits(hidden_TC)
    assert len(products) == 1, "afterwards the layers are as they were"


@needs_onednn
@pytest.mark.parametrize("where", ["layers", "head"])
def test_the_gate_finds_a_wrong_product(tiny_model: LocalModel, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    model = load_model(tiny_model, dtype=torch.float32)
    assert 0 < check_shardable(model) < 1e-4

    def wrong(a_MK: Tensor, b_NK: Tensor, bias_N: Tensor | None) -> Tensor:
        is_head = len(b_NK) == model.vocab_size
        return onednn.product(a_MK, b_NK, bias_N) * (1.05 if is_head == (where == "head") else 1)

    monkeypatch.setattr(onednn_linear, "product", wrong)
    with pytest.raises(NotShardableError, match="its log-probabilities differ"):
        check_shardable(model)
