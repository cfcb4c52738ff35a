"""Coefficients of the f64 expansions in lowering/src/host/expand_math, and numbers for their test. Needs mpmath.

python3 gen_f64_math.py coefficients    prints the polynomials: minimax by Remez' exchange in 80 digits, then rounded to f64
python3 gen_f64_math.py numbers [FILE N]  writes f64_math.txt beside this file, or FILE with N times as many: function, bits of the arguments, bits
                                        of the nearest f64, and what that leaves in f64's units in the last place
"""
import pathlib, random, struct, sys
from mpmath import mp, mpf

mp.dps = 80


def remez(f, weight, lo, hi, degree):
    """Coefficients, lowest first, of the polynomial with the least greatest weight * error, and that error."""
    n = degree + 2
    lo, hi = mpf(lo), mpf(hi)
    at = lambda i, k: (lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * i / k)
    points = [at(i + mpf(1) / 2, n) for i in range(n)]
    grid = [at(i, 24 * n) for i in range(24 * n + 1)]
    grid = [x for x in grid if weight(x) > 0]
    values = [(f(x), weight(x)) for x in grid]
    for _ in range(12):
        rows = [[x**k for k in range(degree + 1)] + [(-1) ** i / weight(x)] for i, x in enumerate(points)]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([f(x) for x in points]))
        c = [solution[k] for k in range(degree + 1)]
        errors = [w * (mp.polyval(c[::-1], x) - y) for x, (y, w) in zip(grid, values)]
        # The extremum of every run of one sign; if too many, those around the largest.
        runs = []
        for x, e in zip(grid, errors):
            if runs and (runs[-1][1] > 0) == (e > 0):
                if abs(e) > abs(runs[-1][1]):
                    runs[-1] = (x, e)
            else:
                runs.append((x, e))
        while len(runs) > n:
            runs.pop(0 if abs(runs[0][1]) < abs(runs[-1][1]) else -1)
        greatest = max(abs(e) for _, e in runs)
        if len(runs) < n or greatest < abs(solution[n - 1]) * mpf("1.01"):
            break
        points = [x for x, _ in runs]
    return c, greatest


root = lambda f: lambda z: f(mp.sqrt(z))
ln_ratio = lambda s: mp.log((1 + s) / (1 - s))
# Name: function, weight of the relative error, interval, bits.
FITS = {
    "EXP": (lambda r: mp.expm1(r) / r**2 - 1 / r, lambda r: mpf(1) / 2, -0.3467, 0.3467, 57),
    "TANH": (root(lambda x: (mp.tanh(x) - x) / x**3), lambda z: z, 0, 0.3907, 57),
    "SINH": (root(lambda x: (mp.sinh(x) - x) / x**3), lambda z: z, 0, 1, 57),
    "ERF": (root(lambda x: mp.erf(x) / x - 1), lambda z: mpf(1), 0, 1, 57),
    "ERFCX": (lambda u: mp.erfc(2.5 * u + 3.5) * mp.exp((2.5 * u + 3.5) ** 2), lambda u: mp.exp(-((2.5 * u + 3.5) ** 2)), -1, 1, 55),
    "LOG": (root(lambda s: (ln_ratio(s) - 2 * s) / s**3), lambda z: z / 2, 0, 0.02945, 58),
    "SIN": (root(lambda x: (mp.sin(x) - x) / x**3), lambda z: z, 0, 0.617, 58),
    "COS": (root(lambda x: (mp.cos(x) - 1 + x**2 / 2) / x**4), lambda z: z**2, 0, 0.617, 58),
    "ASIN": (root(lambda x: (mp.asin(x) - x) / x**3), lambda z: z, 0, 0.25, 57),
    "ATAN": (root(lambda x: (mp.atan(x) - x) / x**3), lambda z: z, 0, 0.17158, 57),
    "LOG2": (root(lambda s: ((ln_ratio(s) / s - 2) / s**2 - mpf(2) / 3) / s**2 / mp.log(2)), lambda z: z**2 / 3, 0, 0.02945, 68),
}


def coefficients():
    for name, (f, weight, lo, hi, bits) in FITS.items():
        # The formulas cancel at 0.
        g = lambda x: f(x if abs(x) > mpf(10) ** -20 else mpf(10) ** -20)
        for degree in range(4, 30):
            c, error = remez(g, weight, lo, hi, degree)
            if error < mpf(2) ** -bits:
                break
        print(f"/// Relative error 2^{mp.nstr(mp.log(error, 2), 3)}.\nconst {name}: [f64; {len(c)}] = [")
        for x in c[::-1]:
            print(f"    {float(x)!r},")
        print("];")
    mp.prec = 1400
    words = int(mp.floor(mpf(2) / mp.pi * mpf(2) ** 1280))
    print("2/pi:", ", ".join(f"0x{(words >> (64 * (19 - i))) & (2**64 - 1):016x}" for i in range(20)))
    for name, value in [("pi/2", mp.pi / 2), ("pi", mp.pi), ("pi/4", mp.pi / 4), ("ln2", mp.log(2)), ("log2e", 1 / mp.log(2)), ("log10e", 1 / mp.log(10)),
                        ("log10 2", mp.log(2) / mp.log(10)), ("2/ln2", 2 / mp.log(2)), ("2/3/ln2", 2 / mp.log(2) / 3)]:
        parts, rest = [], value
        for _ in range(3):
            parts.append(float(rest))
            rest -= mpf(parts[-1])
        short = struct.unpack("<d", struct.pack("<Q", struct.unpack("<Q", struct.pack("<d", float(value)))[0] >> 21 << 21))[0]
        print(name, [repr(p) for p in parts], "32 bits:", repr(short), repr(float(value - mpf(short))))


