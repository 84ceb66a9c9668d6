// Calls a BSFG boundary with @connectrpc/connect: node calls.mjs URL DESCRIPTOR_SET PREFIX, in JSON and in protobuf.
import { readFileSync } from "node:fs";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { ConnectError, Code, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";

const [url, descriptors, prefix] = process.argv.slice(2);
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(descriptors)));
const service = registry.getService("bsfg.v1.BoundaryService");
const results = [];

for (const useBinaryFormat of [false, true]) {
  const client = createClient(service, createConnectTransport({ baseUrl: url, httpVersion: "1.1", useBinaryFormat }));
  const envelope = {
    messageId: `${prefix}-${useBinaryFormat}`, fromZone: "a", toZone: "b", producedAtUnixMs: 1780000000000n,
    labels: { line: "3" },
  };
  const fact = { subject: "pump:a/1", predicate: "was_measured", objectJson: '{"value": 21.5}' };
  const first = await client.appendFact({ envelope, fact });
  const again = await client.appendFact({ envelope, fact: { ...fact, objectJson: '{"value":2.15e1}' } });
  let conflict;
  try {
    await client.appendFact({ envelope, fact: { ...fact, predicate: "was_guessed" } });
  } catch (error) {
    const told = ConnectError.from(error);
    const [detail] = told.findDetails(registry.getMessage("bsfg.v1.ConflictDetail"));
    conflict = { code: Code[told.code], message: told.rawMessage, sequence: String(detail.sequence) };
  }
  const consumerName = `${prefix}-consumer-${useBinaryFormat}`;
  const page = await client.fetchFacts({ consumerName, limit: 1000 });
  const found = page.facts.find((each) => each.envelope.messageId === envelope.messageId);
  const confirmed = await client.confirmReceipt({ consumerName, sequence: page.facts[0].sequence });
  const blob = new TextEncoder().encode("a report");
  const put = await client.putObject({ bucket: "b", key: envelope.messageId, blob, mediaType: "text/plain" });
  const got = await client.getObject({ bucket: "b", key: envelope.messageId });
  results.push({
    sequence: String(first.sequence), duplicate: again.duplicate, againSequence: String(again.sequence), conflict,
    produced: String(found.envelope.producedAtUnixMs), label: found.envelope.labels.line, object: found.fact.objectJson,
    frontier: String(confirmed.frontier), digest: put.digest, blob: new TextDecoder().decode(got.blob),
  });
}
console.log(JSON.stringify(results));
