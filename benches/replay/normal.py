"""Normal forms of machine code: equal texts mean equal code.

Symbols that an object defines, labels and PTX's virtual registers are numbered in order of
appearance; comments, debug info, line tables and unwind tables are left out. Instructions,
constants, and the names of what is called outside of the object are kept.
"""

import re
import struct

KERNEL_SYMBOL = re.compile(r"\bkiln_(?:\w+_)?[0-9a-f]{24}\b")


class Numbering:
    """Numbers names in order of appearance."""

    def __init__(self, prefix):
        self.prefix, self.names = prefix, {}

    def __call__(self, name):
        return self.names.setdefault(name, f"{self.prefix}{len(self.names)}")


# ---- PTX

PTX_DEBUG_LABEL = re.compile(r"\$L__(?:tmp|func_begin|func_end|info|debug|line)\w*:?$")
PTX_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
PTX_FUNCTION = re.compile(r"\.func\s+(?:\([^)]*\)\s*)?([\w$]+)")
PTX_VARIABLE = re.compile(r"\.(?:shared|global|const)\b[^=;({]*?([\w$]+)\s*(?:\[|=|;)")
PTX_LABEL = re.compile(r"\$L[\w$]+")
PTX_REGISTER = re.compile(r"%(r|rd|rs|p|f|fd|h|hh|b|rq|SP|SPL)(\d+)\b")
PTX_WORD = re.compile(r"[A-Za-z_$][\w$]*")


