// A handler of three durable steps that do nothing, on Restate's SDK for Node: the counterpart of the no-op services.
import * as restate from "@restatedev/restate-sdk";

// The SDK uses it, and Node has it from version 22 on.
Promise.withResolvers ??= () => {
  let resolve, reject;
  const promise = new Promise((one, other) => ([resolve, reject] = [one, other]));
  return { promise, resolve, reject };
};

const bench = restate.service({
  name: "bench",
  handlers: {
    three: async (context, input) => {
      const ocr = await context.run("ocr", () => ({ artifacts: {} }));
      const embedding = await context.run("embedding", () => ({ artifacts: {} }));
      const sis = await context.run("sis", () => ({ artifacts: {} }));
      return { name: input.name, steps: [ocr, embedding, sis].length };
    },
  },
});

restate.serve({ services: [bench], port: Number(process.argv[2]) });
