// Drives the test server with Azure's client for Node, which the project did not write. Prints one line per step.
import { createRequire } from "node:module";
import assert from "node:assert/strict";

const [folder, connection] = process.argv.slice(2);
const { ServiceBusClient, delay } = createRequire(`${folder}/`)("@azure/service-bus");
const client = new ServiceBusClient(connection, { retryOptions: { maxRetries: 0 } });

const work = client.createSender("work");
const receiver = client.createReceiver("work");
const dead = client.createReceiver("work", { subQueueType: "deadLetter" });
const WAIT = { maxWaitTimeInMs: 5000 };

async function one(from = receiver) {
  const [message] = await from.receiveMessages(1, WAIT);
  assert.ok(message, "nothing arrived");
  return message;
}

const steps = {
  async "sends, receives and completes"() {
    await work.sendMessages({
      body: { a: 1 },
      messageId: "m1",
      subject: "evt",
      correlationId: "c",
      contentType: "application/json",
      applicationProperties: { text: "t", n: 7, pi: 3.5, ok: true },
    });
    const got = await one();
    assert.deepEqual(got.body, { a: 1 });
    assert.equal(got.messageId, "m1");
    assert.equal(got.subject, "evt");
    assert.deepEqual(got.applicationProperties, { text: "t", n: 7, pi: 3.5, ok: true });
    assert.equal(got.deliveryCount, 0);
    assert.ok(got.lockedUntilUtc > new Date());
    await receiver.completeMessage(got);
    assert.equal((await receiver.peekMessages(1)).length, 0);
  },
  async "sends a batch"() {
    const batch = await work.createMessageBatch();
    for (let n = 0; n < 50; n++) assert.ok(batch.tryAddMessage({ body: n }));
    await work.sendMessages(batch);
    const bodies = [];
    while (bodies.length < 50) {
      const got = await receiver.receiveMessages(50, WAIT);
      assert.ok(got.length, "nothing arrived");
      for (const message of got) bodies.push(message.body);
      await Promise.all(got.map((message) => receiver.completeMessage(message)));
    }
    assert.deepEqual(bodies, [...Array(50).keys()]);
  },
  async "abandons"() {
    await work.sendMessages({ body: "again" });
    await receiver.abandonMessage(await one(), { marked: 1 });
    const got = await one();
    assert.equal(got.deliveryCount, 1);
    assert.equal(got.applicationProperties.marked, 1);
    await receiver.completeMessage(got);
  },
  async "dead-letters"() {
    await work.sendMessages({ body: "bad" });
    await receiver.deadLetterMessage(await one(), { deadLetterReason: "Poison", deadLetterErrorDescription: "why" });
    const got = await one(dead);
    assert.equal(got.deadLetterReason, "Poison");
    assert.equal(got.deadLetterErrorDescription, "why");
    assert.equal(got.deadLetterSource, "work");
    await dead.completeMessage(got);
  },
  async "renews"() {
    await work.sendMessages({ body: "long" });
    const got = await one();
    const before = got.lockedUntilUtc;
    await delay(20);
    assert.ok((await receiver.renewMessageLock(got)) > before);
    await receiver.completeMessage(got);
  },
  async "defers"() {
    await work.sendMessages({ body: "later" });
    const got = await one();
    await receiver.deferMessage(got);
    const [deferred] = await receiver.receiveDeferredMessages(got.sequenceNumber);
    assert.equal(deferred.body, "later");
    await receiver.completeMessage(deferred);
    await assert.rejects(receiver.completeMessage(deferred));
  },
  async "schedules and cancels"() {
    const due = new Date(Date.now() + 300);
    const numbers = await work.scheduleMessages([{ body: "kept" }, { body: "gone" }], due);
    await work.cancelScheduledMessages(numbers[1]);
    const got = await one();
    assert.equal(got.body, "kept");
    assert.ok(new Date() >= due);
    await receiver.completeMessage(got);
  },
  async "peeks"() {
    await work.sendMessages([{ body: "p1" }, { body: "p2" }]);
    const looking = client.createReceiver("work");
    assert.deepEqual((await looking.peekMessages(5)).map((message) => message.body), ["p1", "p2"]);
    await looking.close();
    for (const message of [await one(), await one()]) await receiver.completeMessage(message);
  },
  async "receives and deletes"() {
    await work.sendMessages([{ body: "r1" }, { body: "r2" }]);
    const deleting = client.createReceiver("work", { receiveMode: "receiveAndDelete" });
    assert.equal((await one(deleting)).body, "r1");
    assert.equal((await one(deleting)).body, "r2");
    await deleting.close();
  },
  async "returns empty-handed in time"() {
    assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 200 }), []);
  },
  async "subscribes with filters"() {
    const lane = client.createSender("lane");
    const ocr = client.createReceiver("lane", "ocr");
    await lane.sendMessages([
      { body: 1, applicationProperties: { service: "ocr" } },
      { body: 2, applicationProperties: { service: "sis" } },
      { body: 3, applicationProperties: { service: "ocr" } },
    ]);
    const bodies = [];
    await new Promise((resolve, reject) => {
      ocr.subscribe({
        processMessage: async (message) => {
          bodies.push(message.body);
          if (bodies.length === 2) resolve();
        },
        processError: async ({ error }) => reject(error),
      });
    });
    assert.deepEqual(bodies, [1, 3]);
    await ocr.close();
    await lane.close();
  },
  async "uses sessions"() {
    const sender = client.createSender("talks");
    await sender.sendMessages([{ body: "a1", sessionId: "a" }, { body: "b1", sessionId: "b" }, { body: "a2", sessionId: "a" }]);
    const session = await client.acceptSession("talks", "a");
    const got = await session.receiveMessages(2, WAIT);
    assert.deepEqual(got.map((message) => message.body), ["a1", "a2"]);
    await session.setSessionState({ step: 2 });
    assert.deepEqual(await session.getSessionState(), { step: 2 });
    const before = session.sessionLockedUntilUtc;
    await delay(20);
    assert.ok((await session.renewSessionLock()) > before);
    for (const message of got) await session.completeMessage(message);
    await assert.rejects(client.acceptSession("talks", "a"), { code: "SessionCannotBeLocked" });
    await session.close();
    const next = await client.acceptNextSession("talks");
    assert.equal(next.sessionId, "b");
    await next.completeMessage(await one(next));
    await next.close();
    await sender.close();
  },
  async "names a missing entity"() {
    await assert.rejects(client.createSender("nope").sendMessages({ body: 1 }), { code: "MessagingEntityNotFound" });
  },
};

for (const [name, step] of Object.entries(steps)) {
  const start = Date.now();
  try {
    await step();
    console.log(`ok ${name} ${Date.now() - start}`);
  } catch (error) {
    console.log(`failed ${name}: ${error.stack}`);
  }
}
await client.close();