FUNCTIONS = {
    "acos": mp.acos, "asin": mp.asin, "atan": mp.atan, "cos": mp.cos, "cosh": mp.cosh, "erf": mp.erf, "exp": mp.exp, "exp2": lambda x: mpf(2) ** x,
    "expm1": mp.expm1, "log": mp.log, "log10": mp.log10, "log1p": mp.log1p, "log2": lambda x: mp.log(x) / mp.log(2), "sin": mp.sin, "sinh": mp.sinh,
    "tan": mp.tan, "tanh": mp.tanh, "powf": mp.power, "atan2": mp.atan2,
}


def bits(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def line(name, *args):
    mp.prec = 2400 if name in ("sin", "cos", "tan") else 400
    y = FUNCTIONS[name](*[mpf(x) for x in args])
    if not mp.isfinite(y) or y.imag != 0 or abs(y) > sys.float_info.max or abs(y) < mpf(2) ** -1060:
        return None
    near = float(y)
    unit = mpf(2) ** (max(mp.frexp(mpf(near))[1], -1021) - 53)
    rest = float((y - mpf(near)) / unit)
    return f"{name} {' '.join(f'{bits(x):016x}' for x in args)} {bits(near):016x} {rest:.4f}"


def numbers(path=pathlib.Path(__file__).parent / "f64_math.txt", times=1):
    times = int(times)
    dice = random.Random(5)
    # x close to multiples of pi/2: worst cases of the range reduction, found by continued
    # fractions.
    hard = []
    mp.prec = 2400
    for e in range(1, 971, 9):
        ratio, convergents = mp.pi / 2 / mpf(2) ** e, []
        p0, q0, p1, q1, r = 0, 1, 1, 0, ratio
        while p1 < 2**53 and len(convergents) < 200:
            a = int(mp.floor(r))
            p0, q0, p1, q1 = p1, q1, a * p1 + p0, a * q1 + q0
            convergents.append(p1)
            if r == a:
                break
            r = 1 / (r - a)
        good = [p for p in convergents if 2**40 < p < 2**53]
        hard += [float(p) * 2.0**e for p in good[-1:]]
    hard.append(6381956970095103 * 2.0**797)
    spread = lambda lo, hi: dice.choice([-1, 1]) * dice.uniform(1, 2) * 2.0 ** dice.randint(lo, hi)
    ranges = {
        "acos": (-30, -1), "asin": (-40, -1), "atan": (-40, 70), "cos": (-30, 1022), "cosh": (-30, 9), "erf": (-60, 2), "exp": (-60, 9), "exp2": (-60, 9),
        "expm1": (-60, 9), "log": (-1060, 1022), "log10": (-1060, 1022), "log1p": (-60, 1022), "log2": (-1060, 1022), "sin": (-60, 1022),
        "sinh": (-60, 9), "tan": (-60, 1022), "tanh": (-60, 4),
    }
    out = []
    for name, (lo, hi) in ranges.items():
        points = [spread(lo, hi) for _ in range(40 * times)] + [spread(-6, min(2, hi)) for _ in range(40 * times)]
        points += [1 + dice.uniform(-1, 1) * 2.0 ** -dice.randint(1, 40) for _ in range(20 * times)] if name.startswith("log") else []
        points += hard if name in ("sin", "cos", "tan") else []
        if name in ("asin", "acos"):
            points = [max(-1.0, min(1.0, x)) for x in points]
        if name in ("log", "log10", "log2"):
            points = [abs(x) for x in points]
        if name == "log1p":
            points = [x if x > -1 else -x for x in points]
        out += [line(name, x) for x in points]
    for _ in range(100 * times):
        x = abs(spread(*dice.choice([(-1040, 1020), (-3, 3), (-1, 0)])))
        y = dice.uniform(-1020, 1020) / float(mp.log(mpf(x)) / mp.log(2)) if dice.random() < 0.7 else dice.uniform(-8, 8)
        out.append(line("powf", x, y))
        out.append(line("atan2", spread(-20, 20), spread(-20, 20)))
    text = "\n".join(sorted({l for l in out if l})) + "\n"
    pathlib.Path(path).write_text(text)


{"coefficients": coefficients, "numbers": numbers}[sys.argv[1]](*sys.argv[2:])
