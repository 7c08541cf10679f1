"""What a GPU code object tells without a GPU: resources of its kernels, and instructions in their hot loops.

kernels(path) reads a cubin (nvdisasm) or an HSA code object (llvm-objdump, llvm-readelf) and gives Kernel objects.
hot_loop(kernel) counts one trip through a kernel's main loop: of all ways from its head back to its head those that do
most work, and of them the shortest; inner loops once. Work is what branches leave out only at the end of a sequence: matrix
products, dot products, copies, shared memory, wide loads. What is left out is seldom done: rescaling after a new maximum,
masking the last keys, score options.
"""
import collections
import os
import re
import shutil
import struct
import subprocess
import sys

sys.setrecursionlimit(10000)

Instruction = collections.namedtuple("Instruction", "op text target conditional ends")
Block = collections.namedtuple("Block", "instructions successors")


class Kernel:
    def __init__(self, name, vendor):
        self.name, self.vendor = name, vendor
        self.resources = {}  # registers, scalar_registers, shared, spills, scratch, wave
        self.blocks = []     # the first one is the entry


class ToolMissing(Exception):
    pass


TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/tools")  # see scripts/gpu_tools.sh


def tool(names, package):
    for name in names:
        path = shutil.which(name) or shutil.which(name, path=os.path.join(TOOLS, "nvidia/cu13/bin"))
        if path:
            return path
    raise ToolMissing("no %s (%s)" % (names[0], package))


def nvdisasm():
    return tool(["nvdisasm"], "CUDA Toolkit, or nvidia-cuda-nvdisasm of PyPI")


def llvm(name):
    return tool(["%s-%d" % (name, version) for version in (22, 21, 20)] + [name], "llvm-22")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kernels(path):
    with open(path, "rb") as file:
        machine = struct.unpack_from("<H", file.read(20), 18)[0]
    return cuda_kernels(path) if machine == 190 else hip_kernels(path)


# ---- blocks ---------------------------------------------------------------------------------------------------------

def blocks_of(lines):
    """lines: Instructions, and strings for labels."""
    leaders, labels, instructions = {0}, {}, []
    for line in lines:
        if isinstance(line, str):
            labels[line] = len(instructions)
            leaders.add(len(instructions))
        else:
            instructions.append(line)
            if line.target or line.ends:
                leaders.add(len(instructions))
    starts = sorted(i for i in leaders if i < len(instructions))
    number = {start: i for i, start in enumerate(starts)}
    blocks = []
    for i, start in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(instructions)
        last, successors = instructions[end - 1], []
        if last.target and labels.get(last.target) in number:
            successors.append(number[labels[last.target]])
        if (last.conditional or not (last.target or last.ends)) and end in number:
            successors.append(number[end])
        blocks.append(Block(instructions[start:end], successors))
    return blocks


# ---- CUDA -----------------------------------------------------------------------------------------------------------

SASS = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*;")
SASS_LABEL = re.compile(r"^(\.L_x_\d+):")
SASS_SECTION = re.compile(r"^\s*\.section\s+\.text\.(\S+?),")


def sass(match):
    predicate, op, arguments = match.group(1), match.group(2), match.group(3)
    conditional = bool(predicate) or bool(re.search(r"\bU?P\d", arguments))
    target, ends = None, False
    if op.startswith("BRA") and not op.startswith("BRA.DIV"):  # .DIV: where lanes of a warp have parted
        found = re.search(r"\.L_x_\d+", arguments)
        target = found and found.group(0)
        ends = not target
    elif op.startswith("CALL.REL") and ".L_x_" in arguments:  # how sm_80 leaves a loop: nothing returns
        target = re.search(r"\.L_x_\d+", arguments).group(0)
        conditional = bool(predicate)
    elif op.split(".")[0] in ("EXIT", "RET", "BRX", "ENDCOLLECTIVE", "KILL"):
        ends, conditional = True, bool(predicate)
    return Instruction(op, arguments, target, conditional, ends)


def cuda_kernels(path):
    lines, found = {}, []
    for line in output_of(nvdisasm(), "-c", path).splitlines():
        section, label, instruction = SASS_SECTION.match(line), SASS_LABEL.match(line), SASS.match(line)
        if section:
            found.append(section.group(1))
            lines[section.group(1)] = []
        elif found and label:
            lines[found[-1]].append(label.group(1))
        elif found and instruction:
            lines[found[-1]].append(sass(instruction))
    sections, attributes = cubin(path)
    result = []
    for name in found:
        kernel = Kernel(name, "cuda")
        kernel.blocks = blocks_of(lines[name])
        ops = [i.op.split(".")[0] for i in lines[name] if not isinstance(i, str)]
        kernel.resources = {
            "registers": attributes[REGISTERS][name],
            "shared": sections.get(".nv.shared." + name, (0, 0))[1],  # static
            "spills": ops.count("STL") + ops.count("LDL"),
            "scratch": attributes[FRAME][name],
            "wave": 32,
        }
        result.append(kernel)
    return result


