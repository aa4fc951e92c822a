"""Tables and bars from measurements: medians over rounds, ratios round by round."""
import statistics

NOISE_MAX = 0.10


def rounds_of(measurements, point, peer):
    """{round: values}; rounds in which something else used the machine are left out if quiet ones remain."""
    every = {m["round"]: m["values"] for m in measurements if m["point"] == point and m["peer"] == peer}
    quiet = {round_: values for round_, values in every.items() if values.get("noise", 0) <= NOISE_MAX}
    return quiet or every


def median(measurements, point, peer, metric):
    values = [v[metric] for v in rounds_of(measurements, point, peer).values() if metric in v]
    return statistics.median(values) if values else None


def ratio(measurements, point, metric, peer, other):
    """Median over rounds of peer ÷ other, both from the same round where both have it."""
    ours, theirs = rounds_of(measurements, point, peer), rounds_of(measurements, point, other)
    shared = [r for r in ours if r in theirs and theirs[r].get(metric)]
    if shared:
        return statistics.median(ours[r][metric] / theirs[r][metric] for r in shared)
    a, b = median(measurements, point, peer, metric), median(measurements, point, other, metric)
    return a / b if a is not None and b else None


def is_noisy(measurements, point):
    """Whether mizan's own rounds at a point were all disturbed: then the point judges nothing."""
    return any(v.get("noise", 0) > NOISE_MAX for v in rounds_of(measurements, point, "mizan").values())


def verdict(measurements, what, value, limit):
    if is_noisy(measurements, what.split(":")[0]):
        return "noisy"
    return "ok   " if value <= limit else "MISS "


def number(value, digits):
    return "–" if value is None else f"{value:,.{digits}f}"


def spread(measurements, point, peer, metric, digits):
    """`median (least–most)`, or one number for one round."""
    values = [v[metric] for v in rounds_of(measurements, point, peer).values() if metric in v]
    if not values:
        return "–"
    text = number(statistics.median(values), digits)
    return text if len(values) == 1 else f"{text} ({number(min(values), digits)}–{number(max(values), digits)})"


def table(measurements, point, names):
    present = [name for name in names if any(m["point"] == point.name and m["peer"] == name for m in measurements)]
    if not present:
        return ""
    compared = "mizan" in present and len(present) > 1
    heads = ["peer", *(heading for _, heading, _ in point.columns), *(["mizan ÷ peer"] if compared else []), "bad", "noise"]
    rows = [heads]
    for name in present:
        cells = [spread(measurements, point.name, name, metric, digits) for metric, _, digits in point.columns]
        if compared:
            cells.append("" if name == "mizan" else number(ratio(measurements, point.name, point.ratio, "mizan", name), 2))
        values = rounds_of(measurements, point.name, name).values()
        cells += [str(sum(v.get("bad", 0) for v in values)), number(max(v.get("noise", 0) for v in values), 2)]
        rows.append([name, *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return f"\n### {point.name}: {point.title}\n\n" + "\n".join(lines)


def bars(measurements, names):
    """(what, value, limit) for each bar that these measurements can judge; the value must not be above the limit.

    `what` begins with the point's name and a colon.
    """
    found = []

    def compare(point, other, limit, metric="us_request"):
        found.append((f"{point}: CPU ÷ {other}", ratio(measurements, point, metric, "mizan", other), limit))

    for other, limit in (("nginx", 0.85), ("haproxy", 0.70), ("envoy", 0.25), ("relay", 1.15)):
        compare("small", other, limit)
    compare("16k", "nginx", 0.68)
    compare("16k", "relay", 1.12)
    compare("1m", "nginx-64k", 0.60)
    for point, other, limit in (
        ("tls", "nginx", 0.95), ("h2tls", "nginx", 1.0), ("h2c", "nginx", 1.0), ("grpc", "envoy", 0.70), ("grpc", "haproxy", 1.0),
        ("tcp128", "haproxy", 0.85), ("tcp128", "relay", 1.15), ("tcp1m", "haproxy", 0.85), ("tcp1m", "relay", 1.15),
    ):
        compare(point, other, limit)
    others = [name for name in names if name not in ("mizan", "relay", "direct")]
    for point in ("1m", "workers", "handshake", "resumed"):
        for other in others:
            compare(point, other, 1.0)
    for metric, words in (("p99_ms", "p99 after, in ms"), ("failed_percent", "failed in %")):
        theirs = [median(measurements, "trouble", name, metric) for name in others]
        best = min((value for value in theirs if value is not None), default=None)
        if best is not None:
            found.append((f"trouble: {words}, beside the best peer's", median(measurements, "trouble", "mizan", metric), best))
    found.append(("workers: spread of the two workers' CPU", median(measurements, "workers", "mizan", "spread"), 0.20))
    found.append(("calls: system calls a request", median(measurements, "calls", "mizan", "calls_request"), 4.3))
    found.append(("log: rise of CPU in %", median(measurements, "log", "mizan", "rise_percent"), 10))
    found.append(("idle: KiB a connection", median(measurements, "idle", "mizan", "kib_connection"), 1.3))
    found.append(("idletls: KiB a connection", median(measurements, "idletls", "mizan", "kib_connection"), 10))
    found.append(("upload: growth in MiB", median(measurements, "upload", "mizan", "growth_mib"), 8))
    found.append(("rest-10000: % of a core", median(measurements, "rest-10000", "mizan", "core_percent"), 5))
    found.append(("reload: p99 in the second of a reload ÷ before", median(measurements, "reload", "mizan", "times"), 2))
    for metric in ("p50_us", "p99_us"):
        direct = median(measurements, "rate", "direct", metric)
        theirs = [median(measurements, "rate", name, metric) for name in others]
        best = min((value for value in theirs if value is not None), default=None)
        ours = median(measurements, "rate", "mizan", metric)
        if None not in (direct, best, ours):
            found.append((f"rate: added {metric.removesuffix('_us')} in µs, beside the best peer's", ours - direct, best - direct))
    return [(what, value, limit) for what, value, limit in found if value is not None]


def text(document, points):
    measurements, names = document["measurements"], document["peers"]
    machine = document["machine"]
    lines = [f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}; medians (least–most) of the rounds"]
    lines += [table(measurements, point, ["direct", *names]) for point in points]
    judged = bars(measurements, names)
    if judged:
        lines.append("\n### bars\n")
        lines += [f"  {verdict(measurements, what, value, limit)}  {what}: {value:.2f} (bar {limit:.2f})" for what, value, limit in judged]
    return "\n".join(line for line in lines if line)
