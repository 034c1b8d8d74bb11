# The instructor's targets; students get no copy of this file. `make` lists them after those of the Makefile.
## For instructors; test, watch, figures, ab and writeup take IMPL=solutions, too:
VARIABLES += ALL ARGS HIDDEN FROM AGAIN NAME KEEP
CASES = $(SETUP) tools.course.cases $(call flag,SEED,seed)  # records them, and with EXAM=12 writes an exam of others
.PHONY: check mutants format release autograder class site
check:  ## the repository's own tests, by pytest      [ALL=1] [ARGS="-k 'mutants and 03'"] [SEED=n]
	@$(SETUP) --for-check --with-packages pytest -n auto $(if $(ALL),-m "") $(ARGS)
mutants:  ## what each mutant and variant loses   STAGE=02 [TEST=name] [NAME='pattern'] [KEEP=1]
	@$(SETUP) --for-check tools.checking.over_all $(call flag,STAGE,stage) $(call flag,TEST,test) $(call flag,NAME,name) \
	  $(call flag,SEED,seed) $(if $(KEEP),--keep)
format:  ## clang-format and ruff on every source file
	@$(SETUP) --for-check tools.checking.formatting
release:  ## what students get, without solutions: a commit on the branch release, and an archive
	@$(PYTHON3) -m tools.course.release
autograder:  ## what grades submissions on Gradescope or a CI, in build/autograder   [HIDDEN=folder]
	@$(PYTHON3) -m tools.course.autograder $(call flag,HIDDEN,hidden)
class:  ## grade a class: a folder or .zip for each student   FROM=submissions [AGAIN=1]
	@$(SETUP) --for-figures --with-packages tools.course.grade_class "$$FROM" $(if $(AGAIN),--again)
site:  ## the texts as a course site, in build/site/html   [FROM=build/release/ddp-lab]
	@$(SETUP) --for-check --with-packages tools.course.site $(if $(FROM),"$$FROM")
