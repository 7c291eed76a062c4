# The two commands of the README. Everything else is CMake (`cmake --list-presets`).
.PHONY: bench test test-cuda python-test setup gpu-build gpu-check gpu-pack gpu-records wheel
BUILD := build/release
# One file per state of the sources, so that an interrupted run goes on and an older one is not mistaken for it.
DIGEST = $(shell cmake -DSOURCE_DIR=$(CURDIR) -DPRINT=ON -P cmake/source_digest.cmake | cut -c -12)
RECORDS = out/quick-$(shell git describe --always --dirty)-$(DIGEST).jsonl
PROFILE = $(RECORDS:.jsonl=-profile.jsonl)

bench: setup
	@cmake --preset release --log-level=WARNING
	@cmake --build $(BUILD) --target fovea_program
	@mkdir -p out
	@# The report is drawn even if a cell or the profile failed; then the target fails. Without the Python of reports the
	@# tables above are all, and one line names the remedy.
	@# A model of the published profile is small enough to be measured again by every run.
	@status=0; $(BUILD)/fovea bench --preset quick -o $(RECORDS) --resume || status=$$?; rm -f $(PROFILE); \
	$(BUILD)/fovea profile --preset report-d1 --model report-d1:sm --warm-up 1 --steps 3 -o $(PROFILE) || status=$$?; \
	if $(BUILD)/fovea report $(RECORDS) $$(ls $(PROFILE) 2>/dev/null) -o out/report; then \
		echo "The report with its pictures: $(CURDIR)/out/report/index.html"; fi; exit $$status

test:
	@scripts/test

# Of `make test`, the tests of the Python package alone.
python-test:
	@scripts/setup --tests
	@cmake --preset release --log-level=WARNING
	@cmake --build $(BUILD) --target fovea_python
	@ctest --preset release -R '^python\.'

# Needs nvcc, no GPU.
test-cuda:
	@scripts/test --cuda

# On a machine with a GPU, which needs no network: builds if it can, runs what was built beforehand if it cannot.
# `make gpu-check PARTS=verify,repeat` runs some parts, `make gpu-check GPUS=0,1` all of them side by side;
# `scripts/gpu_check --help` tells more.
gpu-check:
	@if [ -f CMakeLists.txt ] && command -v nvcc >/dev/null && cmake --preset cuda --log-level=WARNING; then \
		$(MAKE) --no-print-directory gpu-build; fi
	@$(if $(GPUS),scripts/gpu_check_parallel --gpus $(GPUS),scripts/gpu_check $(if $(PARTS),--parts $(PARTS)))

# The Python package as one file, into out/wheels. gpu-pack carries it, and other wheels that lie there, such as pytest.
wheel: setup
	@scripts/wheel

gpu-build:
	@cmake --preset cuda --log-level=WARNING
	@cmake --build build/cuda --target fovea_program fovea_cuda_check example_my_cuda_kernel

# What a machine with a GPU needs that has neither compiler nor packages: unpack it there, then `make gpu-check` in it,
# or scripts/gpu_check where there is no make.
gpu-pack: gpu-build
	@rm -rf out/fovea-gpu && mkdir -p $(addprefix out/fovea-gpu/,bin scripts examples share/fovea/python/fovea_bench)
	@cp build/cuda/fovea build/cuda/tests/cuda/fovea_cuda_check build/cuda/examples/libmy_cuda_kernel.so out/fovea-gpu/bin
	@strip -s out/fovea-gpu/bin/fovea out/fovea-gpu/bin/fovea_cuda_check
	@cp Makefile out/fovea-gpu
	@cp scripts/gpu_check scripts/gpu_check_*.py scripts/gpu_check_parallel scripts/gpu_records out/fovea-gpu/scripts
	@cp examples/my_triton.py out/fovea-gpu/examples
	@cp python/fovea_bench/*.py out/fovea-gpu/share/fovea/python/fovea_bench
	@# Wheels for the part `python`, and what measures the package: make wheel.
	@if ls out/wheels/*.whl >/dev/null 2>&1; then mkdir -p $(addprefix out/fovea-gpu/,tests python/extension) && \
		cp -r out/wheels out/fovea-gpu && cp -r tests/python out/fovea-gpu/tests && cp scripts/python_* out/fovea-gpu/scripts && \
		cp python/extension/xla_ffi.h out/fovea-gpu/python/extension; fi
	@tar cJf out/fovea-gpu.tar.xz -C out fovea-gpu
	@echo "To be carried: $(CURDIR)/out/fovea-gpu.tar.xz"

# The records that the pages of a GPU are made of, with what `make gpu-check` built: `make gpu-records GPUS=0,1 ONLY=graph`.
gpu-records:
	@scripts/gpu_records $(if $(GPUS),--gpus $(GPUS)) $(if $(ONLY),--only $(ONLY))

setup:
	@scripts/setup
