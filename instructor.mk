# The instructor's targets; students get no copy of this file. `make` lists them after those of the Makefile.
## For instructors; test, watch, figures, ab and writeup take IMPL=solutions, too:
VARIABLES += ALL ARGS HIDDEN
.PHONY: check format release autograder
check:  ## the repository's own tests, by pytest      [ALL=1] [ARGS="-k 'mutants and 03'"] [SEED=n]
	@$(SETUP) --for-check --with-packages pytest -n auto $(if $(ALL),-m "") $(ARGS)
format:  ## clang-format and ruff on every source file
	@$(SETUP) --for-check tools.checking.formatting
release:  ## what students get, without solutions: a folder and an archive in build/release
	@$(PYTHON3) -m tools.course.release
autograder:  ## what grades submissions on Gradescope, Autolab or a CI, in build/autograder   [HIDDEN=folder]
	@$(PYTHON3) -m tools.course.autograder $(call flag,HIDDEN,hidden)
