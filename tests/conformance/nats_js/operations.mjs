// The operations of nats.js, carried out against the server whose port is the first argument. One JSON object on stdout:
// the name of each operation and what the client saw, without times and names of servers.
import { connect, headers } from "@nats-io/transport-node";
import { AckPolicy, DeliverPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";

const client = await connect({ servers: `127.0.0.1:${process.argv[2]}` });
const results = {};
const text = (data) => new TextDecoder().decode(data);

async function note(name, work) {
  try {
    results[`nats.js: ${name}`] = (await work()) ?? null;
  } catch (error) {
    const told = error.apiError ? error.apiError().err_code : error.name;
    results[`nats.js: ${name}`] = { error: told };
  }
}

async function consume(consumer, count) {
  const found = [];
  const messages = await consumer.fetch({ max_messages: count, expires: 1500 });
  for await (const message of messages) {
    found.push([message.subject, text(message.data), message.seq, message.info.pending]);
    message.ack();
  }
  return found;
}

const manager = await jetstreamManager(client);
const js = jetstream(client);

await note("account", async () => (await manager.getAccountInfo()).limits.max_storage);
await note("add a stream", async () => {
  const info = await manager.streams.add({ name: "J", subjects: ["j.>"], allow_atomic: true, allow_direct: true });
  return [info.config.subjects, info.config.allow_atomic, info.state.messages];
});
await note("publish", async () => js.publish("j.a", "one", { msgID: "m1" }));
await note("publish again", async () => js.publish("j.a", "one", { msgID: "m1" }));
await note("publish with an expectation", async () => js.publish("j.a", "two", { expect: { lastSequence: 1 } }));
await note("publish with a wrong one", async () => js.publish("j.a", "two", { expect: { lastSequence: 1 } }));
await note("a batch", async () => {
  const batch = await js.startBatch("j.b", "first");
  batch.add("j.b", "second");
  batch.add("j.c", "third");
  const { id, ...rest } = { id: 0, ...(await batch.commit("j.c", "last")) };
  delete rest.batch;
  return rest;
});
await note("a batch where it is off", async () => {
  await manager.streams.add({ name: "OFF", subjects: ["off"] });
  await js.startBatch("off", "first");
});
await note("a batch with an expectation that fails", async () => {
  const batch = await js.startBatch("j.b", "first", { expect: { lastSequence: 1 } });
  return batch.commit("j.b", "last");
});
await note("get a message", async () => {
  const message = await manager.streams.getMessage("J", { seq: 3 });
  return [message.subject, text(message.data)];
});
await note("get a message directly", async () => {
  const message = await manager.direct.getMessage("J", { last_by_subj: "j.c" });
  return [message.subject, text(message.data), message.seq];
});
await note("get messages directly", async () => {
  const found = [];
  for await (const message of await manager.direct.getBatch("J", { seq: 1, batch: 3 })) {
    found.push([message.subject, message.seq]);
  }
  return found;
});
await note("get the last of subjects", async () => {
  const found = [];
  for await (const message of await manager.direct.getLastMessagesFor("J", { multi_last: ["j.>"] })) {
    found.push([message.subject, message.seq]);
  }
  return found;
});
await note("a durable consumer", async () => {
  await manager.consumers.add("J", { durable_name: "D", ack_policy: AckPolicy.Explicit });
  return consume(await js.consumers.get("J", "D"), 3);
});
await note("the rest of it", async () => consume(await js.consumers.get("J", "D"), 3));
await note("an ordered consumer", async () => {
  const consumer = await js.consumers.get("J", { filter_subjects: ["j.b"] });
  const found = [];
  for await (const message of await consumer.fetch({ max_messages: 2, expires: 1500 })) {
    found.push([message.subject, text(message.data), message.seq]);
  }
  return found;
});
await note("a consumer from the last", async () => {
  await manager.consumers.add("J", {
    durable_name: "L",
    ack_policy: AckPolicy.Explicit,
    deliver_policy: DeliverPolicy.LastPerSubject,
    filter_subject: "j.>",
  });
  return consume(await js.consumers.get("J", "L"), 3);
});
await note("what a consumer says", async () => {
  const info = await manager.consumers.info("J", "D");
  return [info.num_pending, info.num_waiting, info.delivered.stream_seq];
});
await note("a bucket", async () => {
  const bucket = await new Kvm(client).create("B", { history: 5 });
  const found = [await bucket.put("a", "1"), await bucket.put("a", "2"), (await bucket.get("a")).string()];
  found.push(await bucket.create("b", "3"), await bucket.update("b", "4", 3));
  await bucket.delete("b");
  found.push((await bucket.get("b")).operation);
  const keys = [];
  for await (const key of await bucket.keys()) keys.push(key);
  const history = [];
  for await (const entry of await bucket.history({ key: "a" })) history.push([entry.revision, entry.string()]);
  return [...found, keys, history];
});
await note("a request", async () => {
  const subscription = client.subscribe("echo", {
    callback: (_error, message) => message.respond(message.data, { headers: headers() }),
  });
  const answer = await client.request("echo", "hello", { timeout: 2000 });
  subscription.unsubscribe();
  return text(answer.data);
});
await note("a request that nobody hears", async () => client.request("nobody", "", { timeout: 2000 }));
await note("purge", async () => manager.streams.purge("J", { filter: "j.b" }));
await note("delete", async () => manager.streams.delete("J"));
await client.close();
console.log(JSON.stringify(results));
