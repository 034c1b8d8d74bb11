"""patches of a stage -> tests/mutants/<stage>.toml; checks that each gives the same files."""
import re, shutil, subprocess, sys, tempfile, tomllib
from pathlib import Path
ROOT = Path(sys.argv[1])
def lit(s):
    if "'''" in s or s.endswith("'"): raise SystemExit("literal " + s)
    return "'''\n" + s + "'''"
def basic(s):
    return "'" + s + "'" if "'" not in s else '"' + s.replace("\\", "\\\\").replace('"', '\\"') + '"'
def hunks(diff):
    files = re.split(r"^--- ", diff, flags=re.M)[1:]
    for f in files:
        lines = f.split("\n")
        name = lines[1].split("/")[-1].split("\t")[0].strip()
        body = "\n".join(lines[2:])
        for h in re.split(r"^@@.*@@.*$", body, flags=re.M)[1:]:
            ls = h.split("\n")[1:]
            while ls and ls[-1] == "": ls.pop()
            yield name, [l if l else " " for l in ls if not l.startswith("\\")]
def groups(ls):
    """contiguous changes as (before context list, old, new, after context list)"""
    i = 0; n = len(ls)
    while i < n:
        if ls[i][0] == " ": i += 1; continue
        j = i
        while j < n and ls[j][0] != " ": j += 1
        old = [l[1:] for l in ls[i:j] if l[0] == "-"]; new = [l[1:] for l in ls[i:j] if l[0] == "+"]
        # the text as it stands before: context or removed; what stands around now
        yield i, j, old, new
        i = j
def edits_of(diff, sources):
    texts = dict(sources); out = []
    for name, ls in hunks(diff):
        gs = list(groups(ls))
        for k, (i, j, old, new) in enumerate(gs):
            up = ls[(gs[k-1][1] if k else 0):i]; down = ls[j:(gs[k+1][0] if k + 1 < len(gs) else len(ls))]
            up = [l[1:] for l in up]; down = [l[1:] for l in down]
            a = b = 0
            def find(): return "".join(l + "\n" for l in (up[len(up)-a:] if a else []) + old + down[:b])
            best = None
            for total in range(0, len(up) + len(down) + 1):
                for a in range(0, total + 1):
                    b = total - a
                    if a > len(up) or b > len(down): continue
                    f = find()
                    if f.strip() and texts[name].count(f) == 1: best = (a, b); break
                if best: break
            if not best:
                return None
            a, b = best
            f = find(); r = "".join(l + "\n" for l in (up[len(up)-a:] if a else []) + new + down[:b])
            texts[name] = texts[name].replace(f, r)
            out.append((name, [" " + l if l else "" for l in (up[len(up)-a:] if a else [])] + ["-" + l for l in old] + ["+" + l for l in new] + [" " + l if l else "" for l in down[:b]]))
    return out, texts
def main():
    total = 0
    for folder in sorted((ROOT / "tests/mutants").iterdir()):
        if not folder.is_dir(): continue
        stage = folder.name
        sources = {p.name: p.read_text() for p in (ROOT / "solutions" / stage).glob("*.cpp")} | {p.name: p.read_text() for p in (ROOT / "solutions" / stage).glob("*.h")}
        main_name = stage[3:] + ".cpp"
        entries = []
        for path in sorted(folder.glob("*.patch")):
            pre, found, diff = path.read_text().partition("\n--- ")
            diff = found[1:] + diff
            fields = dict(l.split(":", 1) for l in pre.splitlines())
            fields = {k: v.strip() for k, v in fields.items()}
            res = edits_of(diff, sources)
            if res is None: print("NO UNIQUE", path); continue
            edits, texts = res
            with tempfile.TemporaryDirectory() as t:
                for n, s in sources.items(): Path(t, n).write_text(s)
                d = subprocess.run(["git", "apply", "-p3", "--whitespace=nowarn", "-"], cwd=t, input=diff, text=True, capture_output=True, env={"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": "/tmp"})
                if d.returncode: print("NOT APPLIED", path, d.stderr); continue
                for n in sources:
                    assert Path(t, n).read_text() == texts[n], path
            e = [f"## {path.stem}"]
            e += [f"{k}: {v}" for k, v in fields.items()]
            for n, lines in edits:
                e.append("@@" if n == main_name else f"@@ {n}")
                e += lines
            entries.append("\n".join(e) + "\n")
            continue
            for key, value in fields.items():
                k = key.lower().replace("-", "_")
                if key in ("Killed-by",): e.append(f"{k} = [{', '.join(basic(v.strip()) for v in value.split(','))}]")
                elif key == "Only": e.append("only = true")
                elif re.fullmatch(r"[\d.]+", value) and key in ("Score", "Loses"): e.append(f"{k} = {value}")
                else: e.append(f"{k} = {basic(value)}")
            for n, f, r in edits:
                e.append(f"[[{path.stem}.edits]]")
                if n != main_name: e.append(f"file = {basic(n)}")
                e += [f"find = {lit(f)}", f"replace = {lit(r)}"]
            entries.append("\n".join(e) + "\n")
        text = "\n".join(entries)
        (ROOT / "tests/mutants" / (stage + ".diff")).write_text(text)
        old = sum(len(p.read_text().splitlines()) for p in folder.glob("*.patch"))
        print(stage, len(entries), "lines", old, "->", len(text.splitlines()))
main()
