"""Errors for names of MXNet that this package does not have; each says what to use instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from ..errors import UnimplementedError

_TORCH = "PyTorch and JAX compute networks and their gradients; the store takes their arrays as they are"
_DATA = "torch.utils.data.DataLoader has batches of data"
_SWITCH = "mx.np and mx.nd need no switch, and shapes () and (0,) are possible in both"
_PRINTED = "what is printed while training is the script's; kv.stats() says what the store has done"
_SETTINGS = "`tkv config` shows what is built in and set"
_NO_GRADIENT = "arrays here have no gradients; use the array itself"
_RANDOM = "mx.random has the distributions: uniform, normal, gamma, exponential, poisson and others"
_OPTIMIZER = "the optimizers of mx.optimizer change weights, and a mx.Program says an update as data"
_NUMPY = "NumPy computes on asnumpy(), PyTorch and JAX on the array itself by DLPack"
_DLPACK = "the array speaks DLPack itself: torch.from_dlpack(array), jax.dlpack.from_dlpack(array)"

_STATISTICS = "torch.testing and scipy.stats have such checks"
_HELPERS = "what numpy, urllib.request and unittest.mock have needs no helper here"
_OF_ND = "mx.nd.{}, of x.as_nd_ndarray()"
_ROWS = "tostype('default') is a dense array, whose error says more"
_CSR = "csr arrays are not here; scipy.sparse has them, and mx.nd.sparse.row_sparse_array takes those"


def _each(names: str, instead: str) -> dict[str, str]:
    """Return one text for several names; in it {} is the name in small letters."""
    return {name: instead.format(name.lower()) for name in names.split()}


# By the module or class that MXNet has the name in.
_INSTEAD: dict[str, dict[str, str]] = {
    "mx": {
        **_each("autograd contrib executor executor_manager mod module operator rnn rtc sym symbol", _TORCH),
        **_each("AttrScope attribute api library name np_symbol onnx symbol_doc th tvmop", _TORCH),
        **_each("visualization viz numpy_op_fallback numpy_op_signature numpy_dispatch_protocol", _TORCH),
        "gluon": _TORCH + "; gluon.Trainer is tensorkv.torch.Trainer",
        **_each("callback notebook", _PRINTED),
        **_each("image img", "torchvision has transformations of images"),
        **_each("io recordio", _DATA),
        "model": "kv.save and kv.load, mx.nd.save and mx.nd.load keep values",
        **_each("monitor mon", "kv.stats() says what the store has done"),
        "numpy_extension": "mx.npx",
        **_each(
            "np_array np_shape set_np_shape use_np use_np_array use_np_shape is_np_array is_np_shape util", _SWITCH
        ),
        "rnd": "mx.random",
        "cpu_pinned": "mx.cpu; nothing is copied to a GPU from there",
        "engine": "operations of arrays run when they are called; threads= of mx.kv.create says on how many cores",
        "error": "mx.errors",
        "log": "logging.getLogger('tensorkv'), and log= of mx.kv.create",
        "registry": "mx.optimizer.register, mx.init.register, mx.metric.register and mx.kv.KVStoreBase.register",
        **_each("runtime libinfo", _SETTINGS),
        "ndarray_doc": "docs/api.md",
        "misc": "mx.lr_scheduler has the schedules",
    },
    "mx.nd": {
        **_each("BatchNorm BatchNorm_v1", "torch.nn.functional.batch_norm"),
        **_each("Convolution Convolution_v1", "torch.nn.functional.conv1d, conv2d and conv3d"),
        "Deconvolution": "torch.nn.functional.conv_transpose2d",
        "FullyConnected": "torch.nn.functional.linear; of arrays mx.nd.dot(x, weight, transpose_b=True) + bias",
        "Activation": "mx.nd.relu, sigmoid, tanh and softsign; of networks those of torch.nn.functional",
        "LeakyReLU": "torch.nn.functional.leaky_relu, prelu, elu, selu and gelu",
        **_each("Pooling Pooling_v1", "torch.nn.functional.max_pool2d, avg_pool2d and others"),
        "Dropout": "torch.nn.functional.dropout",
        "Embedding": "mx.nd.take(weight, indices); of networks torch.nn.functional.embedding",
        "RNN": "torch.nn.RNN, LSTM and GRU",
        "LayerNorm": "torch.nn.functional.layer_norm",
        "GroupNorm": "torch.nn.functional.group_norm",
        "InstanceNorm": "torch.nn.functional.instance_norm",
        "LRN": "torch.nn.functional.local_response_norm",
        "L2Normalization": "torch.nn.functional.normalize",
        **_each("CTCLoss ctc_loss", "torch.nn.functional.ctc_loss"),
        "smooth_l1": "torch.nn.functional.smooth_l1_loss",
        **_each(
            "Softmax SoftmaxOutput softmax_cross_entropy", "torch.nn.functional.cross_entropy; alone mx.nd.softmax"
        ),
        "SoftmaxActivation": "mx.nd.softmax",
        "softmin": "mx.nd.softmax(-x)",
        "hard_sigmoid": "mx.nd.clip(0.2 * x + 0.5, 0, 1)",
        **_each("LinearRegressionOutput MAERegressionOutput LogisticRegressionOutput SVMOutput", _TORCH),
        **_each("MakeLoss make_loss IdentityAttachKLSparseReg CachedOp Custom UpSampling ROIPooling", _TORCH),
        **_each("BilinearSampler GridGenerator SpatialTransformer Correlation im2col col2im contrib", _TORCH),
        **_each("SequenceLast SequenceMask SequenceReverse depth_to_space space_to_depth", _TORCH),
        **_each("BlockGrad stop_gradient", _NO_GRADIENT),
        **_each("Cast amp_cast", "mx.nd.cast"),
        **_each("Concat Flatten Reshape", "mx.nd.{}"),
        "ElementWiseSum": "mx.nd.add_n",
        **_each("SliceChannel split_v2", "mx.nd.split"),
        "SwapAxis": "mx.nd.swapaxes",
        **_each("Crop crop", "mx.nd.slice, or slice_like"),
        **_each("Pad pad", "numpy.pad(array.asnumpy(), ...)"),
        **_each("broadcast_axes broadcast_axis", "mx.nd.broadcast_to"),
        "broadcast_logical_and": "mx.nd.logical_and",
        "broadcast_logical_or": "mx.nd.logical_or",
        "broadcast_logical_xor": "mx.nd.logical_xor",
        "broadcast_hypot": "mx.nd.sqrt(a * a + b * b)",
        "true_divide": "mx.nd.divide",
        "max_axis": "mx.nd.max",
        "min_axis": "mx.nd.min",
        "sum_axis": "mx.nd.sum",
        "argmax_channel": "mx.nd.argmax(x, axis=1)",
        "identity": "array.copy()",
        "reverse": "mx.nd.flip",
        "rcbrt": "1 / mx.nd.cbrt(x)",
        "onehot_encode": "mx.nd.one_hot",
        **_each("batch_take choose_element_0index", "mx.nd.pick"),
        **_each("fill_element_0index scatter_nd", "array[rows, columns] = values"),
        "gather_nd": "array[rows, columns]",
        "shape_array": "array.shape",
        "size_array": "array.size",
        "uniform": "mx.nd.random_uniform, or mx.random.uniform",
        "normal": "mx.nd.random_normal, or mx.random.normal",
        "shuffle": "mx.random.shuffle",
        "sample_multinomial": "mx.random.multinomial",
        **_each("random_exponential random_gamma random_generalized_negative_binomial random_poisson", _RANDOM),
        **_each("random_negative_binomial random_randint sample_exponential sample_gamma sample_normal", _RANDOM),
        **_each("sample_generalized_negative_binomial sample_negative_binomial sample_poisson sample_uniform", _RANDOM),
        **_each("adam_update ftml_update ftrl_update nag_mom_update rmsprop_update rmspropalex_update", _OPTIMIZER),
        **_each("sgd_update sgd_mom_update signsgd_update signum_update mp_nag_mom_update mp_sgd_update", _OPTIMIZER),
        **_each("mp_sgd_mom_update lamb_update_phase1 lamb_update_phase2 mp_lamb_update_phase1", _OPTIMIZER),
        **_each("mp_lamb_update_phase2 multi_lars multi_sgd_update multi_sgd_mom_update multi_sum_sq", _OPTIMIZER),
        **_each("multi_mp_sgd_update multi_mp_sgd_mom_update preloaded_multi_sgd_update", _OPTIMIZER),
        **_each("preloaded_multi_sgd_mom_update preloaded_multi_mp_sgd_update reset_arrays", _OPTIMIZER),
        "preloaded_multi_mp_sgd_mom_update": _OPTIMIZER,
        **_each("erf erfinv gamma gammaln", "scipy.special has it, of asnumpy()"),
        **_each(
            "linalg linalg_det linalg_inverse linalg_slogdet linalg_potrf linalg_potri", "numpy.linalg, of asnumpy()"
        ),
        **_each("linalg_extractdiag linalg_extracttrian linalg_gelqf linalg_gemm linalg_gemm2 linalg_makediag", _NUMPY),
        **_each("linalg_maketrian linalg_sumlogdiag linalg_syrk linalg_trmm linalg_trsm khatri_rao moments", _NUMPY),
        **_each("all_finite multi_all_finite histogram nanprod ravel_multi_index unravel_index", _NUMPY),
        **_each("random_pdf_dirichlet random_pdf_exponential random_pdf_gamma random_pdf_normal", "scipy.stats"),
        **_each("random_pdf_generalized_negative_binomial random_pdf_negative_binomial", "scipy.stats"),
        **_each("random_pdf_poisson random_pdf_uniform", "scipy.stats"),
        "amp_multicast": "array.astype",
        **_each("image imdecode", "torchvision has transformations of images"),
        "load_frombuffer": "mx.nd.load of a file",
        **_each("op _internal", "mx.nd has the functions itself"),
        "utils": "mx.nd.save and mx.nd.load",
        **_each("to_dlpack_for_read to_dlpack_for_write", _DLPACK),
        **_each("numpy npx numpy_extension", "mx.np"),
    },
    "mx.optimizer": {
        "contrib": "its GroupAdaGrad has one history for each row, mx.optimizer.AdaGrad one for each element",
        "optimizer": "mx.optimizer has them itself",
    },
    "mx.nd.sparse": {
        **_each("CSRNDArray csr_matrix", _CSR),
        "BaseSparseNDArray": "mx.nd.sparse.RowSparseNDArray",
        "ElementWiseSum": "mx.nd.add_n",
        **_each("adagrad_update adam_update ftrl_update sgd_update sgd_mom_update", _OPTIMIZER),
        **_each("Embedding FullyConnected LinearRegressionOutput LogisticRegressionOutput", _TORCH),
        **_each("MAERegressionOutput make_loss", _TORCH),
        "stop_gradient": _NO_GRADIENT,
        **_each("arccos arccosh", "mx.nd.{}"),
        **_each("elemwise_add elemwise_sub elemwise_mul elemwise_div", "mx.nd.{}"),
        **_each("broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_plus broadcast_minus", "mx.nd.{}"),
        **_each("gamma gammaln", "scipy.special has it, of asnumpy()"),
    },
    "RowSparseNDArray": {
        **_each("attach_grad grad backward", _TORCH),
        "detach": _NO_GRADIENT,
        **_each("argmax_channel broadcast_axes depth_to_space nanprod pad rcbrt shape_array size_array", _ROWS),
        **_each("slice_assign slice_assign_scalar softmin space_to_depth split_v2", _ROWS),
        **_each("to_dlpack_for_read to_dlpack_for_write", _ROWS),
        "handle": "there is none; data and indices are arrays",
        "writable": "every row-sparse array is",
    },
    "mx.np": {  # what NumPy had
        **_each("NAN NaN", "numpy.nan"),
        "NINF": "-numpy.inf",
        "PINF": "numpy.inf",
        "NZERO": "-0.0",
        "PZERO": "0.0",
        "alltrue": "mx.np.all",
        "sometrue": "mx.np.any",
        "product": "mx.np.prod",
        "msort": "mx.np.sort(x, axis=0)",
        "in1d": "numpy.isin, of asnumpy()",
        "round_": "numpy.round, of asnumpy()",
        "trapz": "numpy.trapezoid, of asnumpy()",
        **_each("mirr npv ppmt pv rate", "the package numpy_financial"),
    },
    "mx.random": {
        **_each("uniform_like normal_like exponential_like gamma_like poisson_like", "{} with shape=array.shape"),
        **_each("negative_binomial_like generalized_negative_binomial_like", "{} with shape=array.shape"),
        "Context": "mx.Context",
        "current_context": "mx.current_context",
    },
    "mx.np.random": {
        "multinomial": "mx.random.multinomial draws classes; numpy.random.default_rng().multinomial counts them",
        "multivariate_normal": "numpy.random.default_rng().multivariate_normal, and mx.np.array of its result",
    },
    "mx.init": {
        "FusedRNN": _TORCH,
        "alias": "mx.init.register",
        "load": "mx.init.Load",
        "NDArray": "mx.nd.NDArray",
    },
    "Context": {
        "empty_cache": "memory of GPUs that nobody uses returns by itself",
        "default_ctx": "`with context:` makes a context the default, and mx.current_context() says which it is",
    },
    "mx.base": {
        "string_types": "(str,)",
        "numeric_types": "(float, int, numpy.generic)",
        "integer_types": "(int, numpy.integer)",
        **_each(
            "c_str c_array c_str_array check_call mx_real_t mx_uint NDArrayHandle KVStoreHandle _LIB",
            "docs/c.md has the C interface",
        ),
    },
    "mx.context": {"cpu_pinned": "mx.cpu; nothing is copied to a GPU from there"},
    "mx.npx": {
        **_each("use_np use_np_array use_np_shape set_np_shape set_np_array np_array np_shape", _SWITCH),
        "random": "mx.np.random",
        "gpu_memory_info": "mx.context.gpu_memory_info",
        "image": "torchvision has transformations of images",
        **_each("batch_dot cast log_softmax one_hot pick relu reshape reshape_like sigmoid", _OF_ND),
        **_each("slice softmax topk", _OF_ND),
        "arange_like": "mx.np.arange",
        "batch_flatten": "mx.nd.flatten, of x.as_nd_ndarray()",
        "gather_nd": "array[rows, columns]",
        "shape_array": "array.shape",
        "nonzero": "mx.np.where(x != 0)",
        **_each("erf erfinv gamma gammaln", "scipy.special has it, of asnumpy()"),
        **_each("activation batch_norm convolution deconvolution dropout embedding fully_connected", _TORCH),
        **_each("layer_norm leaky_relu pooling rnn sequence_mask smooth_l1 roi_pooling", _TORCH),
        **_each("constraint_check multibox_detection multibox_prior multibox_target", _TORCH),
        "cpu_pinned": "mx.cpu; nothing is copied to a GPU from there",
    },
    "mx.profiler": _each(
        "Counter Domain Event Frame Marker Task",
        "what a script notes by itself belongs to another profiler, such as torch.profiler",
    ),
    "KVStore": {"handle": "there is none; a store is the object itself"},
    "mx.test_utils": {
        **_each("check_consistency check_gluon_hybridize_consistency check_numeric_gradient check_speed", _TORCH),
        **_each("check_symbolic_backward check_symbolic_forward numeric_grad simple_forward np_symbol", _TORCH),
        **_each("same_symbol_structure Symbol use_np locationError default_numeric_eps", _TORCH),
        **_each("chi_square_check verify_generator mean_check var_check gen_buckets_probs_with_ppf", _STATISTICS),
        **_each("assert_almost_equal_with_err assert_almost_equal_ignore_nan", "mx.test_utils.assert_almost_equal"),
        **_each("get_rtol get_atol get_etol get_tols get_tolerance effective_dtype", "rtol= of assert_almost_equal"),
        **_each("default_rtols default_atols", "mx.test_utils.assert_almost_equal without rtol= and atol="),
        **_each("rand_sparse_ndarray create_sparse_array create_sparse_array_zd", "rand_ndarray(shape, 'row_sparse')"),
        **_each("shuffle_csr_column_indices compare_ndarray_tuple", _CSR),
        "set_default_context": "`with context:` around the test",
        "compare_optimizer": "mx.optimizer.create of both, and assert_almost_equal of the weights",
        **_each("create_2d_tensor create_vector", "mx.nd.arange and reshape"),
        **_each("random_uniform_arrays random_sample rand_coord_2d", "numpy.random"),
        **_each("np_reduce collapse_sum_like assign_each assign_each2 checkShapes assert_allclose", "numpy"),
        **_each("get_identity_mat get_identity_mat_batch new_orthonormal_matrix_2d", "numpy.linalg"),
        **_each("new_matrix_with_real_eigvals_2d new_matrix_with_real_eigvals_nd", "numpy.linalg"),
        **_each("new_sym_matrix_with_real_eigvals_2d new_sym_matrix_with_real_eigvals_nd", "numpy.linalg"),
        **_each("download download_model get_bz2_data get_cifar10 get_im2rec_path get_mnist get_mnist_iterator", _DATA),
        **_each("get_mnist_pkl get_mnist_ubyte get_zip_data DummyIter", _DATA),
        **_each("discard_stderr getenv setenv is_aarch64_run is_cd_run is_op_runnable has_tvm_ops", _HELPERS),
        **_each("get_cuda_compute_capability Features", _SETTINGS),
    },
    "NDArray": {
        **_each("attach_grad grad backward", _TORCH),
        "detach": _NO_GRADIENT,
        "argmax_channel": "argmax(axis=1)",
        "broadcast_axes": "broadcast_to",
        **_each("depth_to_space space_to_depth", _TORCH),
        **_each("nanprod nonzero", _NUMPY),
        "pad": "numpy.pad(array.asnumpy(), ...)",
        "rcbrt": "1 / array.cbrt()",
        "reshape_view": "reshape, which gives a view",
        "shape_array": "shape",
        "size_array": "size",
        **_each("slice_assign slice_assign_scalar", "array[begin:end] = values"),
        "softmin": "(-array).softmax()",
        "split_v2": "split",
        **_each("to_dlpack_for_read to_dlpack_for_write", _DLPACK),
        "handle": "there is none; " + _DLPACK,
        "writable": "read_only",
    },
}


_MASKED = "mx.nd.{}(mx.nd.where(mask, x, -numpy.inf)) leaves out elements whose mask is 0"
_SHAPE = "shape= has the extents, 0 keeps one, and reverse=True counts from the last"
_PART = "mx.nd.reshape(lhs, shape) takes any shape, such as one made of lhs.shape and rhs.shape"
_COUNTED = "the arrays are counted; leave it out"

# Arguments of functions of mx.nd that MXNet has.
_ARGUMENTS: dict[str, dict[str, str]] = {
    "softmax": dict.fromkeys(("length", "use_length"), _MASKED.format("softmax")),
    "log_softmax": dict.fromkeys(("length", "use_length"), _MASKED.format("log_softmax")),
    "norm": {"out_dtype": "astype(dtype) of the array before converts"},
    "reshape": dict.fromkeys(("target_shape", "keep_highest"), _SHAPE),
    "reshape_like": dict.fromkeys(("lhs_begin", "lhs_end", "rhs_begin", "rhs_end"), _PART),
    **{name: {"num_args": _COUNTED} for name in ("add_n", "concat", "stack")},
}


def check_arguments(function: str, names: Iterable[str]) -> None:
    """Raise UnimplementedError for an argument that MXNet's function of this name has, with a replacement."""
    known = _ARGUMENTS.get(function, {})
    for name in names:
        if name in known:
            raise UnimplementedError(f"{function}: {name}= is not here: {known[name]} (docs/mxnet.md)")


def instead(owner: str, name: str) -> str | None:
    """Return the error text for a name that MXNet has in `owner`, with a replacement; None for other names."""
    why = _INSTEAD.get(owner, {}).get(name)
    if owner == "mx.np" and not name.startswith("_") and hasattr(np, name):
        why = f"numpy.{name} has it, of asnumpy()"
    return f"{owner}.{name} is not here: {why} (docs/mxnet.md)" if why else None


def missing(owner: str, name: str, found: Any) -> NoReturn:
    """Raise AttributeError for a name that `found`, a module or an array, does not have."""
    kind = f"module {found.__name__!r}" if owner.startswith("mx") else f"{type(found).__name__!r} object"
    raise AttributeError(instead(owner, name) or f"{kind} has no attribute {name!r}", name=name, obj=found)
