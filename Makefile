# Every target is one line that calls a tool; `make` alone lists them.
VARIABLES := STAGE TEST FILE FIGURE IMPL LEVEL SEED VERBOSE DEVICE SANITIZE UNTRUSTED PRESET TRACE PYTHON LIBTORCH RANK SCENARIO GDB_ARGS EXAM
include $(wildcard *.mk)  # an instructor's targets, where there are some
.DEFAULT_GOAL := help
export $(VARIABLES)
unexport VERBOSE MAKEFLAGS MFLAGS  # each would change what a build by generated Makefiles prints
given := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
unknown := $(filter-out $(VARIABLES) CXX,$(given))
$(if $(unknown),$(error unknown variable $(unknown:%=%=); known are $(VARIABLES:%=%=)))

PYTHON3 := sh tools/setup/python3.sh  # python3, installed or asked for where it is missing
SETUP := $(PYTHON3) -m tools.setup.setup  # then the module that follows, in the same process
# "--stage=02" where STAGE=02 is given, nothing where not; the shell reads the value, so any character is safe.
flag = $${$(1):+"--$(2)=$$$(1)"}
GRADE := $(call flag,STAGE,stage) $(call flag,TEST,test) $(call flag,FILE,file) $(call flag,IMPL,impl) $(call flag,SEED,seed) \
         $(call flag,DEVICE,device) $(call flag,TRACE,trace) $(call flag,SANITIZE,sanitize) \
         $(if $(UNTRUSTED),--untrusted) $(if $(VERBOSE),"--verbose=$(VERBOSE)")
FIGURES := $(call flag,IMPL,impl) $(call flag,PRESET,preset) $(call flag,STAGE,stage)
CASES ?= $(PYTHON3) -m tools.student.cases  # an instructor's records them

.PHONY: help setup doctor cases test watch debug report hint figures writeup ab submit reset clean distclean always
help:  ## this list
	@awk -F ':.*## *' '/^## / { print "  " substr($$0, 4) } /^[a-z]+:.*##/ { line = sprintf("  make %-11s", $$1); n = split($$2, word, / +/); \
	  for (i = 1; i <= n; ++i) { if (length(line word[i]) > 78) { print line; line = sprintf("%18s", "") } \
	  line = line word[i] " " } print line }' $(MAKEFILE_LIST)
setup:  ## install what is missing, configure; the targets below do it too
	@$(SETUP)
doctor:  ## what was found on this machine, and what to do about each gap
	@$(PYTHON3) -m tools.setup.doctor
cases:  ## before you begin: failures to read, six a stage    [STAGE=02]
	@$(CASES) $(call flag,STAGE,stage) $(call flag,EXAM,exam)
test:  ## grade your code       [STAGE=02] [TEST=name] [FILE=other.cpp] [SEED=n] [VERBOSE=1] [DEVICE=cuda] [TRACE=file] [SANITIZE=address] [UNTRUSTED=1]
	@$(SETUP) tools.grading.grade $(GRADE)
watch:  ## grade on every save   STAGE=02
	@$(SETUP) tools.grading.watch $(call flag,STAGE,stage) $(call flag,IMPL,impl)
debug:  ## gdb on one rank of a test    TEST=name RANK=1 [STAGE=02] [SEED=n] [SCENARIO=name] [DEVICE=cuda] [GDB_ARGS=...]
	@$(SETUP) tools.grading.debugging.debug $(call flag,STAGE,stage) $(call flag,TEST,test) $(call flag,RANK,rank) $(call flag,IMPL,impl) \
	  $(call flag,SEED,seed) $(call flag,DEVICE,device) $(call flag,SCENARIO,scenario) $(call flag,GDB_ARGS,gdb-args)
report:  ## open the page of the last run, with pictures of what failed
	@$(PYTHON3) -m tools.grading.page.report_page
hint:  ## the hint of a test, at once   TEST=name [STAGE=02] [LEVEL=2]
	@$(PYTHON3) -m tools.grading.hint $(call flag,STAGE,stage) $(call flag,TEST,test) $(call flag,LEVEL,level)
figures:  ## the deliverable figures from your code   [STAGE=02] [FIGURE=step_time] [PRESET=quick]
	@$(SETUP) --for-figures tools.report.figures $(FIGURES)
build/bin/%: always
	@$(SETUP) tools.report.program $*
always: ;
ab:  ## the suite's A/B of bucket sizes: measured and compared   [PRESET=quick]
	@$(SETUP) --for-figures --with-packages tools.report.suite_ab $(call flag,IMPL,impl) $(call flag,PRESET,preset)
writeup:  ## questions, answers, figures and tables in one PDF   [PRESET=quick] [STAGE=03]
	@$(SETUP) --for-figures --with-packages tools.report.writeup $(FIGURES)
submit:  ## what is handed in, as one archive: stages, answers, scores
	@$(PYTHON3) -m tools.student.submit
reset:  ## the stub of a stage again; yours is kept beside it   STAGE=02
	@$(PYTHON3) -m tools.student.reset $(call flag,STAGE,stage)
clean:  ## remove what was built, and forget PYTHON= and LIBTORCH=
	@rm -rf build compile_commands.json
distclean: clean  ## also the virtual environment and the drawn figures
	@rm -rf .venv figures/data figures/out writeup/out
.DEFAULT:
	@echo "There is no target '$@'. 'make help' lists them; a stage is chosen by: make test STAGE=02" >&2; exit 2