FRAME, REGISTERS = 0x11, 0x2f  # attributes of .nv.info


def cubin(path):
    """Sections, name: (offset, size), and .nv.info, attribute: kernel: value, of a 64-bit little-endian ELF file."""
    with open(path, "rb") as file:
        data = file.read()

    def string(at):
        return data[at:data.index(b"\0", at)].decode()

    start, = struct.unpack_from("<Q", data, 40)
    size, n, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(n)]
    sections = {string(headers[names][4] + header[0]): header[4:6] for header in headers}
    at, size = sections[".nv.info"]
    end, attributes = at + size, collections.defaultdict(dict)
    while at < end:
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:  # value is the length of what follows
            if attribute in (FRAME, REGISTERS):
                symbol, number = struct.unpack_from("<II", data, at)
                name, = struct.unpack_from("<I", data, sections[".symtab"][0] + 24 * symbol)
                attributes[attribute][string(sections[".strtab"][0] + name)] = number
            at += value
    return sections, attributes


# ---- HIP ------------------------------------------------------------------------------------------------------------

GCN = re.compile(r"^\t([a-z]\w+)\s*(.*?)\s*(?://.*)?$")
GCN_LABEL = re.compile(r"^[0-9a-f]+ <(\w+)>:")


def gcn(match):
    op, arguments = match.group(1), match.group(2)
    branch = op.startswith(("s_branch", "s_cbranch"))
    return Instruction(op, arguments, arguments if branch else None, op.startswith("s_cbranch"),
                       op in ("s_endpgm", "s_setpc_b64", "s_swappc_b64"))


def hip_kernels(path):
    lines, name = {}, None
    for line in output_of(llvm("llvm-objdump"), "-d", "--symbolize-operands", "--no-show-raw-insn", path).splitlines():
        label, instruction = GCN_LABEL.match(line), GCN.match(line)
        if label and not re.match(r"L\d+$", label.group(1)):
            name = label.group(1)
            lines[name] = []
        elif name and label:
            lines[name].append(label.group(1))
        elif name and instruction:
            lines[name].append(gcn(instruction))
    result = []
    notes = output_of(llvm("llvm-readelf"), "--notes", path)
    for text in re.split(r"\n  - ", notes)[1:]:
        about = dict(re.findall(r"\.(\w+): +(\S+)", text))
        if "vgpr_count" not in about:
            continue
        kernel = Kernel(about["name"], "hip")
        kernel.blocks = blocks_of(lines[about["name"]])
        kernel.resources = {
            "registers": int(about["vgpr_count"]),
            "scalar_registers": int(about["sgpr_count"]),
            "shared": int(about["group_segment_fixed_size"]),  # static
            "spills": int(about["vgpr_spill_count"]),
            "scalar_spills": int(about["sgpr_spill_count"]),
            "scratch": int(about["private_segment_fixed_size"]),
            "wave": int(about["wavefront_size"]),
        }
        result.append(kernel)
    return result


# ---- kinds of instructions ------------------------------------------------------------------------------------------

WORK = {
    "cuda": re.compile(r"LDG\S*\.(64|128)|LDGSTS|LDS|STS|UBLKCP|HMMA|IMMA|HFMA2|HMUL2|BAR"),
    "hip": re.compile(r"(global|flat|buffer)_load_(b64|b96|b128|dwordx)|ds_(load|store|read|write)|s_barrier|v_wmma|v_mfma|v_dot"),
}
# Which loop is the hot one: that with most of these.
HEAVY = {
    "cuda": re.compile(r"HMMA|IMMA|PRMT|HFMA2|HMUL2|FFMA|IDP"),
    "hip": re.compile(r"v_wmma|v_mfma|v_dot|v_perm|v_pk_|v_fma|v_dual_"),
}


# CUDA: instructions of the pipe that computes 64 lanes per clock and multiprocessor, the first to be full.
ALU = re.compile(r"(PRMT|LOP3|PLOP3|SHF|SGXT|IADD3?|VIADD|LEA|IABS|V?IMNMX3?|ISETP|SEL|MOV|CS2R|FMNMX3?|FSETP|FSEL|F2FP|I2FP|VOTE)$")


