# The two commands of the README. Everything else is CMake (`cmake --list-presets`).
.PHONY: bench test setup
BUILD := build/release

bench: setup
	@cmake --preset release --log-level=WARNING
	@cmake --build $(BUILD) --target fovea_program
	@mkdir -p out
	@$(BUILD)/fovea bench --preset quick -o out/quick.jsonl --resume
	@$(BUILD)/fovea report out/quick.jsonl -o out/report
	@echo "The report with its pictures: $(CURDIR)/out/report/index.html"

test:
	@scripts/test

setup:
	@scripts/setup
