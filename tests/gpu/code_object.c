/* code_object.c: reads the kernels' metadata of cubins (.nv.info sections) and HSA code objects (a MessagePack note). */
#include "code_object.h"

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MACHINE_CUDA = 190, MACHINE_AMDGPU = 224 };

const code_kernel *code_object_find(const code_object *object, const char *symbol) {
    for (int i = 0; i < object->n_kernels; i++)
        if (strcmp(object->kernels[i].symbol, symbol) == 0)
            return &object->kernels[i];
    return NULL;
}

static code_kernel *add_kernel(code_object *object) {
    if (object->n_kernels == CODE_MAX_KERNELS)
        return NULL;
    code_kernel *kernel = &object->kernels[object->n_kernels++];
    memset(kernel, 0, sizeof *kernel);
    return kernel;
}

static void add_argument(code_kernel *kernel, unsigned index, unsigned offset, unsigned bytes) {
    if (index >= CODE_MAX_ARGUMENTS)
        return;
    kernel->arguments[index] = (code_argument){offset, bytes};
    if ((int)index >= kernel->n_arguments)
        kernel->n_arguments = (int)index + 1;
}

static uint32_t read_u16(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t read_u32(const uint8_t *p) {
    return read_u16(p) | read_u16(p + 2) << 16;
}

/* ---- ELF -------------------------------------------------------------------------------------------------------- */

/* Copies, for images need not be aligned here. */
static Elf64_Shdr section_at(const uint8_t *image, int index) {
    Elf64_Ehdr header;
    Elf64_Shdr section;
    memcpy(&header, image, sizeof header);
    memcpy(&section, image + header.e_shoff + (size_t)index * header.e_shentsize, sizeof section);
    return section;
}

static const char *section_name(const uint8_t *image, const Elf64_Shdr *section) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    return (const char *)image + section_at(image, header.e_shstrndx).sh_offset + section->sh_name;
}

/* ---- cubins ----------------------------------------------------------------------------------------------------- */

/* Attributes of .nv.info.<kernel>: {format, attribute, u16 value}, and with format SIZED value bytes behind it. */
static void read_nv_info(const uint8_t *at, size_t bytes, code_kernel *kernel) {
    enum { SIZED = 4, MAX_THREADS = 0x05, KPARAM_INFO = 0x17 };
    const uint8_t *end = at + bytes;
    while (at + 4 <= end) {
        int format = at[0], attribute = at[1];
        uint32_t value = read_u16(at + 2);
        at += 4;
        if (format != SIZED)
            continue;
        if (attribute == MAX_THREADS)
            kernel->max_threads = read_u32(at);
        if (attribute == KPARAM_INFO) /* u32 index, u16 ordinal, u16 offset, u32: size from bit 18 on */
            add_argument(kernel, read_u16(at + 4), read_u16(at + 6), read_u32(at + 8) >> 18);
        at += value;
    }
}

static int read_cubin(const uint8_t *image, const Elf64_Ehdr *header, code_object *out) {
    static const char info[] = ".nv.info.", shared[] = ".nv.shared.";
    unsigned sm = header->e_ident[EI_ABIVERSION] >= 8 ? header->e_flags >> 8 & 0xff : header->e_flags & 0xff;
    unsigned reserved = sm >= 90 ? 1024 : 0; /* of shared memory, for the system, beside what a block may have */
    snprintf(out->arch, sizeof out->arch, "sm_%u", sm);
    for (int i = 0; i < header->e_shnum; i++) {
        Elf64_Shdr section = section_at(image, i);
        const char *name = section_name(image, &section);
        if (strncmp(name, info, sizeof info - 1) != 0)
            continue;
        code_kernel *kernel = add_kernel(out);
        if (!kernel)
            return 0;
        snprintf(kernel->symbol, sizeof kernel->symbol, "%s", name + sizeof info - 1);
        kernel->wave = 32;
        read_nv_info(image + section.sh_offset, section.sh_size, kernel);
    }
    for (int i = 0; i < header->e_shnum; i++) {
        Elf64_Shdr section = section_at(image, i);
        const char *name = section_name(image, &section);
        for (int k = 0; k < out->n_kernels; k++)
            if (strncmp(name, shared, sizeof shared - 1) == 0 &&
                strcmp(name + sizeof shared - 1, out->kernels[k].symbol) == 0)
                out->kernels[k].static_bytes = (unsigned)section.sh_size - reserved;
    }
    return 1;
}

/* ---- HSA code objects ------------------------------------------------------------------------------------------- */

/* One MessagePack value; maps and arrays hold count values (maps: pairs) that follow. */
typedef struct value {
    enum { NUMBER, TEXT, ARRAY, MAP, OTHER } type;
    uint64_t number; /* or length of the text, or count */
    const char *text;
} value;

static uint64_t big_endian(const uint8_t *p, int bytes) {
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++)
        x = x << 8 | p[i];
    return x;
}

