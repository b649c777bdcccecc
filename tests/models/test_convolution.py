"""Convolution by patches and pooling against XLA's own."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, tree

import holdfast as hf
from holdfast.models import convolution, convolve, convolve_patches, max_pool
from holdfast.models.convolution import convolution_by

LAYOUT = ("NHWC", "HWIO", "NHWC")
CASES = [  # kernel, strides, padding
    ((1, 1), (2, 2), "VALID"),
    ((3, 3), (1, 1), "SAME"),
    ((3, 2), (2, 1), "SAME"),
    ((2, 3), (2, 3), "VALID"),
    ((5, 5), (3, 2), ((2, 1), (0, 3))),
]


def random(seed, *shape, dtype=np.float32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def value_and_slopes(function, *arguments):
    value, back = jax.vjp(function, *arguments)
    slope = jnp.cos(jnp.arange(value.size, dtype=value.dtype)).reshape(value.shape)
    return value, *back(slope)


def assert_equal_to_rounding(dtype, tolerance):
    x = random(0, 2, 9, 8, 3, dtype=dtype)
    kernels = [random(1, *size, 3, 4, dtype=dtype) for size, _, _ in CASES]

    @jax.jit
    def both(x, kernels):
        def run(by, kernel, strides, padding):
            return value_and_slopes(
                lambda x, k: convolution_by(by)(x, k, strides, padding, dimension_numbers=LAYOUT),
                x,
                kernel,
            )

        return [
            [run(by, kernel, *case[1:]) for by in ("patches", "xla")]
            for kernel, case in zip(kernels, CASES, strict=True)
        ]

    for (found, expected), case in zip(both(x, kernels), CASES, strict=True):
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == dtype
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=str(case))


def test_value_and_gradient_are_those_of_xla_in_float32():
    assert_equal_to_rounding(np.float32, 1e-4)


def test_value_and_gradient_are_those_of_xla_in_float64(x64):
    assert_equal_to_rounding(np.float64, 1e-11)


@pytest.mark.parametrize(
    ("examples", "window", "padding", "channels", "pooled"),
    [
        (6, 3, "VALID", (2, 4), False),
        # Blocks of three: the last overlaps the one before.
        (7, 3, "VALID", (2, 4), True),
        (7, 3, "SAME", (8, 9), True),
        (6, 5, "VALID", (9, 8), False),
        (7, 5, ((2, 1), (0, 3)), (8, 8), True),
    ],
)
def test_blocks_of_images_give_the_same(
    x64, monkeypatch, examples, window, padding, channels, pooled
):
    x = random(0, examples, 8, 9, channels[0], dtype=float)
    kernel = random(1, window, window, *channels, dtype=float)
    how = convolution._chosen(x, kernel, (1, 1), padding, {"dimension_numbers": LAYOUT})
    few = min(channels) < convolution._CHANNELS
    assert isinstance(how.way, convolution.Patches if few else convolution.Winograd)
    each = how.way.bytes_each(how.padded(x), kernel)
    monkeypatch.setattr(convolution, "_BYTES", 3 * each)
    assert how.block(x, kernel) == 3

    def run(by, x, kernel):
        def convolved(x, kernel):
            if by == "ours":
                return convolution._convolved(x, kernel, dataclasses.replace(how, pooled=pooled))
            y = convolution_by(by)(x, kernel, (1, 1), padding, dimension_numbers=LAYOUT)
            return max_pool(y) if pooled else y

        def slopes(x, kernel):
            return jax.grad(lambda *given: jnp.sum(jnp.sin(convolved(*given))), (0, 1))(x, kernel)

        # Forwards over backwards too: curvature is found so.
        return *value_and_slopes(convolved, x, kernel), jax.jvp(slopes, (x, kernel), (x, kernel))[1]

    both = jax.jit(lambda x, kernel: [run(by, x, kernel) for by in ("ours", "xla")])
    side_by_side = jax.jit(jax.vmap(both))
    for found, expected in (both(x, kernel), side_by_side(x[None], kernel[None])):
        for a, b in zip(tree.leaves(found), tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * np.abs(b).max())


def test_fewer_multiplications_round_no_worse():
    x, kernel = random(0, 2, 8, 8, 64), random(1, 5, 5, 64, 8)

    @jax.jit
    def results(x, kernel):
        given = (x, kernel, (1, 1), "VALID")
        return [by(*given, dimension_numbers=LAYOUT) for by in (convolve, convolve_patches)]

    ours, plain = results(x, kernel)
    with jax.enable_x64(True):
        exact = np.asarray(results(np.asarray(x, float), np.asarray(kernel, float))[1])
    error = [np.sqrt(np.mean((np.asarray(y, float) - exact) ** 2)) for y in (ours, plain)]
    assert 0 < error[0] < 1.2 * error[1]


def test_the_gradient_of_images_is_computed_only_if_somebody_asks():
    x, kernel = random(0, 2, 6, 6, 8), random(1, 3, 3, 8, 8)

    def loss(x, kernel):
        return jnp.sum(convolve(x, kernel, (1, 1), "SAME", dimension_numbers=LAYOUT) ** 2)

    def products(of):
        # Those over channels, one for each place of a tile; the kernel's transform has no such axis.
        return str(jax.make_jaxpr(jax.grad(loss, of))(x, kernel)).count("([0], [0])")

    assert products(1) == 2
    assert products((0, 1)) == 3


def test_it_works_in_loops_over_clients_and_for_products_with_the_hessian(x64):
    x, kernels = random(0, 2, 5, 5, 2, dtype=float), random(1, 3, 3, 3, 2, 2, dtype=float)

    @jax.jit
    def train(x, kernels):
        def loss(by, kernel):
            y = convolution_by(by)(x, kernel, (1, 1), "SAME", dimension_numbers=LAYOUT)
            return jnp.mean(y**4)

        def steps(by, kernel):
            slope = jax.grad(lambda k: loss(by, k))
            return lax.fori_loop(0, 3, lambda _, k: k - 0.01 * slope(k), kernel)

        def curve(by, kernel):
            return jax.jvp(jax.grad(lambda k: loss(by, k)), (kernel,), (kernel,))[1]

        return [
            [jax.vmap(lambda k, by=by, f=f: f(by, k))(kernels) for f in (steps, curve)]
            for by in ("auto", "xla")
        ]

    for found, expected in zip(*train(x, kernels), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_patches_are_chosen_on_a_cpu_unless_they_cannot_do_it():
    x, kernel = jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 2, 4))

    def operations(**options):
        def run(x, kernel):
            return convolve(x, kernel, (1, 1), "SAME", dimension_numbers=LAYOUT, **options)

        return str(jax.make_jaxpr(run)(x, kernel))

    assert jax.default_backend() == "cpu"
    assert "conv_general_dilated" not in operations()
    assert "conv_general_dilated" in operations(rhs_dilation=(2, 2))
    text = nn.Conv(3, (3,), conv_general_dilated=convolve)
    assert jax.eval_shape(text.init_with_output, jax.random.key(0), x[0])[0].shape == (4, 4, 3)


@pytest.mark.parametrize(
    ("shape", "options", "says"),
    [
        (
            (1, 4, 4, 2),
            {"dimension_numbers": LAYOUT, "rhs_dilation": (2, 2)},
            "rhs_dilation=(2, 2)",
        ),
        ((1, 4, 4, 2), {"dimension_numbers": LAYOUT, "feature_group_count": 2}, "group_count=2"),
        ((1, 2, 4, 4), {"dimension_numbers": None}, "the layout is"),
        ((4, 4, 2), {"dimension_numbers": LAYOUT}, "the images have shape (4, 4, 2)"),
    ],
)
def test_patches_say_what_they_cannot_do(shape, options, says):
    with pytest.raises(hf.HoldfastError) as error:
        convolve_patches(jnp.ones(shape), jnp.ones((3, 3, 2, 4)), (1, 1), "SAME", **options)
    assert says in str(error.value)


def test_pooling_and_its_gradient_are_those_of_xla(x64):
    x = jnp.asarray(np.random.default_rng(0).permutation(2 * 7 * 9 * 3).reshape(2, 7, 9, 3) / 10)
    cases = [(2, 2, "VALID"), (3, 3, "SAME"), (3, 2, ((1, 1), (1, 1))), (2, 3, "VALID")]

    def by_xla(x, window, stride, padding):
        pads = padding if isinstance(padding, str) else ((0, 0), *padding, (0, 0))
        size, strides = (1, window, window, 1), (1, stride, stride, 1)
        return lax.reduce_window(x, -np.inf, lax.max, size, strides, pads)

    @jax.jit
    def both(x):
        return [
            [value_and_slopes(lambda x, p=p, c=c: p(x, *c), x) for p in (max_pool, by_xla)]
            for c in cases
        ]

    for (found, expected), case in zip(both(x), cases, strict=True):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=str(case))


def test_pixels_that_are_equally_large_share_the_gradient():
    x = jnp.asarray([[1.0, 1.0], [0.0, 1.0]])[None, :, :, None]
    slope = jax.grad(lambda x: max_pool(x).sum())(x)[0, :, :, 0]
    np.testing.assert_allclose(slope, np.array([[1, 1], [0, 1]]) / 3, rtol=1e-6)
    value, moved = jax.jvp(max_pool, (x,), (jnp.ones_like(x),))
    assert value.item() == 1
    np.testing.assert_allclose(moved.item(), 1, rtol=1e-6)


def test_a_layer_is_flax_own_with_pooling_and_relu():
    x = random(0, 2, 8, 8, 3)
    layer = convolution.ConvolutionLayer(4, 3, "VALID", True, "auto")
    params = layer.init(jax.random.key(0), x)["params"]
    like = nn.Conv(4, (3, 3), padding="VALID")
    begun = like.init(jax.random.key(0), x)["params"]
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, begun)
    params = {"kernel": params["kernel"], "bias": random(1, 4)}
    expected = nn.relu(max_pool(like.apply({"params": params}, x)))
    np.testing.assert_allclose(layer.apply({"params": params}, x), expected, rtol=1e-4, atol=1e-5)
