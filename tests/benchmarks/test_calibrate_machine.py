"""make calibrate: which rows of a reader's file describe the machine, and what it says of files that do not fit."""

from __future__ import annotations

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tools.report import calibrate_machine, measurements
from tools.setup.toolchain import LabError

HEADER = "gpus,link,model,batch,seq,method,bucket_mb,metric,value,unit\n"
ROWS = (
    "2,,float32 tensor 1 MiB,,,all-reduce,,time,0.1,ms\n2,,float32 tensor 64 MiB,,,all-reduce,,time,1,ms\n"
    "16,,float32 tensor 64 MiB,,,all-reduce,,time,9,ms\n"
    "1,,transformer xl,4,512,compute only,,forward,0.2,s\n2,,transformer xl,4,512,naive,,step time,900,ms\n"
    "1,,resnet50,256,224,no DDP,,rate,938,images/s\n8,,resnet50,256,224,Reducer,25 (default),rate,7248,images/s\n"
    "2,,transformer xl,4,512,naive,,optimizer,92,ms\n"
)


def read(text: str, per_node: int = 8) -> list[measurements.Row]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mine.csv"
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        return measurements.read(file, per_node)


class ReadersFile(unittest.TestCase):
    def test_rows_that_describe_the_machine_are_found(self) -> None:
        rows = read(HEADER + ROWS)
        self.assertEqual(len(rows), 8)
        held = [(row.model, row.gpus, row.metric) for row in rows if not row.fitted]
        self.assertEqual(held, [("xl", 2, "step"), ("resnet50", 8, "step")])
        self.assertAlmostEqual(rows[0].published, 1e-4)
        self.assertAlmostEqual(rows[6].published, 256 * 8 / 7248)
        names = {"all_reduce_overhead_s", "link_bytes_per_second", "link_between_bytes_per_second", "update_elements"}
        tied = measurements.tied(rows, per_node=8)
        self.assertEqual(tied.keys(), names | {"forward_efficiency", "compute_s.resnet50"})
        self.assertEqual(tied["update_elements"].metric, "optimizer")

    def test_a_naive_step_says_what_one_gpu_does_not(self) -> None:
        steps = "".join(f"2,,transformer xl,{batch},128,naive,,step time,{batch},s\n" for batch in (8, 1, 16))
        tied = measurements.tied(read(HEADER + steps), per_node=8)
        self.assertEqual({name: row.batch for name, row in tied.items()}, {"efficiency": "16"})
        passes = "".join(
            f"1,,transformer {size},4,512,compute only,,{metric},{seconds},s\n"
            for size, seconds in (("medium", 1), ("2.7B", 3), ("large", 2))
            for metric in ("forward", "backward")
        )
        tied = measurements.tied(read(HEADER + passes + steps), per_node=8)
        batches = {name: (row.model, row.batch, row.published) for name, row in tied.items()}
        self.assertEqual(batches.pop("forward_efficiency"), ("2.7b", "4", 3))
        self.assertEqual(batches.pop("backward_efficiency"), ("2.7b", "4", 6))  # with its forward
        self.assertEqual(batches, {"update_elements": ("xl", "16", 16), "host_s": ("xl", "1", 1)})

    def test_roles_that_are_given_are_kept(self) -> None:
        table = HEADER.replace("gpus,", "role,gpus,") + "held,2,,1,,,all-reduce,,time,1,s\n"
        rows = read(table + "calibration,2,,8,,,all-reduce,,time,1,s\n")
        self.assertEqual([row.fitted for row in rows], [False, True])

    def test_what_does_not_fit_is_said(self) -> None:
        for text, words in (
            (HEADER + "2,,1,,,all-reduce,,time,1,parsec\n", "a row does not fit"),
            (HEADER + "2,,1,,,all-reduce,,time,0,us\n", "not all numbers are above 0"),
            (HEADER + "2,,xl,,512,naive,,step time,1,s\n", "a row does not fit"),
            (HEADER + "2,,gpt2,4,512,naive,,step time,1,s\n", "gpt2 is none of small, .*, nor d_model,d_ff"),
            ("\udc89PNG", "cannot be read"),
            (HEADER, "no row describes the machine"),
        ):
            with self.assertRaisesRegex(LabError, words):
                read(text)
        with mock.patch.dict(os.environ, {"FROM": ""}), self.assertRaisesRegex(LabError, "needs FROM="):
            calibrate_machine.main()


if __name__ == "__main__":
    unittest.main()