static value next_value(const uint8_t **at) {
    const uint8_t *p = *at;
    int tag = *p++, size = 0;
    value v = {OTHER, 0, NULL};
    if (tag <= 0x7f || tag >= 0xe0) {
        v = (value){NUMBER, (uint64_t)tag, NULL};
    } else if (tag <= 0x9f) {
        v = (value){tag <= 0x8f ? MAP : ARRAY, (uint64_t)tag & 15, NULL};
    } else if (tag <= 0xbf) {
        v = (value){TEXT, (uint64_t)tag & 31, NULL};
    } else if (tag >= 0xcc && tag <= 0xd3) { /* integers of 1, 2, 4, 8 bytes */
        size = 1 << ((tag - 0xcc) & 3);
        v = (value){NUMBER, big_endian(p, size), NULL};
    } else if (tag >= 0xd9 && tag <= 0xdb) {
        size = 1 << (tag - 0xd9);
        v = (value){TEXT, big_endian(p, size), NULL};
    } else if (tag >= 0xdc) {
        size = tag & 1 ? 4 : 2;
        v = (value){tag <= 0xdd ? ARRAY : MAP, big_endian(p, size), NULL};
    } /* left over: nil, false, true */
    p += size;
    if (v.type == TEXT) {
        v.text = (const char *)p;
        p += v.number;
    }
    *at = p;
    return v;
}

static void skip_value(const uint8_t **at) {
    value v = next_value(at);
    uint64_t n = v.type == MAP ? 2 * v.number : v.type == ARRAY ? v.number : 0;
    for (uint64_t i = 0; i < n; i++)
        skip_value(at);
}

static int is(const value *v, const char *text) {
    return v->type == TEXT && v->number == strlen(text) && memcmp(v->text, text, v->number) == 0;
}

static void read_hsa_argument(const uint8_t **at, code_kernel *kernel) {
    value map = next_value(at);
    unsigned offset = 0, bytes = 0;
    int hidden = 0;
    for (uint64_t i = 0; i < map.number; i++) {
        value key = next_value(at), v;
        const uint8_t *start = *at;
        v = next_value(at);
        if (is(&key, ".offset"))
            offset = (unsigned)v.number;
        else if (is(&key, ".size"))
            bytes = (unsigned)v.number;
        else if (is(&key, ".value_kind"))
            hidden = v.number > 7 && memcmp(v.text, "hidden_", 7) == 0;
        *at = start;
        skip_value(at);
    }
    if (!hidden)
        add_argument(kernel, (unsigned)kernel->n_arguments, offset, bytes);
}

static int read_hsa_kernel(const uint8_t **at, code_object *out) {
    code_kernel *kernel = add_kernel(out);
    value map = next_value(at);
    for (uint64_t i = 0; kernel && i < map.number; i++) {
        value key = next_value(at), v;
        const uint8_t *start = *at;
        v = next_value(at);
        if (is(&key, ".args")) {
            for (uint64_t a = 0; a < v.number; a++)
                read_hsa_argument(at, kernel);
            continue;
        }
        if (is(&key, ".name"))
            snprintf(kernel->symbol, sizeof kernel->symbol, "%.*s", (int)v.number, v.text);
        else if (is(&key, ".max_flat_workgroup_size"))
            kernel->max_threads = (unsigned)v.number;
        else if (is(&key, ".group_segment_fixed_size"))
            kernel->static_bytes = (unsigned)v.number;
        else if (is(&key, ".wavefront_size"))
            kernel->wave = (unsigned)v.number;
        *at = start;
        skip_value(at);
    }
    return kernel != NULL;
}

static int read_metadata(const uint8_t *at, code_object *out) {
    value map = next_value(&at);
    for (uint64_t i = 0; i < map.number; i++) {
        value key = next_value(&at), v;
        const uint8_t *start = at;
        v = next_value(&at);
        if (is(&key, "amdhsa.kernels")) {
            for (uint64_t k = 0; k < v.number; k++)
                if (!read_hsa_kernel(&at, out))
                    return 0;
            continue;
        }
        if (is(&key, "amdhsa.target")) { /* "amdgcn-amd-amdhsa--gfx90a:xnack-" */
            char target[64];
            snprintf(target, sizeof target, "%.*s", (int)v.number, v.text);
            const char *arch = strstr(target, "--gfx");
            snprintf(out->arch, sizeof out->arch, "%.*s", arch ? (int)strcspn(arch + 2, ":") : 0, arch ? arch + 2 : "");
        }
        at = start;
        skip_value(&at);
    }
    return 1;
}

static int read_hsa(const uint8_t *image, const Elf64_Ehdr *header, code_object *out) {
    enum { METADATA = 32 };
    for (int i = 0; i < header->e_shnum; i++) {
        Elf64_Shdr section = section_at(image, i);
        if (section.sh_type != SHT_NOTE)
            continue;
        const uint8_t *note = image + section.sh_offset; /* {u32 name bytes, u32 bytes, u32 type}, name, metadata */
        size_t name_bytes = (read_u32(note) + 3) / 4 * 4;
        if (read_u32(note + 8) == METADATA)
            return read_metadata(note + 12 + name_bytes, out);
    }
    return 0;
}

/* ---- any -------------------------------------------------------------------------------------------------------- */

static int read_text(const char *text, code_object *out) {
    int length = 0;
    if (sscanf(text, "STUB %31s\n%n", out->arch, &length) != 1)
        return 0;
    for (text += length; *text; text += length) {
        code_kernel *kernel = add_kernel(out);
        if (!kernel || sscanf(text, "%191s %u %u\n%n", kernel->symbol, &kernel->arguments[0].bytes,
                              &kernel->max_threads, &length) != 3)
            return 0;
        kernel->n_arguments = 1;
    }
    return 1;
}

int code_object_read(const void *image, code_object *out) {
    Elf64_Ehdr header;
    out->n_kernels = 0;
    if (memcmp(image, ELFMAG, SELFMAG) != 0)
        return read_text(image, out);
    memcpy(&header, image, sizeof header);
    return header.e_machine == MACHINE_CUDA     ? read_cubin(image, &header, out)
           : header.e_machine == MACHINE_AMDGPU ? read_hsa(image, &header, out)
                                                : 0;
}
