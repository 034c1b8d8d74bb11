# passed.sh CMAKE BUILD NAME FILES...: the verdict check/passed/NAME of BUILD, if it is newer than all of these files;
# else one that is reached now. CTest calls it; Ninja may run only once in a folder.
cmake=$1 build=$2 name=$3
shift 3
if newer=$(find "$@" -newer "$build/check/passed/$name" -print -quit 2>&1) && [ -z "$newer" ]; then
  exec cat "$build/check/passed/$name"
fi
exec flock "$build/check/ninja.lock" "$cmake" --build "$build" --target "check/passed/$name"
