"""Situations of the script of a retry queue."""

from tests.faults.situation import FAR, LARGE, SOON, Situation


def numbered(mode: str, element: list[str]) -> list[str]:
    """Arguments of an add in sequence, whose max_age runs from a time that is far ahead."""
    waits = element[-1] in ("old", "waits", "1000")
    return [mode, *element, str(2**50 if waits else -(2**50))]


RETRIES = [
    *(
        Situation(f"add_in_sequence/{name}", ["k", "w"], numbered("", element), before)
        for name, element, before in [
            ("fresh", ["2", "1", "", ""], []),
            ("there", ["2", "5", "", ""], [["SET", "k", "3"], ["SET", "w", "4", "PX", SOON]]),
            ("counted", ["2", "4", "", ""], [["SET", "k", "3"], ["SET", "w", "4", "PX", SOON]]),
            ("large", ["2", "1", "", ""], [["SET", "k", LARGE]]),
            ("old", ["2", "1", "", "old"], [["SET", "k", "3"]]),
        ]
    ),
    *(
        Situation(f"add_in_sequence/{name}", ["k", "w", "x"], numbered("1", element), before)
        for name, element, before in [
            ("fresh, with a ttl", ["2", "1", SOON, f"-{2**50}"], []),
            ("there, with a ttl", ["2", "1", SOON, f"-{2**50}"], [["SET", "k", "3", "PX", SOON]]),
            ("immortal, with a ttl", ["2", "1", SOON, f"-{2**50}"], [["SET", "k", "3"]]),
            ("large, with a ttl", ["2", "1", SOON, f"-{2**50}"], [["SET", "k", LARGE, "PX", SOON]]),
            ("too late", ["2", "1", SOON, "1000"], []),
        ]
    ),
    *(
        Situation(
            f"add_in_sequence/{name}, of a period", ["k", "w"], numbered("period", element), before
        )
        for name, element, before in [
            ("fresh", ["2", "1", f"0 {FAR} {FAR}", "present"], []),
            ("there", ["2", "1", f"0 1 {FAR}", "at"], [["SET", "k", "3", "PXAT", FAR + "000"]]),
            ("waits", ["2", "1", f"0 1 {FAR}", "waits"], [["SET", "k", "3", "PX", SOON]]),
            ("immortal", ["2", "1", f"0 1 {FAR}", "waits"], [["SET", "k", "3"]]),
            ("large", ["2", "1", f"0 1 {FAR}", "at"], [["SET", "k", LARGE, "PXAT", FAR + "000"]]),
            ("elsewhere", ["2", "1", f"0 1 {FAR}", "present"], []),
            ("gone", ["2", "1", "0 1 2", "at"], []),
            ("too late", ["2", "1", "0 1 2", "waits"], []),
            ("ahead", ["2", "1", f"{FAR}0 {FAR}0 {FAR}0", "at"], []),
        ]
    ),
]
