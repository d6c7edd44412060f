"""Tensors find their place by their names, and the bytes of a plan follow them."""

from dataclasses import replace

import pytest

from shardwright_planner import PlanInputError, model_from_config
from shardwright_planner.layout import Layout
from shardwright_planner.tensor_bytes import (
    Bulk,
    Tensor,
    TensorBytes,
    header_tensors,
    tensor_bytes,
)
from shardwright_planner.weights import WeightTable


def one(name, dtype="BF16", elements=8, size=16):
    return Tensor(name=name, dtype=dtype, elements=elements, stored_bytes=size)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        pytest.param("model.layers.1.self_attn.q_proj.weight", "layers", id="llama"),
        pytest.param("language_model.model.layers.1.mlp.up_proj.weight", "layers", id="wrapped"),
        pytest.param("transformer.h.1.attn.c_attn.weight", "layers", id="gpt-2"),
        pytest.param("backbone.layers.1.mixer.in_proj.weight", "layers", id="mamba"),
        pytest.param("model.layers.1.mlp.experts.7.up_proj.weight", "experts", id="expert"),
        pytest.param("model.layers.1.block_sparse_moe.experts.0.w1.weight", "experts", id="mixtral"),
        pytest.param("model.layers.1.mlp.experts.gate_up_proj_blocks", "experts", id="gpt-oss"),
        pytest.param("model.layers.1.mlp.shared_experts.up_proj.weight", "layers", id="shared expert"),
        pytest.param("model.layers.2.eh_proj.weight", None, id="beyond the last layer"),
        pytest.param("mtp.layers.0.mlp.up_proj.weight", None, id="multi-token prediction"),
        pytest.param("model.embed_tokens.weight", "embedding", id="embedding"),
        pytest.param("transformer.wte.weight", "embedding", id="embedding of gpt-2"),
        pytest.param("lm_head.weight", "head", id="head"),
        pytest.param("vision_tower.encoder.layers.1.mlp.fc1.weight", "tower", id="tower"),
        pytest.param("visual.blocks.1.attn.qkv.weight", "tower", id="tower of qwen"),
        pytest.param("model.norm.weight", None, id="final norm"),
    ],
)
def test_place_of_a_name(name, place):
    found = tensor_bytes([one(name)], 2)
    bulk = Bulk(elements=8)
    want = {"layers": (Bulk(), bulk), "experts": (Bulk(), bulk)}.get(place, bulk)
    names = ("layers", "experts", "embedding", "head", "tower")
    empty = {"layers": (Bulk(), Bulk()), "experts": (Bulk(), Bulk())}
    assert {n: getattr(found, n) for n in names} == {
        n: want if n == place else empty.get(n, Bulk()) for n in names
    }
    assert found.total_bytes == 16


@pytest.mark.parametrize(
    ("name", "dtype", "want"),
    [
        pytest.param("model.layers.0.a.weight", "F32", Bulk(elements=8), id="floats are cast"),
        pytest.param("model.layers.0.a.weight", "F8_E4M3", Bulk(fixed_bytes=16), id="eight bits stay"),
        pytest.param("model.layers.0.a.qweight", "I32", Bulk(fixed_bytes=16), id="packed integers stay"),
        pytest.param("model.layers.0.a.weight_scale_inv", "F32", Bulk(fixed_bytes=16), id="scales stay"),
        pytest.param("model.layers.0.a.scales", "F16", Bulk(fixed_bytes=16), id="scales of GPTQ stay"),
    ],
)
def test_what_is_cast_and_what_stays(name, dtype, want):
    assert tensor_bytes([one(name, dtype)], 1).layers == (want,)


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        pytest.param("BF16", [3, 5], 30, id="two bytes"),
        pytest.param("F8_E5M2", [3, 5], 15, id="one byte"),
        pytest.param("F4", [3, 5], 8, id="half a byte, rounded up"),
        pytest.param("F32", [], 4, id="a scalar"),
    ],
)
def test_bytes_of_a_header_entry(dtype, shape, size):
    header = {"__metadata__": {"format": "pt"}, "a": {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}}
    (found,) = header_tensors(header, "file")
    assert found.stored_bytes == size


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(7, id="a number"),
        pytest.param({"dtype": "BF16"}, id="no shape"),
        pytest.param({"dtype": "BF17", "shape": [1]}, id="no such type"),
        pytest.param({"dtype": "BF16", "shape": [-1]}, id="a negative side"),
        pytest.param({"dtype": "BF16", "shape": ["8"]}, id="a side of text"),
        pytest.param({"dtype": "BF16", "shape": [2**59, 2**59]}, id="an absurd size"),
    ],
)
def test_headers_that_are_none_are_refused_by_name(entry):
    with pytest.raises(PlanInputError, match=r"'part.safetensors'.*its entry 'a'"):
        header_tensors({"a": entry}, "part.safetensors")


CONFIG = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
}
DENSE = 512 * 512 * 2 + 512 * 256 * 2 + 8 * 512 + 2 * 512 + 2 * 64
EXPERTS = 8 * 3 * 512 * 256


def table(tensors, **changed):
    facts = model_from_config({**CONFIG, **changed}, name="test")
    return WeightTable(replace(facts, tensor_bytes=tensors), 2)


def measured(dense=DENSE, experts=EXPERTS):
    ends = Bulk(elements=4096 * 512)
    layer, routed = Bulk(elements=dense), Bulk(elements=experts)
    return TensorBytes(
        layers=(layer, layer), experts=(routed, routed), embedding=ends, head=ends, total_bytes=1
    )


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(Layout(tensor=1), id="one GPU"),
        pytest.param(Layout(tensor=4), id="four ranks"),
        pytest.param(Layout(tensor=4, expert=True), id="whole experts"),
    ],
)
def test_tensors_as_the_config_says_change_nothing(layout):
    counts = (2,)
    assert table(measured()).stage_bytes(layout, 0, counts) == table(None).stage_bytes(layout, 0, counts)


def test_heavier_experts_weigh_on_their_ranks_alone():
    plain, heavy = table(None), table(measured(experts=EXPERTS * 5 // 4))
    layout = Layout(tensor=4, expert=True)
    (before,), (after,) = plain.costs(layout), heavy.costs(layout)
    assert after.read_bytes == before.read_bytes
    assert after.expert_bytes == before.expert_bytes * 5 // 4


def test_the_size_of_the_whole_scales_everything():
    base = table(None)
    size = base.total_bytes()
    found = table(TensorBytes(total_bytes=size * 6 // 5))
    (before,), (after,) = base.costs(Layout(tensor=1)), found.costs(Layout(tensor=1))
    assert after.resident_bytes == pytest.approx(before.resident_bytes * 1.2, rel=1e-3)


def test_tensors_of_another_model_are_refused():
    with pytest.raises(PlanInputError, match=r"weigh 3\.00 times what the config says"):
        table(measured(dense=3 * DENSE))