def ptx(text):
    """The normal form of a PTX module."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^\s*\.section\s+\S+\s*\{.*?\}", "", text, flags=re.S | re.M)
    lines = []
    for line in text.splitlines():
        line = re.sub(r"\s+", " ", line.split("//", 1)[0]).strip()
        if not line.startswith((".loc", ".file", ".reg ")) and not PTX_DEBUG_LABEL.match(line):
            lines.append(line)
    lines = [line for line in lines if line]
    symbol, label, register = Numbering("sym"), Numbering("L"), {}
    defined = set()
    for line in lines:
        if line.startswith(".extern") and ".shared" not in line:
            continue
        found = PTX_ENTRY.search(line) or PTX_FUNCTION.search(line)
        if not found and line.startswith("."):
            found = PTX_VARIABLE.search(line)
        if found:
            defined.add(found.group(1))

    def word(match):
        name = match.group(0)
        if name in defined:
            return symbol(name)
        # A parameter has its function's name in front.
        stem, param, number = name.rpartition("_param_")
        return f"{symbol(stem)}_param_{number}" if param and stem in defined else name

    def one(match):
        kind = match.group(1)
        return "%" + register.setdefault(kind, Numbering(kind))(match.group(2))

    out = []
    for line in lines:
        line = PTX_LABEL.sub(lambda m: label(m.group(0)), line)
        out.append(PTX_REGISTER.sub(one, PTX_WORD.sub(word, line)))
    return "\n".join(out) + "\n"


# ---- Objects of the host

HEADING = re.compile(r"^<(.+)>:$")
BLOCK = re.compile(r"L\d+$")
CONSTANT = re.compile(r"\.L[A-Za-z]+\d+_\d+")


def disassembly(text, names=None):
    """The normal form of what llvm-objdump prints of one object with OBJDUMP_FLAGS.

    `names` gives the names of symbols that other objects define."""
    names = names or {}
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("Disassembly of section")]
    headings = (HEADING.match(line) for line in lines)
    functions = {m.group(1) for m in headings if m and not BLOCK.match(m.group(1))}
    symbol, constant = Numbering("sym"), Numbering("constant")

    def word(match):
        name = match.group(0)
        if name in names:
            return names[name]
        return symbol(name) if name in functions else name

    out = []
    for line in lines:
        line = line.split(" # ", 1)[0].rstrip()
        # Where a relocation is, the operand shows an address inside of this function instead.
        line = re.sub(r"\s*<[^<>]+\+0x[0-9a-f]+>", "", line)
        line = CONSTANT.sub(lambda m: constant(m.group(0)), line)
        line = PTX_WORD.sub(word, line)
        out.append(re.sub(r"\s+", " ", line))
    return "\n".join(out) + "\n"


OBJDUMP_FLAGS = ["-dr", "--no-show-raw-insn", "--no-leading-addr", "--symbolize-operands"]
SHT_PROGBITS, SHT_RELA, SHT_NOBITS, SHF_ALLOC, SHF_EXECUTE = 1, 4, 8, 2, 4


def data_sections(elf):
    """The data of an ELF64 object as lines: sections that are loaded and are no code, and their
    relocations."""
    if elf[:5] != b"\x7fELF\x02":
        raise ValueError("is no 64-bit ELF object")
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, start + i * size) for i in range(count)]

    def text(table, at):
        begin = headers[table][4] + at
        return elf[begin : elf.index(b"\0", begin)].decode("utf8", "replace")

    names = [text(names_at, h[0]) for h in headers]
    kept = {
        i: name
        for i, (h, name) in enumerate(zip(headers, names))
        if h[1] in (SHT_PROGBITS, SHT_NOBITS) and h[2] & SHF_ALLOC and not h[2] & SHF_EXECUTE
        if h[5] and not name.startswith((".eh_frame", ".note", ".debug"))
    }
    lines = []
    for i, name in kept.items():
        _, kind, _, _, offset, length, _, _, align, _ = headers[i]
        lines.append(f"section {name}, {length} bytes, alignment {align}")
        if kind == SHT_PROGBITS:
            data = elf[offset : offset + length]
            lines += [data[k : k + 16].hex() for k in range(0, length, 16)]
    for h in headers:
        if h[1] != SHT_RELA or h[7] not in kept:
            continue
        symtab = headers[h[6]]
        for at in range(h[4], h[4] + h[5], 24):
            offset, info, addend = struct.unpack_from("<QQq", elf, at)
            entry = symtab[4] + (info >> 32) * 24
            st_name, st_info, _, st_section = struct.unpack_from("<IBBH", elf, entry)
            known = st_info & 15 == 3 and st_section < count
            name = names[st_section] if known else text(symtab[6], st_name)
            lines.append(f"{names[h[7]]}+{offset:#x} is {info & 0xFFFFFFFF} {name}{addend:+#x}")
    return "\n".join(lines) + "\n" if lines else ""


# ---- The llvm dialect, as kiln-opt prints it


def without_attributes(text, prefix="kiln."):
    """Drops the attributes whose names begin with `prefix` from a line of MLIR."""
    out, at = "", 0
    pattern = re.compile(r"(?<![\w.#!@%\"])" + re.escape(prefix) + r"[\w.]+")
    while found := pattern.search(text, at):
        out += text[at : found.start()]
        at = found.end()
        if text.startswith(" = ", at):
            at = value_end(text, at + 3)
        if text.startswith(", ", at):
            at += 2
        else:
            out = out.removesuffix(", ")
    return out + text[at:]


def value_end(text, at):
    """Where the attribute value that begins at `at` ends: at a comma or bracket outside of it."""
    depth, quoted = 0, False
    while at < len(text):
        c = text[at]
        if quoted:
            at += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c in "<[{(":
            depth += 1
        elif c in ">]})" and text[at - 1] != "-":
            if depth == 0:
                return at
            depth -= 1
        elif c == "," and depth == 0:
            return at
        at += 1
    return at


def llvm_dialect(text):
    """The normal form of a module in the llvm dialect."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"\s+loc\(.*\)$", "", line.strip())
        line = without_attributes(line) if "kiln." in line else line
        line = re.sub(r"\s+(?:attributes )?\{\}", "", re.sub(r"\s+// .*$", "", line))
        if line and not line.startswith("#loc"):
            lines.append(line)
    symbol, own = Numbering("@sym"), set()
    for line in lines:
        function = re.search(r"\bllvm\.func\b[^@]*(@[\w$.]+)\(", line)
        if function and line.endswith("{"):
            own.add(function.group(1))
        other = re.search(
            r"\b(?:module|llvm\.mlir\.global (?:private|internal))\b[^@]*(@[\w$.]+)", line
        )
        if other:
            own.add(other.group(1))

    def name(match):
        return symbol(match.group(0)) if match.group(0) in own else match.group(0)

    return re.sub(r"@[\w$.]+", name, "\n".join(lines) + "\n")


def masked(line):
    """A line without register numbers and labels, by which diffs are aligned."""
    return re.sub(r"%\w+|\bL\d+\b", "%", line)
