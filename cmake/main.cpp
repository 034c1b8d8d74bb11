// The entry point of every program. The program itself is a shared library: see ddp_lab_program()
// in DdpLab.cmake.
int ddp_main(int argc, char** argv);

int main(int argc, char** argv) { return ddp_main(argc, argv); }
