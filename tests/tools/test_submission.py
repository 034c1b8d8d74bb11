"""What of a submission is taken, and what is refused."""

from __future__ import annotations

import io
import os
import tarfile
import unittest
import zipfile
from pathlib import Path

from tools.course.submission import LARGEST_SOURCE, Submission, collect, printable_path
from tools.grading.stages import named

FIRST, FIFTH = "01_naive_ddp", "05_ring_all_reduce"
PLACE = f"assignments/{FIRST}/naive_ddp.cpp"


class Collecting(unittest.TestCase):
    def setUp(self) -> None:
        self.folder /= "submission"
        self.folder.mkdir()

    def write(self, path: str, content: str | bytes) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def tar(self, *entries: tuple[str, bytes, bytes], name: str = "handin.tar.gz") -> Path:
        """Of entries of a name, a type and a content."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            for path, kind, data in entries:
                entry = tarfile.TarInfo(path)
                entry.type = kind
                if kind == tarfile.SYMTYPE:
                    entry.linkname = data.decode()
                else:
                    entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        return self.write(name, content.getvalue())

    def refused(self, says: str) -> Submission:
        """Nothing was taken, and a note says so."""
        found = collect(self.folder)
        self.assertEqual(found.sources, {})
        self.assertRegex("\n".join(found.notes), says)
        return found

    def test_by_name_wherever_it_lies(self) -> None:
        self.write("my work/naive_ddp.cpp", "mine")
        self.write(f"writeup/answers/{FIRST}.typ", "my answer")
        self.write("notes/CMakeLists.txt", "not asked for")
        self.write(f"assignments/{FIRST}/naive_ddp.h", "the contract is the instructor's")
        found = collect(self.folder)
        self.assertEqual((found.sources, found.answers), ({FIRST: b"mine"}, {FIRST: b"my answer"}))
        self.assertEqual(found.notes, [])

    def test_of_two_the_one_in_the_stages_folder(self) -> None:
        self.write("naive_ddp.cpp", "old")
        self.write(f"lab/{PLACE}", "new")
        self.write(f"solutions/{FIRST}/naive_ddp.cpp", "not a student's")
        found = collect(self.folder)
        self.assertEqual(found.sources, {FIRST: b"new"})
        self.assertEqual(found.notes, [f"lab/{PLACE} was taken, and not naive_ddp.cpp."])

    def test_files_of_ones_own_beside_it(self) -> None:
        """As `make submit` packs them. A header of the lab's is not one's own."""
        for place in (f"assignments/{FIRST}", f"assignments/{FIFTH}"):
            for name in ("naive_ddp.cpp", "ring_all_reduce.cpp", "naive_ddp.h", "more.cpp", "more.h", "notes.txt"):
                self.write(f"{place}/{name}", place)
        found = collect(self.folder)
        both = {name: f"assignments/{FIRST}".encode() for name in ("more.cpp", "more.h")}
        self.assertEqual(found.beside[FIRST], both)
        self.assertEqual(found.beside[FIFTH].keys(), both.keys())

    def test_headers_alone_where_stages_lie_together(self) -> None:
        for name in ("naive_ddp.cpp", "ring_all_reduce.cpp", "more.cpp", "more.h"):
            self.write(f"flat/{name}", name)
        self.assertEqual(collect(self.folder).beside, {FIRST: {"more.h": b"more.h"}, FIFTH: {"more.h": b"more.h"}})

    def test_in_archives_of_both_kinds(self) -> None:
        self.tar((f"handin/{PLACE}", tarfile.REGTYPE, b"from a tar"))
        with zipfile.ZipFile(self.folder / "second.zip", "w") as archive:
            archive.writestr("ring_all_reduce.cpp", "from a zip")
        self.assertEqual(collect(self.folder).sources, {FIRST: b"from a tar", FIFTH: b"from a zip"})
        self.assertEqual(collect(self.folder / "second.zip").sources, {FIFTH: b"from a zip"})

    def test_what_make_submit_hands_in(self) -> None:
        from tools.student.submit import packed

        name = named(FIRST).sources("assignments")[0].name
        self.write("submission.zip", packed({f"assignments/{FIRST}/{name}": b"mine"}))
        self.assertEqual(collect(self.folder).sources, {FIRST: b"mine"})

    def test_links(self) -> None:
        secret = self.folder.parent / "secret.cpp"
        secret.write_text("secret")
        (self.folder / "naive_ddp.cpp").symlink_to(secret)
        (self.folder / "away").symlink_to("/")
        os.mkfifo(self.folder / "ring_all_reduce.cpp")
        found = self.refused(r"naive_ddp.cpp was not taken: it is a link or a device")
        self.assertEqual(len(found.notes), 3)

    def test_links_and_paths_in_archives(self) -> None:
        self.tar((PLACE, tarfile.SYMTYPE, b"/etc/passwd"), ("../../naive_ddp.cpp", tarfile.REGTYPE, b"up"),
                 ("/tmp/naive_ddp.cpp", tarfile.REGTYPE, b"root"))  # fmt: skip
        found = self.refused("it is a link or a device")
        self.assertEqual(sum("leads out of the archive" in note for note in found.notes), 2)

    def test_what_is_too_large(self) -> None:
        self.write("naive_ddp.cpp", b" " * (LARGEST_SOURCE + 1))
        self.refused("naive_ddp.cpp was not taken: it is larger than 256 KiB")

    def test_what_is_too_large_and_packed(self) -> None:
        self.tar(("naive_ddp.cpp", tarfile.REGTYPE, bytes(100 << 20)))
        self.refused("it is larger than 256 KiB")

    def test_a_header_that_announces_more_than_there_is(self) -> None:
        entry = tarfile.TarInfo("x")
        entry.size = 1 << 50
        self.write("handin.tar", entry.tobuf())
        self.refused("it unpacks to more than 1 GiB")

    def test_no_archive(self) -> None:
        self.write("handin.zip", "hello")
        self.write("handin.tar.gz", b"\x1f\x8bhello")
        self.assertEqual(len(self.refused("handin.zip was not taken: it is not an archive that can be read").notes), 2)

    def test_a_multitude(self) -> None:
        self.tar(*((f"{number}/../naive_ddp.cpp", tarfile.REGTYPE, b"") for number in range(6_000)))
        found = self.refused("more notes like these were left out")
        self.assertLess(len(found.notes), 30)

    def test_names_are_printable(self) -> None:
        self.assertEqual(printable_path("a\x1b[31m\n\udc80ü"), "a?[31m?\\udc80\\xfc")
        self.assertLess(len(printable_path("x" * 5000)), 130)
