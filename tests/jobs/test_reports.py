"""What jobs say while they work is heard, and listening ends."""

from holdfast.jobs.reports import Reports, reporting


def test_listening_ends_right_after_somebody_has_called():
    # The one who answers calls may have seen that all is over before the call that ends it.
    for number in range(300):
        with Reports() as reports, reporting(reports.address) as say:
            say(number)
        assert reports.next(timeout=10) == number