def kind(vendor, op):
    """The unit that an instruction keeps busy."""
    if op.startswith(("HMMA", "IMMA", "v_wmma", "v_mfma")):
        return "matrix"
    if vendor == "cuda":
        return "alu" if ALU.match(op.split(".")[0]) else "other"
    if op.startswith("v_"):
        return "vector"
    if op.startswith(("s_wait", "s_delay", "s_nop", "s_clause")):
        return "wait"
    if op.startswith("s_"):
        return "scalar"
    return "shared" if op.startswith("ds_") else "memory"


# ---- loops ----------------------------------------------------------------------------------------------------------

def reachable(blocks):
    seen, stack = set(), [0]
    while stack:
        block = stack.pop()
        if block not in seen:
            seen.add(block)
            stack += blocks[block].successors
    return seen


def dominators(blocks):
    """For each reachable block the blocks that every path to it goes through."""
    nodes = reachable(blocks)
    before = collections.defaultdict(list)
    for block in nodes:
        for successor in blocks[block].successors:
            before[successor].append(block)
    dominates = {block: set(nodes) for block in nodes}
    dominates[0] = {0}
    changed = True
    while changed:
        changed = False
        for block in sorted(nodes - {0}):
            new = set.intersection(*(dominates[b] for b in before[block])) | {block}
            if new != dominates[block]:
                dominates[block], changed = new, True
    return dominates, before


def loops(blocks):
    """head: blocks of the natural loop; loops with one head are one."""
    dominates, before = dominators(blocks)
    found = {}
    for block in dominates:
        for head in blocks[block].successors:
            if head in dominates[block]:
                body, stack = found.setdefault(head, {head}), [block]
                while stack:
                    b = stack.pop()
                    if b not in body:
                        body.add(b)
                        stack += before[b]
    return found


def busiest_path(kernel, head, body, inner):
    """The instructions of one trip. inner: loops within, whose blocks all count once."""
    blocks = kernel.blocks
    of = {}  # block: outermost inner loop that holds it
    for inside, members in sorted(inner.items(), key=lambda item: len(item[1])):
        for b in members:
            of[b] = inside
    members = collections.defaultdict(list)
    for b in body:
        members[of.get(b, b)].append(b)
    best = {}  # node: (ends at the head, work, -instructions, instructions)

    def weigh(node):
        if node not in best:
            best[node] = (False, 0, 0, [])  # stands while a cycle that is no natural loop closes
            own = [i for b in sorted(members[node]) for i in blocks[b].instructions]
            work = sum(bool(WORK[kernel.vendor].match(i.op)) for i in own)
            ways = [(True, 0, 0, [])] if any(head in blocks[b].successors for b in members[node]) else []
            ways += [weigh(n) for n in sorted({of.get(s, s) for b in members[node] for s in blocks[b].successors
                                               if s in body and s != head and of.get(s, s) != node})]
            way = max(ways, key=lambda x: x[:3], default=(False, 0, 0, []))
            best[node] = (way[0], way[1] + work, way[2] - len(own), own + way[3])
        return best[node]

    return weigh(of.get(head, head))[3]


def hot_loop(kernel):
    """Instructions of one trip through the loop that does most of the work, in order; None if there is no loop."""
    found = loops(kernel.blocks)
    if not found:
        return None

    def heavy(head):
        return sum(bool(HEAVY[kernel.vendor].match(i.op)) for b in found[head] for i in kernel.blocks[b].instructions)

    most = max(heavy(head) for head in found)
    head = min((h for h in found if heavy(h) >= 0.9 * most), key=lambda h: len(found[h]))
    inner = {h: members for h, members in found.items() if h != head and members < found[head]}
    return busiest_path(kernel, head, found[head], inner)


def count(kernel):
    """Kinds of instructions in the hot loop, with the total."""
    path = hot_loop(kernel)
    if path is None:
        return None
    kinds = collections.Counter(kind(kernel.vendor, i.op) for i in path)
    kinds["all"] = len(path)
    return kinds


def main(paths):
    """Prints resources and the hot loop's instructions by name: what a kernel writer looks at."""
    for path in paths:
        for kernel in kernels(path):
            print(kernel.name, " ".join("%s %d" % item for item in kernel.resources.items()))
            path_ = hot_loop(kernel)
            if path_:
                kinds = collections.Counter(kind(kernel.vendor, i.op) for i in path_)
                ops = collections.Counter(i.op.split(".")[0] for i in path_)
                print("  loop: %d instructions;" % len(path_), " ".join("%s %d" % k for k in kinds.most_common()))
                print("   ", " ".join("%s %d" % k for k in ops.most_common()))


if __name__ == "__main__":
    main(sys.argv[1:])
