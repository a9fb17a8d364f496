"""The header that is included when ggml is compiled: the whole AMX tile configuration is written to memory.

No processor with AMX is needed. Without AMX, and on some systems before a process has requested it, ldtilecfg raises
SIGILL, and the memory that it would load is read. With AMX, sttilecfg reads the configuration back.
"""

from __future__ import annotations

import platform
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from workbench.runtimes.gguf.graphs import amx

HEADER = Path(amx.__file__).with_name("amx_tile_config.h")
# Fills a configuration as ggml does, and prints the 64 bytes that the instruction loads, or would load. The operand's
# address is read from the instruction: c4 .. .. 49, then ModRM, perhaps SIB, and a displacement of no, 1 or 4 bytes.
PROGRAM = """
#include <immintrin.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ucontext.h>
#include <unistd.h>

struct tiles {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
};

static void stopped(int, siginfo_t *, void *context) {
    const greg_t *registers = ((ucontext_t *) context)->uc_mcontext.gregs;
    const int named[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                         REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    const uint8_t *code = (const uint8_t *) registers[REG_RIP];
    const int mode = code[4] >> 6, low = code[4] & 7, high = code[1] & 32 ? 0 : 8;
    const uint8_t *rest = code + 5;
    if (code[0] != 0xc4 || code[3] != 0x49 || mode == 3 || (low == 5 && mode == 0)) _exit(3);
    int base = low;
    if (low == 4) {
        base = *rest & 7;
        if ((*rest >> 3 & 7) != 4 || (base == 5 && mode == 0)) _exit(4);
        rest++;
    }
    int32_t shift = 0;
    if (mode == 1) shift = (int8_t) *rest;
    if (mode == 2) memcpy(&shift, rest, 4);
    _exit(write(1, (const char *) registers[named[base | high]] + shift, 64) == 64 ? 0 : 5);
}

static __attribute__((noinline)) void soil() {
    volatile char memory[4096];
    for (unsigned n = 0; n < sizeof memory; n++) memory[n] = 0x55;
}

static __attribute__((noinline)) void configure(int rows) {
    alignas(64) tiles config = {};
    config.palette = 1;
    for (int n = 0; n < 8; n++) {
        config.rows[n] = n < 2 ? 8 : rows;
        config.colsb[n] = n == 2 || n == 3 ? 32 : 64;
    }
    _tile_loadconfig(&config);
}

int main(int count, char **) {
    struct sigaction action = {};
    action.sa_sigaction = stopped;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, nullptr);
    soil();
    configure(15 + count);
    char loaded[64];
    asm volatile("sttilecfg %0" : "=m"(loaded));
    return write(1, loaded, sizeof loaded) == sizeof loaded ? 0 : 6;
}
"""
COMPLETE = struct.pack("<BB14x16H16B", 1, 0, *[64, 64, 32, 32, 64, 64, 64, 64, *[0] * 8], *[8, 8, *[16] * 6, *[0] * 8])


def compiler(name: str) -> str:
    path = shutil.which(name)
    if path is None or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip(f"needs {name} and a processor of the family x86-64")
    return path


@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_tile_configuration_is_complete_when_it_is_loaded(tmp_path: Path, name: str) -> None:
    program, source = tmp_path / "it", tmp_path / "it.cpp"
    source.write_text(PROGRAM)
    command = [compiler(name), "-O3", "-mamx-tile", "-include", str(HEADER), str(source), "-o", str(program)]
    compilation = subprocess.run(command, capture_output=True, text=True, check=False)
    if compilation.returncode and "-mamx-tile" in compilation.stderr:
        pytest.skip(f"this {name} does not know the units")
    assert compilation.returncode == 0, compilation.stderr
    process = subprocess.run([str(program)], capture_output=True, check=False)
    assert process.returncode == 0
    assert process.stdout == COMPLETE


@pytest.mark.parametrize("name, suffix", [("gcc", "c"), ("g++", "cpp"), ("clang", "c"), ("clang++", "cpp")])
@pytest.mark.parametrize("flags", ["", "-mamx-tile -masm=intel"])
def test_header_does_not_change_the_object_code_of_other_files(
    tmp_path: Path, name: str, suffix: str, flags: str
) -> None:
    source = tmp_path / f"it.{suffix}"
    source.write_text("int it(void) { return 1; }\n")
    options = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", *flags.split(), "-c", str(source), "-o"]
    objects = [tmp_path / "without.o", tmp_path / "with.o"]
    for target, include in zip(objects, ([], ["-include", str(HEADER)]), strict=True):
        command = [compiler(name), *include, *options, str(target)]
        compilation = subprocess.run(command, capture_output=True, text=True, check=False)
        if compilation.returncode and "-mamx-tile" in compilation.stderr:
            pytest.skip(f"this {name} does not know the units")
        assert compilation.returncode == 0, compilation.stderr
    assert objects[0].read_bytes() == objects[1].read_bytes()
