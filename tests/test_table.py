from planner.table import format_table


def test_columns_are_as_wide_as_their_longest_entry():
    table = format_table(("name", "a"), [("x", "10"), ("longer", "2")])
    assert table.splitlines() == [
        "name     a",
        "------  --",
        "x       10",
        "longer   2",
    ]


def test_further_text_columns_can_be_left_aligned():
    table = format_table(("n", "title"), [("x", "A"), ("y", "Longest")], num_left=2)
    assert table.splitlines()[2:] == ["x  A", "y  Longest"]
