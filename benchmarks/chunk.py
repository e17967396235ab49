"""Compares kbmesh's chunker with the splitters of other libraries: speed and quality of boundaries.

`python -m benchmarks.chunk --json` from the repository root; README.md beside this file tells more.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from kbmesh_chunker.config import Strategy
from kbmesh_rpc.errors import FeatureUnsupported

from benchmarks.boundaries import Boundaries, judge, place
from benchmarks.corpus import CorpusFile, read_corpus
from benchmarks.pace import CLOCKS, Entrant, megabytes_per_second
from benchmarks.peers import Peers
from benchmarks.splitters import JOBS, KBMESH, KbmeshSplitter, Sizes, Splitter
from benchmarks.units import Units, find_units, missing_units

_VERDICTS = ("none", "wrong", "exact")
_FIXED_OVERLAP = 150


@dataclass(kw_only=True)
class Outcome:
    """What was found out about one splitter in the job of one strategy."""

    splitter: Splitter
    offsets: str
    """The worst over all files: "exact", "wrong" or "none"."""
    boundaries: Boundaries
    cut: Sequence[CorpusFile]
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why a file could not be cut, by its name."""
    megabytes_per_second: float = 0.0

    @property
    def comparable(self) -> bool:
        """Whether it does the same job as kbmesh and says rightly where its chunks stand."""
        return self.offsets == "exact" and not self.splitter.other_job


