/* ${banner} */
/* Code objects of ${arch.name}, embedded: files of the directory TQ_MODULES, which gpu.cmake compiles. */
#include "tq_kernel.h"

#define MODULE(symbol, file)                                                                                           \
    __asm__(".pushsection .rodata, \"a\"\n"                                                                            \
            ".balign 64\n"                                                                                             \
            ".globl " #symbol "\n"                                                                                     \
            ".hidden " #symbol "\n" #symbol ":\n"                                                                      \
            ".incbin \"" TQ_MODULES "/" file "\"\n"                                                                    \
            ".globl " #symbol "_end\n"                                                                                 \
            ".hidden " #symbol "_end\n" #symbol "_end:\n"                                                              \
            ".byte 0\n"                                                                                                \
            ".popsection\n");                                                                                          \
    extern const unsigned char symbol[], symbol##_end[]

% for _, name in ipairs(modules) do
MODULE(tqm_${arch.id}_${name}, "${name}.bin");
% end

extern const tqg_module tq_modules_${arch.id}[];
const tqg_module tq_modules_${arch.id}[] = {
% for _, name in ipairs(modules) do
    {"${name}", tqm_${arch.id}_${name}, tqm_${arch.id}_${name}_end},
% end
};
