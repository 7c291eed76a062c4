# The two commands of the README. Everything else is CMake (`cmake --list-presets`).
.PHONY: bench test setup
BUILD := build/release
# One file per state of the sources, so that an interrupted run goes on and an older one is not mistaken for it.
RECORDS = out/quick-$(shell git describe --always --dirty).jsonl

bench: setup
	@cmake --preset release --log-level=WARNING
	@cmake --build $(BUILD) --target fovea_program
	@mkdir -p out
	@# The report is drawn even if a cell failed; then the exit status says so.
	@$(BUILD)/fovea bench --preset quick -o $(RECORDS) --resume; status=$$?; \
	$(BUILD)/fovea report $(RECORDS) -o out/report && exit $$status
	@echo "The report with its pictures: $(CURDIR)/out/report/index.html"

test:
	@scripts/test

setup:
	@scripts/setup
