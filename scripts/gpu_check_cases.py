"""The operations and problem lines that gpu_check runs, and the model that it runs in PyTorch."""

# Small, since all inputs are tried on each, one process per shape and pass: ragged lengths, grouped heads, odd and full
# head dimensions, one query, queries that see no key and keys that no query sees, windows.
SHAPES = ("hq=2 hkv=1 lq=67 d=7 mask=causal",
          "hq=4 hkv=2 lq=37 lk=129 d=64 layout=blhd",
          "hq=2 lq=33 lk=150 d=64 mask=causal_bottom_right",
          "hq=2 hkv=1 lq=70 lk=29 d=64 dv=33 mask=causal_bottom_right layout=blhd",
          "hq=2 hkv=1 lq=40 lk=67 d=128 mask=causal_top_left",
          "b=2 hq=2 lq=67 lk=35 d=128 dv=96 mask=causal_top_left layout=blhd",
          "hq=4 hkv=1 lq=1 lk=67 d=256",
          "hq=2 hkv=1 lq=35 lk=67 d=256 dv=255 mask=causal_bottom_right",
          "hq=2 hkv=1 lq=131 d=64 mask=window left=40 right=0",
          "hq=4 hkv=2 lq=67 lk=150 d=128 dv=96 mask=window_bottom_right left=33 right=5 layout=blhd",
          "hq=2 lq=150 lk=67 d=32 mask=window_top_left left=20")
# Backward on Hopper with more than 128 columns, of which random cases are few: lengths around its tiles, dimensions of
# every instance and between them.
WIDE_HEADS = [*("pass=bwd b=2 hq=4 hkv=2 lq=1,64,129,300 lk=63,65,300 d=136,192,256 dv=128,184,256 dtype=bf16,fp16 "
                f"mask={mask}" for mask in ("none", "causal_bottom_right", "causal_top_left")),
              "pass=bwd hq=3 lq=257,400 lk=190,400 d=256 dtype=bf16,fp16 mask=window_bottom_right left=70 right=9 "
              "layout=blhd"]
# Forward on Hopper where the plans split the keys and pack the heads of a group into a tile, which random cases, being
# small, seldom reach: one query to some, lengths of no whole tile, keys that no query sees, queries that see no key.
MANY_KEYS = ["pass=fwd hq=8 hkv=2 lq=1,3 lk=2065,9000 d=64,128,256 dtype=bf16,fp16 seed=1,2,3",
             "pass=fwd hq=5 hkv=1 lq=1,17 lk=6001 d=72,192,248 dv=64,128,256 dtype=bf16 layout=blhd",
             *(f"pass=fwd hq=4 hkv=2 lq=40 lk=4001 d=64,192 dv=64,128 dtype=fp16 mask={mask}"
               for mask in ("causal_top_left", "causal_bottom_right", "window_bottom_right left=3000 right=2")),
             "pass=fwd b=8 hq=40 hkv=8 lq=700 lk=60 d=64,128,256 dtype=bf16 mask=causal_bottom_right",
             "pass=fwd lq=4500 lk=4400 d=64 dtype=bf16 mask=causal_bottom_right"]
# Under the sanitizers: more tiles of queries and of keys than a ring of shared memory has stages.
SEVERAL_TILES = ("pass=fwd,bwd hq=2 hkv=1 lq=200 lk=300 d=64,128,192,256 dtype=bf16 mask=none,causal_bottom_right",
                 "pass=fwd,bwd hq=2 hkv=1 lq=129 lk=200 d=192 dv=128 dtype=fp16")
# A case whose lse on tensor cores once had an error 5 % larger than the rule allows. Another whose plain evaluation is
# exact, since P of every key is 1/32, while expf of CUDA is not.
ONCE_WRONG = ["pass=e2e b=1 hq=6 hkv=3 lq=17 lk=17 d=127 dtype=bf16 mask=causal layout=blhd data=outliers "
              "place=strided seed=1149451895",
              "pass=bwd b=3 lq=1 lk=32 d=31 dtype=fp32 mask=causal_bottom_right data=denormal place=strided "
              "seed=993652493",
              "pass=e2e b=2 hq=2 hkv=1 lq=4 lk=2049 d=40 dtype=fp16 mask=window_bottom_right left=unlimited right=1759 "
              "scale=0 data=sink place=guarded seed=28678111",
              "pass=bwd lq=3 lk=2 d=2 dv=41 dtype=fp16 mask=none scale=1 data=denormal seed=1492364620"]
# Operations whose random cases are drawn besides attention's. Problem lines of a model run on the CPU only.
LAYERS = ("mha_fused", "mha", "gqa", "mqa", "mla", "linear")
TYPES, PASSES = ("fp32", "bf16", "fp16"), ("fwd", "bwd")
# Words of commands that compare with PyTorch, all but the device and the Python.
LAYER_FORMS = ("mha_fused", "mha", "gqa hkv=2", "mqa", "mla latent=48", "gqa hkv=2 rope=halves qk_norm=yes",
               "mla latent=48 latent_kv=32 d_shared=16 rope=interleaved latent_norm=yes")
PEERS = [f"bench --yes --repeat-for 0.01 --impl flash --with {peer} " + " ".join(
    f"--problem 'op={layer} hq=4 pass=fwd,bwd b=2 lq=200 d=64 dtype={dtype} mask=causal'"
    for layer in LAYER_FORMS) for dtype, peer in (("fp32", "torch.math"), ("bf16", "torch.flash"))]
PEERS += [f"profile --layers 4 --width 256 --heads 4 --passes step --batch 2 --with torch.eager --dtype {dtype}"
          for dtype in ("fp32", "bf16")]
