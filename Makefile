# The two commands of the README. Everything else is CMake.
.PHONY: bench test setup
BUILD := build/release

setup:
	@scripts/setup

bench: setup
	cmake --preset release
	cmake --build $(BUILD) --target fovea_program
	$(BUILD)/fovea bench --preset quick -o out/quick.jsonl --resume
	$(BUILD)/fovea report out/quick.jsonl -o out/report

test: setup
	cmake --preset release
	cmake --build $(BUILD)
	ctest --preset release
