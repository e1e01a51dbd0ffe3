// The trial balance: record counts from tape to journal, and every check.
import { api, byId, clock, count, counted, element, empty, fill, follow, inZone, readable, refreshing, table, zoned } from "/static/tapeline.js";

const refresh = refreshing(async () => {
  const [pipeline, found] = await Promise.all([api("pipeline"), api("audit")]);
  const banner = byId("banner");
  if (!found.batch) {
    banner.textContent = "Nothing to check: no batch has been published yet.";
    return fill(byId("checks"), empty("Start the pipeline with ", element("code", {}, "tapeline run"), "."));
  }
  banner.dataset.state = found.balances ? "good" : "bad";
  banner.textContent = found.balances
    ? `✓ The books balance: batch ${count(found.batch)}, published ${zoned(found.at)}.`
    : `✗ The books do not balance. First wrong batch: ${found.checks.find((one) => !one.balances)?.batch ?? "unknown"}. Stop the pipeline and run tapeline audit --full.`;
  const wrong = new Set(found.checks.filter((one) => !one.balances).map((one) => one.what.split(":")[0]));
  fill(byId("flows"), pipeline.sources.map((source) => flow(pipeline, found, source, wrong)));
  const columns = [
    { title: "result", class: "line", cell: (row) => element("span", { class: row.balances ? "good" : "bad" }, row.balances ? "✓ ok" : "✗ error") },
    { title: "check", cell: (row) => row.what },
    { title: "expected", number: true, cell: (row) => row.expected },
    { title: "found", number: true, cell: (row) => row.found },
    { title: "first wrong batch", number: true, cell: (row) => row.batch ?? "" },
  ];
  fill(byId("checks"), [table(counted(found.checks.length, "check"), columns, found.checks), ...gaps(found.gaps)]);
});

function gaps(found) {
  if (!found.length) return [];
  const columns = [
    { title: "partition", cell: (row) => `${row.topic}/${row.partition}` },
    { title: "from", number: true, cell: (row) => row.from },
    { title: "to", number: true, cell: (row) => row.to ?? "unknown" },
    { title: "reason", cell: (row) => `${row.kind}: ${row.words}` },
    { title: inZone("found"), class: "line", cell: (row) => clock(row.at, true) },
    { title: "accepted by", cell: (row) => row.accepted_by },
  ];
  return [table("Accepted gaps: messages that the Kafka cluster lost", columns, found)];
}

function flow(pipeline, found, source, wrong) {
  const steps = [box(`tape ${source}`, [["records read", count(found.tapes[source])]], wrong.has(source))];
  let reads = [source];
  const tables = pipeline.tables.filter((one) => {
    if (!reads.includes(one.reads)) return false;
    reads = [...reads, one.name];
    return true;
  });
  for (const one of tables) {
    const verdicts = found.totals[one.name]?.verdicts ?? {};
    steps.push(box(`table ${one.name}`, Object.entries(verdicts).map(([word, number]) => [word, count(number)]), wrong.has(one.name)));
  }
  for (const one of pipeline.summaries.filter((summary) => reads.includes(summary.reads))) {
    const facts = found.totals[one.name] ?? {};
    const money = Object.entries(facts.measures ?? {}).map(([name, value]) => [name.replaceAll("_", " "), readable(value, String(value).includes(".") ? 2 : 0)]);
    steps.push(box(`journal ${one.name}`, [["entries", count(facts.entries)], ...money], wrong.has(one.name), "journal"));
  }
  return element("ol", { class: "flow", "aria-label": `Records from ${source}` }, steps);
}

function box(title, facts, bad, kind = "") {
  return element(
    "li", { class: `${bad ? "bad" : "good-box"} ${kind}` },
    element("strong", {}, `${bad ? "✗" : "✓"} ${title}`),
    element("dl", {}, facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
  );
}

refresh();
follow(refresh);
