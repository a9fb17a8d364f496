# make app        the page on http://127.0.0.1:7860 (HOST=, PORT=)
# make test       the whole test suite (ARGS="-k name" and the like go to pytest; JOBS=0 for one test at a time)
# make check      format, lint and types
# make reference  adds the original FunASR package and other CTC decoders, for the tests and benchmarks that compare with them
# make demo       trains the demo checkpoints again (DATA=folder of the Free Spoken Digit Dataset)
# make clean      removes the virtual environment and every cache
#
# All but clean first bring .venv to what requirements.lock says, which takes a moment when it already is there.

HOST = 127.0.0.1
PORT =
ARGS =
# Files of tests that run at a time.
JOBS = 2
DATA =
# Where pip may look for PyTorch's CPU build, which is a tenth of the size of PyPI's. Left out where it cannot be reached.
TORCH_INDEX = https://download.pytorch.org/whl/cpu
# Where pip may find llama-cpp-python compiled; left out likewise, and then it is compiled here.
LLAMA_INDEX = https://abetlen.github.io/llama-cpp-python/whl/cpu
# The first of these programs that is a Python from 3.11 to 3.14.
PYTHON = $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && echo $$p && break; done)

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-deps
# The stamp of a complete environment. Its name changes with what is to be installed, and it is made last.
READY := $(VENV)/ready-$(shell { pwd; cat requirements.lock pyproject.toml; } | cksum | cut -d' ' -f1)

.PHONY: help env app test check demo reference clean programs
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

env: $(READY)

app: $(READY)
	@exec $(PY) app.py --host $(HOST) $(if $(PORT),--port $(PORT))

# Hundreds of processes start in the tests. Each would compile the project anew where Python is told to keep nothing.
# NumPy's products take one thread: several that wait for each other on busy cores take three times as long. Threads
# of PyTorch and ggml sleep after a short wait, as in the sessions of a page.
test: $(READY) programs $(VENV)/parquet
	@env -u PYTHONDONTWRITEBYTECODE OPENBLAS_NUM_THREADS=1 GOMP_SPINCOUNT=5000 $(PY) -m pytest -ra --durations=15 --numprocesses $(JOBS) --dist loadfile $(ARGS)

check: $(READY)
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy --num-workers $(JOBS)

demo: $(READY)
	@test -n "$(DATA)" || { echo 'make demo needs the recordings: make demo DATA=path/to/free-spoken-digit-dataset' >&2; exit 2; }
	for family in sensevoice paraformer funasr-nano fireredasr speechlm; do \
		$(VENV)/bin/workbench train-demo $$family --data $(DATA) --out assets/demo-$$family || exit; done

reference: $(READY)
	@$(PIP) $$(sed -n 's/^# reference: //p' requirements.lock)

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the tests of Parquet files need; without it they are skipped.
$(VENV)/parquet: $(READY)
	@$(PIP) --target $@ $$(sed -n 's/^# parquet: //p' requirements.lock) \
		|| echo 'pyarrow could not be installed; the tests of Parquet files will be skipped.' >&2

# Python gone, say after an upgrade of the system: the stamp no longer counts.
ifeq (,$(shell $(PY) -V 2>/dev/null))
.PHONY: $(READY)
endif

# Without any stamp the environment is missing or was left half made, so it is made from nothing.
$(READY):
	@test -n "$(PYTHON)" || { echo 'Python 3.11 to 3.14 was not found; install one (Debian: apt-get install python3-venv) or name it: make PYTHON=/path/to/python' >&2; exit 2; }
	@echo 'Installing the environment in $(VENV): some minutes the first time, and 3.5 GB of disk.' >&2
	@command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null \
		|| { echo 'llama-cpp-python needs a C++ compiler; on Debian: apt-get install g++' >&2; exit 2; }
	@{ ls $(VENV)/ready-* && $(PY) -V; } >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) \
		|| { echo 'The virtual environment could not be made; on Debian: apt-get install python3-venv' >&2; exit 2; }
	@rm -rf $(VENV)/ready-* $(VENV)/wheels
	@$(PY) .ci/install.py $(VENV) --torch-index $(TORCH_INDEX) --llama-index $(LLAMA_INDEX)
	@$(PY) -c 'import torch' || { echo 'PyTorch was installed but does not load; see docs/troubleshooting.md' >&2; exit 1; }
	@touch $@

# Programs that some tests drive; without them those tests are skipped, and pytest says so. The headless shell is
# Chromium without the windows that nobody sees here: it takes three quarters of the time. Without it Chromium serves.
PROGRAMS := chromium-headless-shell ffmpeg espeak-ng flite
programs:
	@missing=; for program in $(PROGRAMS); do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing for the tests:$$missing" >&2; \
		add() { DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$$@" >/dev/null; }; \
		apt-get update -q >/dev/null; \
		add $$missing || for program in $$missing; do \
			add $$program || { [ $$program = chromium-headless-shell ] && { command -v chromium >/dev/null || add chromium; }; } \
				|| echo "$$program could not be installed; the tests that need it will be skipped." >&2; \
		done; \
	else \
		for chromium in chromium chromium-browser; do \
			! command -v $$chromium >/dev/null || missing=$${missing# chromium-headless-shell}; \
		done; \
		[ -z "$$missing" ] || echo "Missing for the tests:$$missing. Those that need them are skipped." \
			"To have them run, on Debian: sudo apt-get install$$missing" >&2; \
	fi
