"""What validate.py and workloads.py share: where measurements are kept, and what the table says at its end."""
import contextlib
import pathlib
import statistics
import tempfile


def main(parser, measure, report):
    """Measures into a directory, unless it has measurements already, and reports on them."""
    parser.add_argument("--acquisitions", type=int, default=60000, help="of one simulation: see latchwork-lab predict --help")
    parser.add_argument("--measured")
    parser.add_argument("--measure-only", action="store_true")
    args = parser.parse_args()
    if args.measure_only and not args.measured:
        parser.error("--measure-only needs --measured DIR, which keeps what is measured")
    with contextlib.ExitStack() as stack:
        keep = pathlib.Path(args.measured or stack.enter_context(tempfile.TemporaryDirectory()))
        keep.mkdir(exist_ok=True)
        if not (keep / "measured.json").exists():
            measure(args, keep)
        if not args.measure_only:
            report(args, keep)


def order(row, predicted, ordered):
    """Of locks that differ by more than 20%: "right" if those that are faster are predicted to be, which is added to `ordered`."""
    ratio = row["latchwork"] / row["glibc"]
    if not predicted or abs(ratio - 1) <= 0.2:
        return ""
    right = (predicted[1] > predicted[0]) == (ratio > 1)
    ordered.append(right)
    return "right" if right else "wrong"


def summary(results, refused, errors, ordered):
    said = [f"{len(results)} cases, {refused} refused."]
    if errors:
        said.append(f"Of the others: median error {statistics.median(errors):.0%}, worst {max(errors):.0%}.")
    if ordered:
        said.append(f"Of {len(ordered)} pairs of locks that differ by more than 20%, {sum(ordered)} in the right order.")
    return " ".join(said)
