// Reads JSON texts, one per line, and prints the RFC 8785 form of each as npm's canonicalize has it.
import { createInterface } from "node:readline";
import canonicalize from "canonicalize";

for await (const line of createInterface({ input: process.stdin })) {
  console.log(canonicalize(JSON.parse(line)));
}
