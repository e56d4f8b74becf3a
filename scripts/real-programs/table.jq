# results.json -> a table as Markdown, a line for each program, with the columns whose locks $locks names (all if it is
# empty); with $doc == 1 the whole page docs/real-programs.md, whose tables have a line for each lock. $first is null, or
# other results, whose table with a line for each program begins the page.

def median: sort | if length == 0 then null
  elif length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def column: if .mutex == "glibc" then .rwlock elif .rwlock == "glibc" then .mutex else "\(.mutex) + \(.rwlock)" end;
def unique_in_order: reduce .[] as $x ([]; if index([$x]) then . else . + [$x] end);
def decimals($n): pow(10; $n) as $p | (. * $p | round) as $v
  | "\($v / $p | floor).\($v % $p + $p | tostring | .[1:])";
# Two digits after the point, more where that would leave nothing to see.
def ratio: if . >= 0.1 then decimals(2) elif . >= 0.01 then decimals(3) else decimals(4) end;
def thousands: round | tostring | [while(length > 0; .[:-3]) | .[-3:]] | reverse | join(",");
def row: "| " + join(" | ") + " |";

# The runs of one cell: the median of their ratios to $glibc's run of the same round, and with several rounds the lowest and
# the highest; else what went wrong. (A machine that is slow for some rounds is so under both.)
def cell($glibc; $key):
  if length == 0 then ""
  else map(select(.status != "ok")) as $bad
    | ($glibc | map(select(.status == "ok" and .[$key] > 0) | {key: "\(.round)", value: .[$key]}) | from_entries) as $base
    | if ($bad | length) > 0 then $bad[0].status | ascii_upcase
      elif ($glibc | any(.status == "ok") | not) then "ok"
      else map(.[$key] / ($base["\(.round)"] // empty))
        | if length == 0 then "no round of glibc" elif length == 1 then .[0] | ratio
          else "\(median | ratio) (\(min | ratio) .. \(max | ratio))" end
      end
  end;
def spread($key): map(select(.status == "ok")[$key]) | median as $median
  | if length < 2 or $median == 0 then "" else "\((max - min) / $median * 100 | round)%" end;

# A matrix as Markdown; its first line is the header.
def markdown: ([.[0], (.[0] | map("---:") | .[0] = "---")] + .[1:]) | map(row) | join("\n");

# A line for each program that calls what these locks replace, with the columns of these locks. A second figure of a program
# has a line of its own.
def matrix($columns): . as $all
  | [["program", "glibc"] + (if $all.rounds > 1 then ["spread", "rounds"] else [] end) + $columns]
    + [([.runs[].program] | unique_in_order)[] as $program
      | ("figure", "beside") as $key
      | (if $key == "figure" then $about[$program].unit else $about[$program].beside end) as $unit
      | select($unit != null)
      | [$all.runs[] | select(.program == $program and (.status != "ok" or .[$key] != null))] as $runs
      | [$runs[] | select(column == "glibc")] as $glibc
      | ($glibc | map(select(.status == "ok")[$key]) | median) as $base
      | [$columns[] as $column | [$runs[] | select(column == $column)] | cell($glibc; $key)]
      | select(any(. != ""))
      | [if $key == "figure" then $program else "\($program): \($unit | split("/")[0])" end,
         (if $base == null then ($glibc | cell([]; $key)) else "\($base | thousands) \($unit)" end)]
        + (if $all.rounds > 1 then [($glibc | spread($key)), ($glibc | length | tostring)] else [] end) + .];
def columns: .runs | map(column) | unique_in_order - ["glibc"];
def where: "\(.machine.cpu), \(.machine.cores) cores; \(.machine.kernel); \(.machine.libc); \(.machine.system); latchwork \(.commit), \(.date)";
def sum_of_runs: map(select(.status != "ok")) as $bad | "\(length) runs: \(length - ($bad | length)) ok, \($bad | length) not.";

# The section with the table of $first.
def pairs: if . == null then "" else . as $first | columns as $columns | "
## The recommended locks

*glibc* is the program without latchwork. The columns of locks are throughput as a ratio to glibc's run of the same round:
median, lowest and highest. *Spread* is how far apart glibc's own rounds were ((highest - lowest) / median).
A second line of a program is other work of the same runs, which the first does not count. \(.runs | sum_of_runs)

<!-- generated: scripts/real-programs.sh run --every --mutex none --rwlock none --pair \($columns | map(gsub(" "; "")) | join(",")) --seconds \(.seconds); scripts/real-programs.sh table -->
<!-- machine: \(where) -->

\(matrix($columns) | markdown)

<!-- end of generated -->
" end;

. as $all
| ([.runs[].program] | unique_in_order) as $programs
| ($all.rounds > 1) as $spread
| def turned(keep): ([.runs[] | select(column != "glibc" and keep) | column] | unique_in_order) as $columns
    | if $columns == [] then "None of them was run." else matrix($columns) | transpose | .[0][0] = "lock" | markdown end;
  if $doc == 0 then (if $locks == "" then columns else $locks | split(",") end) as $columns | matrix($columns) | markdown
  else
    ($all.runs | map(select(.status != "ok"))) as $bad
    | "<!-- generated: scripts/real-programs.sh table --doc -->
<!-- machine: \($all.machine.cpu), \($all.machine.cores) cores, \($all.machine.kernel), \($all.machine.libc); the section \"Where\" has the rest -->

# Real programs under every lock

The script below runs programs of other projects under each lock with `latchwork run`. This page, which the script
prints, says whether each program still works and how fast it is. The script checked every run's result by its exit
status and by the program's own checks. It would have stopped a run that took longer than \($all.limit_s) s.

    scripts/real-programs.sh install
    scripts/real-programs.sh run --seconds \($all.seconds) --runs \($all.rounds)
    scripts/real-programs.sh table --doc > docs/real-programs.md
\($first[0] | pairs)
## Every lock

\($all.runs | sum_of_runs)

The line *glibc* is the program without latchwork. The other lines are throughput as a ratio to that line: 2.00 is twice
as fast, 0.50 half as fast.\(if $spread then " *Spread* is how far apart glibc's own \($all.rounds) runs
were ((highest - lowest) / median): a ratio within it says nothing." else " Each cell is one run, so a difference of 10% says nothing." end) A cell is empty if the program hardly
calls that kind of lock.

### Mutexes

With glibc's reader-writer lock.

\($all | turned(.rwlock == "glibc"))

### Reader-writer locks

With glibc's mutex, or with the one named first.

\($all | turned(.rwlock != "glibc"))
" + (if ($bad | length) == 0 then "" else "
What went wrong:

" + ($bad | map("- \(.program), mutex \(.mutex), rwlock \(.rwlock): \(.status | ascii_upcase), \(.note)") | join("\n")) + "
" end) + "
## What the programs do

| program | figure | what it is |
| --- | --- | --- |
" + ([$programs[] | [., $about[.].unit, $about[.].about] | row] | join("\n")) + "

## Where

- \($all.machine.cpu), \($all.machine.cores) cores; \($all.machine.kernel); \($all.machine.libc); \($all.machine.system)
- latchwork \($all.commit), \($all.date); load when it began: \($all.machine.load_at_start)
- " + ($all.packages | map(select(. != "")) | join("; ")) + "

" + ($notes | rtrimstr("\n"))
  end
