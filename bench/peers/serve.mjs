// Runs the reference server: `node serve.mjs [DIRECTORY]`, file-backed in DIRECTORY, else in memory. Says where it
// listens in the words of `oncelog serve`. LONG_POLL_MS is for the conformance suite.
import { DurableStreamTestServer } from "@durable-streams/server"

const server = new DurableStreamTestServer({
  port: 0,
  host: "127.0.0.1",
  dataDir: process.argv[2],
  longPollTimeout: Number(process.env.LONG_POLL_MS ?? 30000),
  webhooks: true,
})
const address = await server.start()
console.log(`ready http=${new URL(address).host}`)
process.on("SIGTERM", async () => {
  await server.stop()
  process.exit(0)
})
