"""measure.py ROOT OUT FOLDER [stage ...]: grades patches of FOLDER/<stage>/*.patch; JSON by stage/name."""
import json, sys, time, os
from pathlib import Path
root, out, folder, *numbers = sys.argv[1:]
sys.path.insert(0, root); os.chdir(root)
from tools.checking.context import Context, graded_stages
from tools.checking import mutants as M
from tools.checking.in_place import grade, graded_tests
from tools.grading.runner import RunOptions
from tools.setup import toolchain
brief = os.environ.get("BRIEF", "1") == "1"
seed = int(os.environ.get("SEED", "7"))
MAX = int(os.environ.get("MAX", "12")); done = 0
only = os.environ.get("ONLY_NAMES", "").split()
context = Context(toolchain.load(Path(root) / "build"), seed, lambda t: None, True)
known = json.loads(Path(out).read_text()) if Path(out).exists() else {}
for stage in graded_stages():
    if numbers and stage.number not in numbers: continue
    tests = graded_tests(context, stage)
    for path in sorted(Path(folder, stage.name).glob("*.patch")):
        key = f"{stage.name}/{path.stem}"
        if (key in known and not only) or (only and path.stem not in only): continue
        text = path.read_text()
        if os.environ.get("SKIP_ONLY") and "\nOnly: yes" in text: continue
        try:
            if os.environ.get("PLAIN"):
                head, _, diff = text.partition("\n--- ")
                m = M.Mutant(path.stem, head, (), False, None, None, "", "--- " + diff if not diff.startswith("---") else diff)
                m = M.Mutant(path.stem, head, (), False, None, None, "", "\n--- " + diff)
            else:
                m = M.parse(path.stem, text)
            target = Path("/tmp/price/work", Path(out).stem, stage.name, path.stem); target.mkdir(parents=True, exist_ok=True)
            source = M.write_mutated(stage, m, target)
            t = time.time()
            report, log = grade(context, stage, source, target, tests, RunOptions(seed, brief=brief, machine=None, alive=not os.environ.get("DEAD")))
            known[key] = {"lost": sum(s.points for s in tests) - report.score, "seconds": round(time.time() - t, 1),
                "tests": {r.spec.name: [r.status.value, r.spec.points, (r.failures or [""])[0]] for r in report.results if r.status.value != "passed"}}
        except Exception as e:
            known[key] = {"lost": -1, "error": str(e)[:3000]}
        done += 1
        print(key, known[key]["lost"], known[key].get("seconds"), {k: v[0][:6] for k, v in known[key].get("tests", {}).items()}, known[key].get("error", ""), flush=True)
        Path(out).write_text(json.dumps(known, indent=1))
        if done >= MAX: sys.exit(9)
