"""Tests of the tables of claims: which sentences a header has, and that each has a holder."""

from __future__ import annotations

import unittest

from tools.checking.claims import match, qualified, sentences

HEADER = """\
#pragma once
/// Lifetime. Sums all tensors (of every rank). It waits; so do
/// others. Example: none.
///
///     code(with, a sentence. In it);
/// - the first item is a sentence. So is this one
// Another paragraph without a full stop
int f();
"""


class Sentences(unittest.TestCase):
    def test_of_paragraphs_and_items(self) -> None:
        self.assertEqual(
            sentences(HEADER),
            [
                "Sums all tensors (of every rank).",
                "It waits; so do others.",
                "the first item is a sentence.",
                "So is this one Another paragraph without a full stop",
            ],
        )


class Match(unittest.TestCase):
    SAID = ["Sums all tensors.", "It waits for all."]

    def problems(self, entries: dict[str, list[str] | str]) -> list[str]:
        return match("f.h", self.SAID, entries)[1]

    def test_each_sentence_has_a_holder(self) -> None:
        held, problems = match("f.h", self.SAID, {"Sums all": ["sum", "bits"], "It waits": "the caller's duty"})
        self.assertEqual(problems, [])
        self.assertEqual(
            [(each.tests, each.reason) for each in held], [(("sum", "bits"), ""), ((), "the caller's duty")]
        )

    def test_what_does_not_fit_is_said(self) -> None:
        self.assertEqual(
            self.problems({"Sums all": ["sum"]}),
            ['f.h: no entries of contract.json begin the sentence "It waits for all."'],
        )
        self.assertIn("2 entries", self.problems({"Sums": ["sum"], "Sums all": ["sum"], "It": "a reason"})[0])
        self.assertIn('no sentence begins with "Divides"', self.problems({"S": ["a"], "I": ["b"], "Divides": ["c"]})[0])
        self.assertIn('nothing holds the sentence "It waits for all."', self.problems({"S": ["a"], "It": []})[0])

    def test_tests_of_another_stage_are_named_with_it(self) -> None:
        self.assertEqual(qualified("sum", "05_ring"), "05 sum")
        self.assertEqual(qualified("03 plan", "support"), "03 plan")
