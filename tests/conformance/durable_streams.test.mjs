// The public suite as a vitest file of our own: vitest does not run files below node_modules, so the package's own
// command finds no tests.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({ baseUrl: process.env.SERVER_URL, subscriptions: true })
