import sys,time,os,json
root,*nums=sys.argv[1:]; sys.path.insert(0,root); os.chdir(root)
from pathlib import Path
from tools.checking.context import Context, graded_stages
from tools.checking.claims import keep_bodies, by_line
from tools.grading.runner import RunOptions, signs_of_life
from tools.grading.results import replace_file
from tools.setup import toolchain
c=Context(toolchain.load(Path(root)/'build'),7,lambda t:None,True)
for st in graded_stages():
    if st.number not in nums: continue
    t=time.time()
    r=c.grade(st, c.builder.library(st,'solutions'), c.tests_of(st), RunOptions(7,alive=False))
    print(st.number,r.score,'of',r.max_score,round(time.time()-t,1),'s',flush=True)
    for x in r.results:
        if x.status.value!='passed': print(' ',x.spec.name,x.status.value,'\n    '.join(f[:900] for f in x.failures),flush=True)
        elif x.measured and x.spec.points: print('  ok',x.spec.name,x.measured)
    if r.score==r.max_score:
        keep_bodies(c,r); replace_file(signs_of_life(st), by_line(r.signs).encode()); print('signs written',flush=True)
