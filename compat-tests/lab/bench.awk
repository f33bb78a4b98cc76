# Raw rows of bench.sh -> Markdown. Medians are of the alternating rounds; the A/A band is the least and the greatest
# ratio between one run and the next of the same server, control runs included: a difference inside it means nothing.
{
  if (!(($1, $4) in seen)) { seen[$1, $4] = 1; order[++n] = $1 SUBSEP $4 }
  for (c = 5; c <= NF; c++) if ($c != "-") value[$1, $4, $2, c, $3] = $c
}
function median(mode, name, server, col,   run, count, i, j, t, list) {
  for (run = 1; run <= rounds; run++)
    if ((mode, name, server, col, run) in value) list[++count] = value[mode, name, server, col, run] + 0
  if (!count) return ""
  for (i = 2; i <= count; i++)
    for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
  return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
}
function band(mode, name, col,   s, server, run, low, high, a, b, r) {
  for (s = 1; s <= 2; s++) {
    server = s == 1 ? "kafka" : "sluice"
    for (run = 2; run <= runs; run++) {
      if (!((mode, name, server, col, run) in value) || !((mode, name, server, col, run - 1) in value)) continue
      a = value[mode, name, server, col, run - 1]; b = value[mode, name, server, col, run]
      if (a <= 0 || b <= 0) continue
      r = b / a
      if (low == "" || r < low) low = r
      if (high == "" || r > high) high = r
    }
  }
  return low == "" ? "-" : sprintf("%.2f..%.2f", low, high)
}
function ratio(a, b) { return a == "" || b == "" || b <= 0 ? "-" : sprintf("%.2f", a / b) }
function show(format, x) { return x == "" ? "-" : sprintf(format, x) }
# a cell group: Kafka, Sluice, Sluice / Kafka
function both(mode, name, col, format,   k, s) {
  k = median(mode, name, "kafka", col); s = median(mode, name, "sluice", col)
  return " " show(format, k) " | " show(format, s) " | " ratio(s, k) " |"
}
function header(mode, title, columns,   i, count, rule) {
  printf "\n### %s: %s\n\n%s\n", mode, title, columns
  count = gsub(/\|/, "|", columns)
  rule = "|"; for (i = 1; i < count; i++) rule = rule "---|"
  print rule
}
END {
  for (i = 1; i <= n; i++) { split(order[i], p, SUBSEP); if (!(p[1] in known)) { known[p[1]] = 1; modes[++m] = p[1] } }
  for (k = 1; k <= m; k++) {
    mode = modes[k]; rates = waits = rests = 0
    for (i = 1; i <= n; i++) {
      split(order[i], p, SUBSEP)
      if (p[1] != mode || p[2] !~ /^(produce|fetch)/) continue
      if (!rates++) header(mode, "throughput", "| case | Kafka rec/s | Sluice rec/s | ratio | A/A band | Kafka CPU s/M | Sluice CPU s/M | ratio | A/A band | Kafka peak MB | Sluice peak MB | ratio | client CPU s/M | other cores busy |")
      c = p[2]
      printf "| %s |%s %s |%s %s |%s %s | %s |\n", c, both(mode, c, 5, "%.0f"), band(mode, c, 5), both(mode, c, 7, "%.3f"), band(mode, c, 7), both(mode, c, 8, "%.0f"), show("%.2f", median(mode, c, servers_of(mode, c), 9)), show("%.2f", median(mode, c, servers_of(mode, c), 10))
    }
    for (i = 1; i <= n; i++) {
      split(order[i], p, SUBSEP)
      if (p[1] != mode || p[2] !~ /^e2e/) continue
      if (!waits++) header(mode, "end-to-end latency, µs", "| case | Kafka p50 | Sluice p50 | ratio | A/A band | Kafka p99 | Sluice p99 | ratio | A/A band | Kafka p99.9 | Sluice p99.9 | ratio | A/A band | Kafka CPU s/M | Sluice CPU s/M | ratio |")
      c = p[2]
      printf "| %s |%s %s |%s %s |%s %s |%s\n", c, both(mode, c, 11, "%.0f"), band(mode, c, 11), both(mode, c, 12, "%.0f"), band(mode, c, 12), both(mode, c, 13, "%.0f"), band(mode, c, 13), both(mode, c, 7, "%.1f")
    }
    for (i = 1; i <= n; i++) {
      split(order[i], p, SUBSEP)
      if (p[1] != mode || p[2] !~ /^idle/) continue
      if (!rests++) header(mode, "memory with 1,000 idle topic partitions", "| case | Kafka MB | Sluice MB | ratio | A/A band |")
      printf "| %s |%s %s |\n", p[2], both(mode, p[2], 8, "%.1f"), band(mode, p[2], 8)
    }
  }
}
function servers_of(mode, name) { return median(mode, name, "sluice", 9) == "" ? "kafka" : "sluice" }
