// Mends _tile_loadconfig of GCC 12.2 and others before 13.3. Compile ggml with "-include" and the path of this file.
//
// ldtilecfg reads 64 bytes, but the asm statement in those compilers names an operand of 8 bytes (GCC bug 114098). So the
// optimiser drops what a program writes into the other 56: the tiles have no shape or a random one, and AMX code crashes.
// Here the operand is the whole configuration.
//
// It does nothing for other compilers, other processors, and files that are compiled without AMX.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__AMX_TILE__) && !defined(__ASSEMBLER__)
#ifndef WORKBENCH_AMX_TILE_CONFIG_H
#define WORKBENCH_AMX_TILE_CONFIG_H

#include <immintrin.h>

static inline __attribute__((__always_inline__)) void workbench_tile_loadconfig(const void *config) {
    __asm__ volatile("ldtilecfg\t%X0" : : "m"(*(const char(*)[64])config));
}

#define _tile_loadconfig(config) workbench_tile_loadconfig(config)

#endif
#endif