def main() -> None:
    """Measures and prints."""
    options = _options()
    cores = os.cpu_count()
    one_core = _stay_on_one_core()
    files = read_corpus(options.corpus, max_megabytes=options.max_mb)
    peers = Peers()
    outcomes: dict[str, list[Outcome]] = {}
    with closing(KbmeshSplitter()) as ours:
        units: dict[str, Units] = {}
        for strategy in map(Strategy, options.strategies):
            outcomes[strategy] = _measure(strategy, files, ours, peers, units, options)
    report = _report(outcomes, peers, files, options)
    report["machine"] = {
        "cores": cores,
        "one_core_used": one_core,
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        _print_table(outcomes, report)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chunk", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    parser.add_argument("--strategies", nargs="+", choices=[*map(str, JOBS)], default=[*map(str, JOBS)])
    parser.add_argument("--rounds", type=int, default=5, help="how often each splitter is timed; the median counts")
    parser.add_argument("--corpus", type=Path, help="a folder of .md, .txt and source files in place of those shipped")
    parser.add_argument("--max-mb", type=float, help="of the corpus at most; the largest files are left out first")
    parser.add_argument("--size", type=int, default=1500, help="of a chunk, in characters")
    parser.add_argument("--minimum", type=int, default=500, help="of a chunk, in characters; kbmesh alone knows it")
    parser.add_argument("--clock", choices=[*CLOCKS], default="wall", help="cpu: time that this process had")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def _stay_on_one_core() -> bool:
    """Where the system allows it: kbmesh has a thread beside its loop, and some libraries have pools."""
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    if not hasattr(os, "sched_setaffinity"):
        return False
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return True


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _measure(
    strategy: Strategy,
    files: Sequence[CorpusFile],
    ours: KbmeshSplitter,
    peers: Peers,
    units: dict[str, Units],
    options: argparse.Namespace,
) -> list[Outcome]:
    """The outcomes of a strategy, kbmesh's first. Units are found once for all strategies."""
    files = [file for file in files if file.kind in JOBS[strategy]]
    overlap = min(_FIXED_OVERLAP, options.size // 10) if strategy is Strategy.FIXED else 0
    sizes = Sizes(size=options.size, overlap=overlap, minimum=min(options.minimum, options.size))
    try:
        splitters = [ours.splitter(strategy, sizes)]
    except FeatureUnsupported:
        peers.missing[f"{KBMESH}.{strategy}"] = "this chunker has no such strategy"
        return []
    splitters += peers.splitters(strategy, sizes, files)
    outcomes = []
    for splitter in splitters:
        _progress(f"{strategy}: {splitter.name} over {len(files)} files")
        outcomes.append(_judge(splitter, files, units, options.size))
    speeds = megabytes_per_second(
        [Entrant(splitter=outcome.splitter, files=outcome.cut) for outcome in outcomes],
        rounds=options.rounds,
        clock=options.clock,
        progress=lambda message: _progress(f"{strategy}: {message}"),
    )
    for outcome in outcomes:
        outcome.megabytes_per_second = speeds.get(outcome.splitter.name, 0.0)
    return outcomes


def _judge(splitter: Splitter, files: Sequence[CorpusFile], units: dict[str, Units], size: int) -> Outcome:
    cut: list[CorpusFile] = []
    failed: dict[str, str] = {}
    verdicts: set[str] = set()
    found: list[Boundaries] = []
    for file in files:
        try:
            cuts = splitter.cuts(splitter.split(file))
        except Exception as error:  # whatever another library raises for a file
            failed[file.name] = f"{type(error).__name__}: {error}"[:200]
            continue
        if file.name not in units:
            units[file.name] = find_units(file)
        placed, verdict = place(file.text, cuts)
        cut.append(file)
        verdicts.add(verdict)
        found.append(judge(file, units[file.name], placed, size=size))
    return Outcome(
        splitter=splitter,
        offsets=next((verdict for verdict in _VERDICTS if verdict in verdicts), "none"),
        boundaries=reduce(add, found, Boundaries()),
        cut=cut,
        failed=failed,
    )


def _fastest(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The fastest of the others that does the same job with exact offsets."""
    comparable = [outcome for outcome in outcomes[1:] if outcome.comparable and outcome.cut]
    return max(comparable, key=lambda outcome: outcome.megabytes_per_second, default=None)


def _ratio(outcomes: Sequence[Outcome]) -> float | None:
    fastest = _fastest(outcomes)
    return outcomes[0].megabytes_per_second / fastest.megabytes_per_second if fastest else None


def _report(
    outcomes: Mapping[str, Sequence[Outcome]], peers: Peers, files: Sequence[CorpusFile], options: argparse.Namespace
) -> dict[str, Any]:
    return {
        "mb_per_s": {
            strategy: {outcome.splitter.name: round(outcome.megabytes_per_second, 3) for outcome in found}
            for strategy, found in outcomes.items()
        },
        "boundary": {
            strategy: {outcome.splitter.name: outcome.boundaries.as_json() for outcome in found}
            for strategy, found in outcomes.items()
        },
        "ratio_to_fastest": {strategy: _ratio(found) for strategy, found in outcomes.items()},
        "peers": {
            "versions": peers.versions,
            "missing": {**peers.missing, **missing_units()},
            "fastest": {
                strategy: fastest.splitter.name if (fastest := _fastest(found)) else None
                for strategy, found in outcomes.items()
            },
            "splitters": {
                strategy: {
                    outcome.splitter.name: {
                        "offsets": outcome.offsets,
                        "compared": outcome.splitter.name == KBMESH or outcome.comparable,
                        "other_job": outcome.splitter.other_job,
                        "settings": outcome.splitter.settings,
                        "failed": outcome.failed,
                    }
                    for outcome in found
                }
                for strategy, found in outcomes.items()
            },
        },
        "files": [
            {"name": file.name, "kind": file.kind, "bytes": file.size_bytes, "english": file.english} for file in files
        ],
        "settings": {
            "size": options.size,
            "overlap": {"fixed": min(_FIXED_OVERLAP, options.size // 10), "others": 0},
            "minimum": options.minimum,
            "unit": "characters",
            "rounds": options.rounds,
            "clock": options.clock,
            "kbmesh": "in process, without gRPC: text to chunks with spans in code points and bytes, and SHA-256",
            "mb": "1,000,000 bytes of UTF-8",
        },
    }


def _print_table(outcomes: Mapping[str, Sequence[Outcome]], report: Mapping[str, Any]) -> None:
    columns = ("sentences", "functions", "rows", "headings")
    for strategy, found in outcomes.items():
        ratio, fastest = _ratio(found), _fastest(found)
        against = f"{ratio:.2f} times {fastest.splitter.name}" if ratio and fastest else "nothing to compare with"
        megabytes = sum(file.size_bytes for file in found[0].cut) / 1e6 if found else 0.0
        print(f"\n{strategy.upper()}: {megabytes:.2f} MB; kbmesh has {against}")
        print(f"{'':52}{'MB/s':>8} {'offsets':>8}" + "".join(f"{name:>11}" for name in columns) + f"{'longest':>9}")
        for outcome in sorted(found, key=lambda outcome: -outcome.megabytes_per_second):
            bounds = outcome.boundaries
            shares = (
                bounds.sentences_cut,
                bounds.functions_cut,
                bounds.rows_orphaned,
                bounds.headings_separated,
            )
            print(
                f"{outcome.splitter.name:52}{outcome.megabytes_per_second:8.2f} {outcome.offsets:>8}"
                + "".join(f"{share.count / share.of:11.2%}" if share.of else f"{'-':>11}" for share in shares)
                + f"{bounds.longest:9}"
                + (f"  ({outcome.splitter.other_job})" if outcome.splitter.other_job else "")
                + (f"  ({len(outcome.failed)} files failed)" if outcome.failed else "")
            )
    print(f"\nShares of what was cut or separated. Missing: {json.dumps(report['peers']['missing'])}")


if __name__ == "__main__":
    main()
